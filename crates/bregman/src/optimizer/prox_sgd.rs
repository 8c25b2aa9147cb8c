//! Proximal SGD, the contrast to LinBreg: θ ← prox_{τλR}(θ − τ·g).
//!
//! It thresholds the weights themselves, so a weight that is dead forgets what the gradients said of it.

use serde::{Deserialize, Serialize};

use super::engine::Motion;
use super::pass::{Block, Update};

/// Proximal SGD has no settings of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxSgd {}

impl ProxSgd {
    pub(super) fn at(self, tau: f64) -> ProxSgdUpdate {
        ProxSgdUpdate(tau as f32)
    }
}

#[derive(Clone, Copy)]
pub(super) struct ProxSgdUpdate(f32);

impl ProxSgdUpdate {
    pub(super) fn motion(self) -> Motion {
        Motion::Sgd { tau: self.0, mu: 0.0, decay: 0.0, of_g: 1.0, of_m: 0.0 }
    }
}

impl Update for ProxSgdUpdate {
    #[inline(always)]
    fn advance(self, Block { g, theta, .. }: Block<'_>, shrink: impl Fn(f32) -> f32 + Copy) {
        for (x, g) in theta.iter_mut().zip(g.iter()) {
            *x = shrink(*x - self.0 * g);
        }
    }
}
