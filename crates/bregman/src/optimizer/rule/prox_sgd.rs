//! Proximal SGD, the contrast to LinBreg: θ ← prox_{τλR}(θ − τ·g).
//!
//! It thresholds the weights themselves, so a weight that is 0 forgets what the gradients said about it.

use serde::{Deserialize, Serialize};

use super::update::{Moments, UpdateRule};
use super::{SgdCoefficients, Update};
use crate::error::Result;

/// Proximal SGD has no settings of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxSgd {}

impl UpdateRule for ProxSgd {
    fn name(&self) -> &'static str {
        "ProxSGD"
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// SGD's update without momentum and weight decay.
    fn update(&self, _: u64, tau: f64) -> Update {
        Update::Sgd(SgdCoefficients { tau: tau as f32, mu: 0.0, decay: 0.0, of_g: 1.0, of_m: 0.0 })
    }

    fn moments(&self) -> Moments {
        Moments::Neither
    }

    fn default_lambda(&self) -> Option<f64> {
        Some(0.01)
    }

    fn default_lr(&self) -> f64 {
        0.1
    }
}
