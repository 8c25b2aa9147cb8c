//! Gradual magnitude pruning: before every epoch e = 0, 1, … the smallest weights are masked until the ramp's value at
//! i = e + 1 is reached. The paper's baseline is exponential over ten epochs, s_i = 1 − (1 − s*)^(i/10).

use super::{MaskChange, MaskPolicy, RunClock, check_target};
use crate::error::Result;
use crate::schedule::Ramp;

/// Pruning along a ramp of epochs.
#[derive(Debug, Clone, PartialEq)]
pub struct GradualPruning {
    /// Final sparsity.
    pub target: f64,
    /// The way there, in epochs.
    pub ramp: Ramp,
}

impl MaskPolicy for GradualPruning {
    fn check(&self) -> Result<()> {
        self.ramp.check()?;
        check_target(self.target)
    }

    fn sparsity(&self, clock: &RunClock) -> f64 {
        self.ramp.at(clock.epoch + 1, self.target)
    }

    fn change(&self, clock: &RunClock) -> Option<MaskChange> {
        let at = |epoch: u64| self.ramp.at(epoch + 1, self.target);
        let before = clock.epoch.checked_sub(1).map_or(0.0, at);
        (clock.begins_epoch() && at(clock.epoch) != before).then(|| MaskChange::to(at(clock.epoch)))
    }
}
