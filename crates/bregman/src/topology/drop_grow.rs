//! Drop and grow: every ΔT steps the smallest weights are dropped and as many others grown.
//!
//! SET, sparse evolutionary training (Mocanu et al., 2018), grows at random. The published one exchanges 30 % after
//! every epoch; ours follows RigL's schedule, as RigL's authors do when they compare the two.
//!
//! RigL, the rigged lottery (Evci et al., 2020), grows where the loss is steepest. The step that these gradients were
//! for is taken before, with the masks as they were; the published one leaves it out.

use super::{Exchange, MaskChange, MaskPolicy, MaskedLayer, RunClock, Start, check_target};
use crate::error::Result;

/// The smallest weights in exchange for others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DropGrow {
    /// Sparsity.
    pub target: f64,
    /// When weights are exchanged, and how many.
    pub exchange: Exchange,
    /// Which weights are grown.
    pub growth: Growth,
}

/// Which of the zero weights are grown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// Random ones: SET.
    Random,
    /// Those with the largest gradients: RigL.
    Steepest,
}

impl MaskPolicy for DropGrow {
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
        Some(match self.growth {
            Growth::Random => layer.random(),
            Growth::Steepest => layer.gradients(),
        })
    }

    fn needs_gradients(&self) -> bool {
        self.growth == Growth::Steepest
    }
}
