//! Frozen support: which steps move all weights, and which only those that are not 0.
//!
//! A step on the support alone needs no gradient of zero weights, which is most of the work of a sparse step. Zero
//! weights then learn from fewer gradients; that costs accuracy while the network is still searching for its
//! support, but no loss was measured in the second half of a run. So the first steps of a run are all full. After
//! multilevel linearised Bregman iterations (arXiv 2602.03535), which freeze from the start.

use crate::error::{Result, require};

/// When a step is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freeze {
    /// m: every m-th step is full; 1 makes all of them.
    pub every: u64,
    /// So many steps are full at first.
    pub after: u64,
    /// So many steps are an epoch, whose last is full, too, and moves λ where a law finds it from the duals. Between
    /// full steps weights die and none wakes up, but what is validated and saved has the sparsity asked for. 0: no
    /// epochs.
    pub epoch: u64,
}

impl Default for Freeze {
    fn default() -> Self {
        Self { every: 1, after: 0, epoch: 0 }
    }
}

impl Freeze {
    /// Whether the step after `taken` others is full.
    pub fn is_full(&self, taken: u64) -> bool {
        taken < self.after || (taken - self.after).is_multiple_of(self.every) || self.ends_epoch(taken)
    }

    /// Whether the step after `taken` others is the last of an epoch with frozen steps.
    pub(crate) fn ends_epoch(&self, taken: u64) -> bool {
        self.every > 1 && taken >= self.after && (taken + 1).is_multiple_of(self.epoch)
    }

    /// How many steps ago the full step before a full one was.
    pub(crate) fn gap(&self, taken: u64) -> u64 {
        (1..self.every).find(|&ago| taken < ago || self.is_full(taken - ago)).unwrap_or(self.every)
    }

    pub(crate) fn check(&self) -> Result<()> {
        require(self.every >= 1, "freeze", self.every, "a whole number ≥ 1; 1 makes every step full")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_steps_are_full_and_then_every_mth() {
        let full = |freeze: Freeze| (0..12).filter(|&taken| freeze.is_full(taken)).collect::<Vec<_>>();
        assert_eq!(full(Freeze::default()), Vec::from_iter(0..12));
        assert_eq!(full(Freeze { every: 5, ..Freeze::default() }), [0, 5, 10]);
        assert_eq!(full(Freeze { every: 4, after: 3, epoch: 0 }), [0, 1, 2, 3, 7, 11]);
    }

    #[test]
    fn the_last_step_of_an_epoch_is_full() {
        let full = |freeze: Freeze| (0..14).filter(|&taken| freeze.is_full(taken)).collect::<Vec<_>>();
        assert_eq!(full(Freeze { every: 4, after: 3, epoch: 7 }), [0, 1, 2, 3, 6, 7, 11, 13]);
        assert_eq!(full(Freeze { every: 1, after: 3, epoch: 7 }), Vec::from_iter(0..14));
        assert!((0..14).all(|taken| !Freeze { every: 1, after: 3, epoch: 7 }.ends_epoch(taken)));
    }

    #[test]
    fn the_gap_leads_to_the_full_step_before() {
        for (every, after, epoch) in [(1, 0, 0), (5, 0, 0), (4, 3, 0), (10, 7, 0), (10, 7, 13), (5, 0, 4), (1, 0, 6)] {
            let freeze = Freeze { every, after, epoch };
            let full: Vec<u64> = (0..60).filter(|&taken| freeze.is_full(taken)).collect();
            assert!(full.windows(2).all(|pair| pair[1] - freeze.gap(pair[1]) == pair[0]), "{freeze:?}");
        }
    }
}
