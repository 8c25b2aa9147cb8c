//! SGD with (Nesterov) momentum and weight decay: the dense baseline, and under a mask the one that is pruned.
//!
//! ```text
//! g ← g + w·θ
//! m ← μ·m + g
//! θ ← θ − τ·(g + μ·m)           (without Nesterov: θ − τ·m)
//! ```

use serde::{Deserialize, Serialize};

use super::Update;
use super::update::{Advance, Moments, UpdateRule, coefficients};
use crate::error::{Result, require};

/// Settings of SGD.
///
/// | setting | default | purpose | range |
/// | --- | --- | --- | --- |
/// | `momentum` | 0.9 | μ | [0, 1) |
/// | `nesterov` | true | look ahead along the momentum | |
/// | `weight_decay` | 1e-4 | w, added to the gradient | ≥ 0 |
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sgd {
    /// μ; 0 keeps no momentum buffer.
    pub momentum: f64,
    /// Look ahead along the momentum.
    pub nesterov: bool,
    /// ℓ2 penalty added to the gradient.
    pub weight_decay: f64,
}

impl Default for Sgd {
    fn default() -> Self {
        Self { momentum: 0.9, nesterov: true, weight_decay: 1e-4 }
    }
}

impl UpdateRule for Sgd {
    fn name(&self) -> &'static str {
        "SGD"
    }

    fn check(&self) -> Result<()> {
        require((0.0..1.0).contains(&self.momentum), "sgd.momentum", self.momentum, "a number in [0, 1)")?;
        require(
            self.weight_decay >= 0.0 && self.weight_decay.is_finite(),
            "sgd.weight_decay",
            self.weight_decay,
            "a number ≥ 0",
        )
    }

    fn update(&self, _: u64, tau: f64) -> Update {
        // θ − τ·(a·g + b·m) covers both forms.
        let (of_g, of_m) = if self.nesterov { (1.0, self.momentum as f32) } else { (0.0, 1.0) };
        let (mu, decay) = (self.momentum as f32, self.weight_decay as f32);
        Update::Sgd(SgdCoefficients { tau: tau as f32, mu, decay, of_g, of_m })
    }

    fn moments(&self) -> Moments {
        Moments::first_if(self.momentum)
    }

    fn default_lambda(&self) -> Option<f64> {
        None
    }

    fn default_lr(&self) -> f64 {
        0.1
    }
}

coefficients! {
    /// SGD's step: g ← g + decay·θ, m ← μ·m + g, θ ← θ − τ·(of_g·g + of_m·m).
    SgdCoefficients {
        /// τ
        tau,
        /// μ
        mu,
        /// Weight decay w.
        decay,
        /// Share of the gradient.
        of_g,
        /// Share of the momentum.
        of_m,
    }
}

impl Advance for SgdCoefficients {
    #[inline(always)]
    fn advance(self, x: f32, g: f32, m: &mut f32, _: &mut f32) -> f32 {
        let g = g + self.decay * x;
        *m = self.mu * *m + g;
        x - self.tau * (self.of_g * g + self.of_m * *m)
    }
}
