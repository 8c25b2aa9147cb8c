//! SGD with (Nesterov) momentum and weight decay: the dense baseline, and under a mask the one that is pruned.
//!
//! ```text
//! g ← g + w·θ
//! m ← μ·m + g
//! θ ← θ − τ·(g + μ·m)           (without Nesterov: θ − τ·m)
//! ```

use serde::{Deserialize, Serialize};

use super::engine::Motion;
use super::pass::{Block, Update};
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

impl Sgd {
    pub(super) fn check(&self) -> Result<()> {
        require((0.0..1.0).contains(&self.momentum), "sgd.momentum", self.momentum, "a number in [0, 1)")?;
        require(
            self.weight_decay >= 0.0 && self.weight_decay.is_finite(),
            "sgd.weight_decay",
            self.weight_decay,
            "a number ≥ 0",
        )
    }

    pub(super) fn at(&self, tau: f64) -> SgdUpdate {
        // θ − τ·(a·g + b·m) covers both forms.
        let (of_g, of_m) = if self.nesterov { (1.0, self.momentum as f32) } else { (0.0, 1.0) };
        SgdUpdate { tau: tau as f32, mu: self.momentum as f32, decay: self.weight_decay as f32, of_g, of_m }
    }
}

#[derive(Clone, Copy)]
pub(super) struct SgdUpdate {
    tau: f32,
    mu: f32,
    decay: f32,
    of_g: f32,
    of_m: f32,
}

impl SgdUpdate {
    pub(super) fn motion(self) -> Motion {
        let Self { tau, mu, decay, of_g, of_m } = self;
        Motion::Sgd { tau, mu, decay, of_g, of_m }
    }
}

impl Update for SgdUpdate {
    #[inline(always)]
    fn advance(self, Block { g, theta, m, .. }: Block<'_>, shrink: impl Fn(f32) -> f32 + Copy) {
        if m.is_empty() {
            for (x, g) in theta.iter_mut().zip(g.iter()) {
                *x = shrink(*x - self.tau * (g + self.decay * *x));
            }
        } else {
            for ((x, m), g) in theta.iter_mut().zip(m).zip(g.iter()) {
                let g = g + self.decay * *x;
                *m = self.mu * *m + g;
                *x = shrink(*x - self.tau * (self.of_g * g + self.of_m * *m));
            }
        }
    }
}
