//! RigL, the rigged lottery (Evci et al., 2020): every ΔT steps the smallest weights are dropped and as many grown
//! where the loss is steepest. The step that these gradients were for is taken before, with the masks as they were; the
//! published one leaves it out.

use super::{Exchange, MaskChange, MaskPolicy, MaskedLayer, RunClock, Start, check_target};
use crate::error::Result;

/// Growth by the gradient.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RigL {
    /// Sparsity.
    pub target: f64,
    /// When weights are exchanged, and how many.
    pub exchange: Exchange,
}

impl MaskPolicy for RigL {
    fn check(&self) -> Result<()> {
        check_target(self.target)?;
        self.exchange.check()
    }

    fn start(&self) -> Start {
        Start::Random(self.target)
    }

    fn sparsity(&self, _: &RunClock) -> f64 {
        self.target
    }

    fn change(&self, clock: &RunClock) -> Option<MaskChange> {
        self.exchange.at(clock).map(|exchanged| MaskChange { sparsity: self.target, exchanged })
    }

    fn grow(&self, layer: &MaskedLayer<'_>) -> Option<Vec<f32>> {
        Some(layer.gradients())
    }

    fn needs_gradients(&self) -> bool {
        true
    }
}
