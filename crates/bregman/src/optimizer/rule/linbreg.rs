//! LinBreg: linearised Bregman iterations, gradient descent on the dual.
//!
//! ```text
//! m ← μ·m + (1 − μ)·τ·g
//! p ← p − m                     (μ = 0: p ← p − τ·g)
//! θ ← prox_{δλR}(δ·p)
//! ```
//! Without a penalty and with δ = 1 this is SGD. Bungert et al., "A Bregman learning framework for sparse neural
//! networks", JMLR 2022; the paper's eq. (5).

use serde::{Deserialize, Serialize};

use super::update::{Advance, Moments, UpdateRule, coefficients};
use super::{Update, Variant};
use crate::error::{Result, require};

/// Settings of LinBreg.
///
/// | setting | default | purpose | range |
/// | --- | --- | --- | --- |
/// | `momentum` | 0 | μ | [0, 1) |
/// | `delta` | 1 | δ, elastic-net factor | > 0 |
/// | `variant` | steady | what λ does to the duals when it moves, see [`Variant`] | |
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinBreg {
    /// μ; 0 keeps no momentum buffer.
    pub momentum: f64,
    /// Elastic-net factor δ.
    pub delta: f64,
    /// What else happens when λ moves.
    pub variant: Variant,
}

impl Default for LinBreg {
    fn default() -> Self {
        Self { momentum: 0.0, delta: 1.0, variant: Variant::default() }
    }
}

impl UpdateRule for LinBreg {
    fn name(&self) -> &'static str {
        "LinBreg"
    }

    fn check(&self) -> Result<()> {
        require((0.0..1.0).contains(&self.momentum), "linbreg.momentum", self.momentum, "a number in [0, 1)")?;
        require(self.delta > 0.0 && self.delta.is_finite(), "linbreg.delta", self.delta, "a number > 0")
    }

    fn update(&self, _: u64, tau: f64) -> Update {
        let fresh = ((1.0 - self.momentum) * tau) as f32;
        Update::LinBreg(LinBregCoefficients { mu: self.momentum as f32, fresh })
    }

    fn moments(&self) -> Moments {
        Moments::first_if(self.momentum)
    }

    fn mirror(&self) -> Option<(f64, Variant)> {
        Some((self.delta, self.variant))
    }

    fn default_lambda(&self) -> Option<f64> {
        Some(0.01)
    }

    fn default_lr(&self) -> f64 {
        0.1
    }
}

coefficients! {
    /// LinBreg's step: m ← μ·m + fresh·g, p ← p − m.
    LinBregCoefficients {
        /// μ
        mu,
        /// (1 − μ)·τ
        fresh,
    }
}

impl Advance for LinBregCoefficients {
    #[inline(always)]
    fn advance(self, p: f32, g: f32, m: &mut f32, _: &mut f32) -> f32 {
        *m = self.mu * *m + self.fresh * g;
        p - *m
    }
}
