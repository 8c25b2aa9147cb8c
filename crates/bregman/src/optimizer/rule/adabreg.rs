//! AdaBreg: Adam's step on the dual.
//!
//! ```text
//! m ← β₁·m + (1 − β₁)·g
//! v ← β₂·v + (1 − β₂)·g²
//! p ← (1 − τ·w)·p − τ·(m / (1 − β₁ᵏ)) / (√(v / (1 − β₂ᵏ)) + ε)
//! θ ← prox_{δλR}(δ·p)
//! ```
//! w is a decoupled weight decay: as AdamW decays θ, this decays the variable the step acts on, so that the duals of
//! weights that are 0 fade too. Without a penalty and with δ = 1 this is Adam (AdamW for w > 0).

use serde::{Deserialize, Serialize};

use super::adamw::Adam;
use super::update::{Moments, UpdateRule};
use super::{Update, Variant};
use crate::error::{Result, require};

/// Settings of AdaBreg.
///
/// | setting | default | purpose | range |
/// | --- | --- | --- | --- |
/// | `beta1`, `beta2` | 0.9, 0.999 | decay of the moments | [0, 1) |
/// | `eps` | 1e-8 | keeps the quotient finite | > 0 |
/// | `weight_decay` | 0 | w, decoupled, on the dual | ≥ 0 |
/// | `delta` | 1 | δ, elastic-net factor | > 0 |
/// | `variant` | steady | what λ does to the duals when it moves, see [`Variant`] | |
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdaBreg {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay on the dual.
    pub weight_decay: f64,
    /// Elastic-net factor δ.
    pub delta: f64,
    /// What else happens when λ moves.
    pub variant: Variant,
}

impl Default for AdaBreg {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, delta: 1.0, variant: Variant::default() }
    }
}

impl AdaBreg {
    fn adam(&self) -> Adam {
        Adam { beta1: self.beta1, beta2: self.beta2, eps: self.eps, weight_decay: self.weight_decay }
    }
}

impl UpdateRule for AdaBreg {
    fn name(&self) -> &'static str {
        "AdaBreg"
    }

    fn check(&self) -> Result<()> {
        self.adam().check("adabreg")?;
        require(self.delta > 0.0 && self.delta.is_finite(), "adabreg.delta", self.delta, "a number > 0")
    }

    fn update(&self, step: u64, tau: f64) -> Update {
        Update::Adam(self.adam().at(step, tau))
    }

    fn moments(&self) -> Moments {
        Moments::Both
    }

    fn mirror(&self) -> Option<(f64, Variant)> {
        Some((self.delta, self.variant))
    }

    fn default_lambda(&self) -> Option<f64> {
        Some(1.0)
    }

    fn default_lr(&self) -> f64 {
        0.01
    }
}
