//! AdamW, the dense baseline, and the Adam step that AdaBreg shares with it.

use serde::{Deserialize, Serialize};

use super::Update;
use super::update::{Advance, Moments, UpdateRule, coefficients};
use crate::error::{Result, require};

/// Settings of AdamW (Loshchilov and Hutter, 2019): θ ← (1 − τ·w)·θ − τ·m̂ / (√v̂ + ε).
///
/// | setting | default | purpose | range |
/// | --- | --- | --- | --- |
/// | `beta1`, `beta2` | 0.9, 0.999 | decay of the moments | [0, 1) |
/// | `eps` | 1e-8 | keeps the quotient finite | > 0 |
/// | `weight_decay` | 1e-4 | w, decoupled | ≥ 0 |
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdamW {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

impl Default for AdamW {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 1e-4 }
    }
}

impl AdamW {
    fn adam(&self) -> Adam {
        Adam { beta1: self.beta1, beta2: self.beta2, eps: self.eps, weight_decay: self.weight_decay }
    }
}

impl UpdateRule for AdamW {
    fn name(&self) -> &'static str {
        "AdamW"
    }

    fn check(&self) -> Result<()> {
        self.adam().check("adamw")
    }

    fn update(&self, step: u64, tau: f64) -> Update {
        Update::Adam(self.adam().at(step, tau))
    }

    fn moments(&self) -> Moments {
        Moments::Both
    }

    fn default_lambda(&self) -> Option<f64> {
        None
    }

    fn default_lr(&self) -> f64 {
        1e-3
    }
}

/// What Adam's step needs, whatever variable it acts on.
pub(super) struct Adam {
    pub(super) beta1: f64,
    pub(super) beta2: f64,
    pub(super) eps: f64,
    pub(super) weight_decay: f64,
}

impl Adam {
    pub(super) fn check(&self, owner: &str) -> Result<()> {
        let field = |name: &str| format!("{owner}.{name}");
        require((0.0..1.0).contains(&self.beta1), &field("beta1"), self.beta1, "a number in [0, 1)")?;
        require((0.0..1.0).contains(&self.beta2), &field("beta2"), self.beta2, "a number in [0, 1)")?;
        require(self.eps > 0.0 && self.eps.is_finite(), &field("eps"), self.eps, "a number > 0")?;
        require(
            self.weight_decay >= 0.0 && self.weight_decay.is_finite(),
            &field("weight_decay"),
            self.weight_decay,
            "a number ≥ 0",
        )
    }

    /// The coefficients of step k (counted from 1).
    pub(super) fn at(&self, step: u64, tau: f64) -> AdamCoefficients {
        let corrected = |beta: f64| 1.0 - beta.powf(step as f64);
        AdamCoefficients {
            beta1: self.beta1 as f32,
            beta2: self.beta2 as f32,
            fresh1: (1.0 - self.beta1) as f32,
            fresh2: (1.0 - self.beta2) as f32,
            eps: self.eps as f32,
            per_root: (1.0 / corrected(self.beta2).sqrt()) as f32,
            rate: (tau / corrected(self.beta1)) as f32,
            keep: (1.0 - tau * self.weight_decay) as f32,
        }
    }
}

coefficients! {
    /// Adam's step with the bias corrections of step k in it: m ← β₁·m + fresh₁·g, v ← β₂·v + fresh₂·g²,
    /// x ← keep·x − rate·m/(√v·per_root + ε).
    AdamCoefficients {
        /// β₁
        beta1,
        /// β₂
        beta2,
        /// 1 − β₁
        fresh1,
        /// 1 − β₂
        fresh2,
        /// ε
        eps,
        /// 1/√(1 − β₂ᵏ)
        per_root,
        /// τ/(1 − β₁ᵏ)
        rate,
        /// 1 − τ·w
        keep,
    }
}

impl Advance for AdamCoefficients {
    const SECOND_MOMENT: bool = true;

    #[inline(always)]
    fn advance(self, x: f32, g: f32, m: &mut f32, v: &mut f32) -> f32 {
        *m = self.beta1 * *m + self.fresh1 * g;
        *v = self.beta2 * *v + self.fresh2 * (g * g);
        self.keep * x - self.rate * (*m / (v.sqrt() * self.per_root + self.eps))
    }
}
