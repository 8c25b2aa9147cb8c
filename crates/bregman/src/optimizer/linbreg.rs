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

use super::Variant;
use super::engine::Motion;
use super::pass::{Block, Update};
use crate::error::{Result, require};

/// Settings of LinBreg.
///
/// | setting | default | purpose | range |
/// | --- | --- | --- | --- |
/// | `momentum` | 0 | μ | [0, 1) |
/// | `delta` | 1 | δ, elastic-net factor | > 0 |
/// | `variant` | plain | the appendix' options, see [`Variant`] | |
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
        Self { momentum: 0.0, delta: 1.0, variant: Variant::Plain }
    }
}

impl LinBreg {
    pub(super) fn check(&self) -> Result<()> {
        require((0.0..1.0).contains(&self.momentum), "linbreg.momentum", self.momentum, "a number in [0, 1)")?;
        require(self.delta > 0.0 && self.delta.is_finite(), "linbreg.delta", self.delta, "a number > 0")
    }

    pub(super) fn at(&self, tau: f64) -> LinBregUpdate {
        LinBregUpdate { tau: tau as f32, mu: self.momentum as f32, fresh: ((1.0 - self.momentum) * tau) as f32 }
    }
}

#[derive(Clone, Copy)]
pub(super) struct LinBregUpdate {
    tau: f32,
    mu: f32,
    /// (1 − μ)·τ
    fresh: f32,
}

impl LinBregUpdate {
    pub(super) fn motion(self) -> Motion {
        Motion::LinBreg { tau: self.tau, mu: self.mu, fresh: self.fresh }
    }
}

impl Update for LinBregUpdate {
    #[inline(always)]
    fn advance(self, Block { g, theta, p, m, .. }: Block<'_>, shrink: impl Fn(f32) -> f32 + Copy) {
        if m.is_empty() {
            for ((p, x), g) in p.iter_mut().zip(theta).zip(g.iter()) {
                *p -= self.tau * g;
                *x = shrink(*p);
            }
        } else {
            for (((p, x), m), g) in p.iter_mut().zip(theta).zip(m).zip(g.iter()) {
                *m = self.mu * *m + self.fresh * g;
                *p -= *m;
                *x = shrink(*p);
            }
        }
    }
}
