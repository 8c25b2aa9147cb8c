//! STR, soft threshold reparameterisation (Kusupati et al., 2020): every tensor learns its own threshold.
//!
//! ```text
//! θ = sgn(w)·relu(|w| − σ(s))
//! w ← SGD's step with g where θ ≠ 0, and with 0 elsewhere
//! s ← s − τ·(d·s − σ′(s)·Σ g·sgn(θ))
//! ```
//! w stands where Bregman optimizers have their dual, σ(s) where they have λ. The loss pulls s down, the decay d pulls
//! it up, for s is negative: where they meet decides the sparsity. The published one has momentum on s too.
//!
//! To reach a target, which the published one cannot, an [`AdaptiveOptimizer`](crate::AdaptiveOptimizer) multiplies all
//! thresholds with one factor, so that they keep the ratios that they have learnt; the decay is 0 then. The gradient of
//! weights that are zero is never used: steps on the support are whole ones.

use serde::{Deserialize, Serialize};

use super::update::{Advance, Moments, UpdateRule, coefficients};
use super::{Sgd, Update, Variant};
use crate::error::{Result, require};

/// Settings of STR.
///
/// | setting | default | purpose | range |
/// | --- | --- | --- | --- |
/// | `momentum` | 0.9 | μ of w | [0, 1) |
/// | `nesterov` | true | look ahead along the momentum | |
/// | `weight_decay` | 1e-4 | of w, added to the gradient | ≥ 0 |
/// | `threshold_decay` | 1e-3 | d, of s | ≥ 0 |
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Str {
    /// μ; 0 keeps no momentum buffer.
    pub momentum: f64,
    /// Look ahead along the momentum.
    pub nesterov: bool,
    /// ℓ2 penalty on w, added to the gradient.
    pub weight_decay: f64,
    /// ℓ2 penalty on s.
    pub threshold_decay: f64,
}

impl Default for Str {
    fn default() -> Self {
        Self::new(Sgd::default(), 1e-3)
    }
}

impl Str {
    /// STR whose w follows this SGD.
    pub fn new(sgd: Sgd, threshold_decay: f64) -> Self {
        let Sgd { momentum, nesterov, weight_decay } = sgd;
        Self { momentum, nesterov, weight_decay, threshold_decay }
    }

    fn sgd(&self) -> Sgd {
        Sgd { momentum: self.momentum, nesterov: self.nesterov, weight_decay: self.weight_decay }
    }

    /// The next σ(s), given Σ g·sgn(θ).
    pub(crate) fn next_threshold(&self, threshold: f64, pull: f64, tau: f64) -> f64 {
        // a controller may have put it at 1 or above, where no weight is left to learn from
        let s = (threshold / (1.0 - threshold).max(f64::MIN_POSITIVE)).ln().clamp(-LARGEST, LARGEST);
        let slope = (threshold * (1.0 - threshold)).max(0.0);
        let s = s - tau * (self.threshold_decay * s - slope * pull);
        1.0 / (1.0 + (-s.clamp(-LARGEST, LARGEST)).exp())
    }
}

/// |s| beyond which σ(s) is 0 or 1 in single precision.
const LARGEST: f64 = 60.0;

impl UpdateRule for Str {
    fn name(&self) -> &'static str {
        "STR"
    }

    fn check(&self) -> Result<()> {
        let decay = self.threshold_decay;
        require(decay >= 0.0 && decay.is_finite(), "str.threshold_decay", decay, "a number ≥ 0")?;
        self.sgd().check()
    }

    /// With every gate open; [`Update::above`] closes those of zero weights.
    fn update(&self, step: u64, tau: f64) -> Update {
        let Update::Sgd(sgd) = self.sgd().update(step, tau) else { unreachable!("SGD's update") };
        let super::SgdCoefficients { tau, mu, decay, of_g, of_m } = sgd;
        Update::Str(StrCoefficients { tau, mu, decay, of_g, of_m, threshold: OPEN })
    }

    fn moments(&self) -> Moments {
        Moments::first_if(self.momentum)
    }

    fn mirror(&self) -> Option<(f64, Variant)> {
        Some((1.0, Variant::Plain))
    }

    fn default_lambda(&self) -> Option<f64> {
        Some(1e-3)
    }

    fn default_lr(&self) -> f64 {
        0.1
    }
}

/// A threshold that every weight is above.
const OPEN: f32 = -1.0;

impl Update {
    /// The same, but gradients count only where |x| is above `threshold`, if that is how the update works.
    pub(crate) fn above(self, threshold: f32) -> Self {
        match self {
            Update::Str(coefficients) => Update::Str(StrCoefficients { threshold, ..coefficients }),
            other => other,
        }
    }
}

coefficients! {
    /// STR's step: SGD's, with a gradient of 0 where |w| ≤ threshold.
    StrCoefficients {
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
        /// σ(s) that the present θ was made with.
        threshold,
    }
}

impl Advance for StrCoefficients {
    #[inline(always)]
    fn advance(self, x: f32, g: f32, m: &mut f32, _: &mut f32) -> f32 {
        let g = if x.abs() > self.threshold { g } else { 0.0 };
        let g = g + self.decay * x;
        *m = self.mu * *m + g;
        x - self.tau * (self.of_g * g + self.of_m * *m)
    }
}
