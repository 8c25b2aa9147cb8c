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
}

impl Default for Freeze {
    fn default() -> Self {
        Self { every: 1, after: 0 }
    }
}

impl Freeze {
    /// Whether the step after `taken` others is full.
    pub fn is_full(&self, taken: u64) -> bool {
        taken < self.after || (taken - self.after).is_multiple_of(self.every)
    }

    /// How many steps ago the full step before a full one was.
    pub(crate) fn gap(&self, taken: u64) -> u64 {
        if taken <= self.after { 1 } else { self.every }
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
        assert_eq!(full(Freeze { every: 5, after: 0 }), [0, 5, 10]);
        assert_eq!(full(Freeze { every: 4, after: 3 }), [0, 1, 2, 3, 7, 11]);
    }

    #[test]
    fn the_gap_leads_to_the_full_step_before() {
        for (every, after) in [(1, 0), (5, 0), (4, 3), (10, 7)] {
            let freeze = Freeze { every, after };
            let full: Vec<u64> = (0..60).filter(|&taken| freeze.is_full(taken)).collect();
            assert!(full.windows(2).all(|pair| pair[1] - freeze.gap(pair[1]) == pair[0]), "{freeze:?}");
        }
    }
}
