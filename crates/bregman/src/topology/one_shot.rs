//! One-shot magnitude pruning: the smallest weights are masked at once, at initialisation or before a later epoch.

use super::{MaskChange, MaskPolicy, RunClock, check_target};
use crate::error::Result;

/// Pruning once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OneShotPruning {
    /// Sparsity from then on.
    pub target: f64,
    /// The epoch before which it happens, from 0.
    pub epoch: u64,
}

impl MaskPolicy for OneShotPruning {
    fn check(&self) -> Result<()> {
        check_target(self.target)
    }

    fn sparsity(&self, clock: &RunClock) -> f64 {
        if clock.epoch >= self.epoch { self.target } else { 0.0 }
    }

    fn change(&self, clock: &RunClock) -> Option<MaskChange> {
        (clock.begins_epoch() && clock.epoch == self.epoch).then(|| MaskChange::to(self.target))
    }
}
