//! SET, sparse evolutionary training (Mocanu et al., 2018): every ΔT steps the smallest weights are dropped and as many
//! grown at random. The published one exchanges 30 % after every epoch; ours follows RigL's schedule, as RigL's authors
//! do when they compare the two.

use super::{Exchange, MaskChange, MaskPolicy, MaskedLayer, RunClock, Start, check_target};
use crate::error::Result;

/// Random growth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Set {
    /// Sparsity.
    pub target: f64,
    /// When weights are exchanged, and how many.
    pub exchange: Exchange,
}

impl MaskPolicy for Set {
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
        Some(layer.random())
    }
}
