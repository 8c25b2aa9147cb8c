//! A static mask: drawn at random before the first step, then kept. What every policy that moves masks has to beat.

use super::{MaskChange, MaskPolicy, MaskedLayer, RunClock, check_target};
use crate::error::Result;

/// A random mask that stays.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StaticMask {
    /// Sparsity.
    pub target: f64,
}

impl MaskPolicy for StaticMask {
    fn check(&self) -> Result<()> {
        check_target(self.target)
    }

    fn sparsity(&self, _: &RunClock) -> f64 {
        self.target
    }

    fn change(&self, clock: &RunClock) -> Option<MaskChange> {
        (clock.step == 0).then(|| MaskChange::to(self.target))
    }

    fn keep(&self, layer: &MaskedLayer<'_>) -> Vec<f32> {
        layer.random()
    }
}
