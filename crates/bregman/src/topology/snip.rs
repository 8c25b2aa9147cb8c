//! SNIP (Lee et al., 2019), iterative (de Jorge et al., 2021): before the first step the weights with the smallest
//! |θ·g| are masked in rounds, round t of n down to the density (1 − s)^(t/n), the gradient of every round on another
//! batch and under the mask of the round before. Then the mask stays.

use super::{MaskChange, MaskPolicy, MaskedLayer, RunClock, Start, check_target};
use crate::error::{Result, require};

/// Pruning by connection sensitivity before training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Snip {
    /// Sparsity.
    pub target: f64,
    /// Rounds; 1 is the SNIP of Lee et al.
    pub rounds: u64,
}

/// More than any network has use for: each takes a batch before the first step.
const MOST_ROUNDS: u64 = 10_000;

impl MaskPolicy for Snip {
    fn check(&self) -> Result<()> {
        require((1..=MOST_ROUNDS).contains(&self.rounds), "rounds", self.rounds, "1 to 10000")?;
        check_target(self.target)
    }

    fn start(&self) -> Start {
        let density = |round: u64| (1.0 - self.target).powf(round as f64 / self.rounds as f64);
        let sparsity = |round: u64| if round == self.rounds { self.target } else { 1.0 - density(round) };
        Start::Scored((1..=self.rounds).map(sparsity).collect())
    }

    fn sparsity(&self, _: &RunClock) -> f64 {
        self.target
    }

    fn change(&self, _: &RunClock) -> Option<MaskChange> {
        None
    }

    fn keep(&self, layer: &MaskedLayer<'_>) -> Vec<f32> {
        layer.theta.iter().zip(layer.gradient).map(|(theta, gradient)| (theta * gradient).abs()).collect()
    }

    fn needs_gradients(&self) -> bool {
        true
    }
}
