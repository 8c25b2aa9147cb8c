//! MEST with elastic mutation (Yuan et al., 2021): every ΔT steps the weights of least importance |θ| + λ·|g| are
//! dropped and as many grown at random; the share that mutates falls in stages. The authors' code mutates 2, 1 and 0 %
//! of all weights at 90 % zeros and half of that at 95 %, which is 20, 10 and 0 % of the live ones, until epoch 90, 120
//! and 160 of 160. λ is part of the paper's importance; all scripts of the authors leave it at 0, where masks need no
//! gradients and move before the forward pass.

use serde::{Deserialize, Serialize};

use super::exchange::{check_period, is_due};
use super::{MaskChange, MaskPolicy, MaskedLayer, RunClock, Start, check_target};
use crate::error::{Result, require};

/// Mutation by importance.
#[derive(Debug, Clone, PartialEq)]
pub struct Mest {
    /// Sparsity.
    pub target: f64,
    /// ΔT, steps between mutations.
    pub period: u64,
    /// What mutates, one stage after the other; nothing after the last.
    pub stages: Vec<MutationStage>,
    /// λ, the weight of the gradient in a weight's importance.
    pub gradient_weight: f64,
}

/// How much mutates until when.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MutationStage {
    /// The end of the stage as a share of the run's steps.
    pub until: f64,
    /// The share of the live weights that is exchanged.
    pub fraction: f64,
}

impl MaskPolicy for Mest {
    fn check(&self) -> Result<()> {
        check_target(self.target)?;
        check_period(self.period)?;
        let weight = self.gradient_weight;
        require(weight >= 0.0 && weight.is_finite(), "gradient_weight", weight, "a number ≥ 0, such as 0.01")?;
        for &MutationStage { until, fraction } in &self.stages {
            require(until > 0.0 && until <= 1.0, "stages.until", until, "a share of the run in (0, 1]")?;
            require((0.0..=1.0).contains(&fraction), "stages.fraction", fraction, "a share in [0, 1], such as 0.2")?;
        }
        let rising = self.stages.is_sorted_by(|a, b| a.until < b.until);
        require(rising, "stages.until", "out of order", "stages that end one after the other")
    }

    fn start(&self) -> Start {
        Start::Random(self.target)
    }

    fn sparsity(&self, _: &RunClock) -> f64 {
        self.target
    }

    fn change(&self, clock: &RunClock) -> Option<MaskChange> {
        let is_now = |stage: &&MutationStage| (clock.step as f64) < stage.until * clock.total as f64;
        let exchanged = self.stages.iter().find(is_now)?.fraction;
        let mutates = is_due(self.period, clock) && exchanged > 0.0;
        mutates.then_some(MaskChange { sparsity: self.target, exchanged })
    }

    fn keep(&self, layer: &MaskedLayer<'_>) -> Vec<f32> {
        if !self.needs_gradients() {
            return layer.magnitudes();
        }
        let importance = |(theta, gradient): (&f32, &f32)| theta.abs() + self.gradient_weight as f32 * gradient.abs();
        layer.theta.iter().zip(layer.gradient).map(importance).collect()
    }

    fn grow(&self, layer: &MaskedLayer<'_>) -> Option<Vec<f32>> {
        Some(layer.random())
    }

    fn needs_gradients(&self) -> bool {
        self.gradient_weight > 0.0
    }
}
