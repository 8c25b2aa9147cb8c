//! A static mask: drawn at random before the first step, then kept. What every policy that moves masks has to beat.

use super::{MaskChange, MaskPolicy, RunClock, Start, check_target};
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

    fn start(&self) -> Start {
        Start::Random(self.target)
    }

    fn sparsity(&self, _: &RunClock) -> f64 {
        self.target
    }

    fn change(&self, _: &RunClock) -> Option<MaskChange> {
        None
    }
}
