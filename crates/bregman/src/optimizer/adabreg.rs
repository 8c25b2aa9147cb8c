//! AdaBreg: Adam's step on the dual.
//!
//! ```text
//! m ← β₁·m + (1 − β₁)·g
//! v ← β₂·v + (1 − β₂)·g²
//! p ← (1 − τ·w)·p − τ·(m / (1 − β₁ᵏ)) / (√(v / (1 − β₂ᵏ)) + ε)
//! θ ← prox_{δλR}(δ·p)
//! ```
//! w is a decoupled weight decay: as AdamW decays θ, this decays the variable the step acts on, so that the duals of
//! dead weights fade too. Without a penalty and with δ = 1 this is Adam (AdamW for w > 0).

use serde::{Deserialize, Serialize};

use super::Variant;
use super::adamw::{AdamStep, Moments};
use super::engine::Motion;
use super::pass::{Block, Update};
use crate::error::{Result, require};

/// Settings of AdaBreg.
///
/// | setting | default | purpose | range |
/// | --- | --- | --- | --- |
/// | `beta1`, `beta2` | 0.9, 0.999 | decay of the moments | [0, 1) |
/// | `eps` | 1e-8 | keeps the quotient finite | > 0 |
/// | `weight_decay` | 0 | w, decoupled, on the dual | ≥ 0 |
/// | `delta` | 1 | δ, elastic-net factor | > 0 |
/// | `variant` | plain | the appendix' options, see [`Variant`] | |
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
        Self { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, delta: 1.0, variant: Variant::Plain }
    }
}

impl AdaBreg {
    fn moments(&self) -> Moments {
        Moments { beta1: self.beta1, beta2: self.beta2, eps: self.eps, weight_decay: self.weight_decay }
    }

    pub(super) fn check(&self) -> Result<()> {
        self.moments().check("adabreg")?;
        require(self.delta > 0.0 && self.delta.is_finite(), "adabreg.delta", self.delta, "a number > 0")
    }

    pub(super) fn at(&self, step: u64, tau: f64) -> AdaBregUpdate {
        AdaBregUpdate(self.moments().at(step, tau))
    }
}

#[derive(Clone, Copy)]
pub(super) struct AdaBregUpdate(AdamStep);

impl AdaBregUpdate {
    pub(super) fn motion(self) -> Motion {
        self.0.motion()
    }
}

impl Update for AdaBregUpdate {
    #[inline(always)]
    fn advance(self, Block { g, theta, p, m, v }: Block<'_>, shrink: impl Fn(f32) -> f32 + Copy) {
        for ((((p, x), m), v), g) in p.iter_mut().zip(theta).zip(m).zip(v).zip(g.iter()) {
            *p = self.0.next(*p, m, v, g);
            *x = shrink(*p);
        }
    }
}
