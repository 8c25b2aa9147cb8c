//! The choice of an optimizer, and what follows from it.

use serde::{Deserialize, Serialize};

use super::adabreg::AdaBreg;
use super::adamw::AdamW;
use super::engine::Motion;
use super::linbreg::LinBreg;
use super::prox_sgd::ProxSgd;
use super::sgd::Sgd;
use crate::error::Result;

/// Which optimizer, with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Rule {
    /// Linearised Bregman iterations.
    #[serde(rename = "linbreg")]
    LinBreg(LinBreg),
    /// Adam on the dual.
    #[serde(rename = "adabreg")]
    AdaBreg(AdaBreg),
    /// Proximal SGD.
    ProxSgd(ProxSgd),
    /// SGD with momentum: dense, or pruned under masks.
    Sgd(Sgd),
    /// AdamW: dense, or pruned under masks.
    #[serde(rename = "adamw")]
    AdamW(AdamW),
}

/// The paper's appendix on what else may happen when λ moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// Nothing: p is kept, the next prox uses the new λ. The paper's method.
    #[default]
    Plain,
    /// p ← C(p, θ, λ, λ̃) after every change of λ, so that p stays a subgradient at θ.
    SubgradientCorrection,
    /// Where λ falls, p of the living weights falls with it, so that their θ stays; the rest as in `Plain`. Without
    /// this, θ of every living weight grows by all that λ loses, which ruins a run that began with a λ₀ far too
    /// large.
    Steady,
    /// θ = prox_{βR}(p)/β with β = λ: Nesterov's dual averaging, which scales the whole elastic net.
    ProxRescaling,
}

impl Rule {
    /// The numbers of step `step` (counted from 1) with learning rate `tau`.
    pub(super) fn motion(&self, step: u64, tau: f64) -> Motion {
        match self {
            Rule::LinBreg(rule) => rule.at(tau).motion(),
            Rule::AdaBreg(rule) => rule.at(step, tau).motion(),
            Rule::ProxSgd(rule) => rule.at(tau).motion(),
            Rule::Sgd(rule) => rule.at(tau).motion(),
            Rule::AdamW(rule) => rule.at(step, tau).motion(),
        }
    }

    /// Name for messages and tables.
    pub fn name(&self) -> &'static str {
        match self {
            Rule::LinBreg(_) => "LinBreg",
            Rule::AdaBreg(_) => "AdaBreg",
            Rule::ProxSgd(_) => "ProxSGD",
            Rule::Sgd(_) => "SGD",
            Rule::AdamW(_) => "AdamW",
        }
    }

    /// The λ₀ the paper starts from with this optimizer; `None` for the dense ones.
    pub fn default_lambda(&self) -> Option<f64> {
        match self {
            Rule::LinBreg(_) | Rule::ProxSgd(_) => Some(0.01),
            Rule::AdaBreg(_) => Some(1.0),
            Rule::Sgd(_) | Rule::AdamW(_) => None,
        }
    }

    /// The learning rate METHOD.md gives for this optimizer.
    pub fn default_lr(&self) -> f64 {
        match self {
            Rule::LinBreg(_) | Rule::ProxSgd(_) | Rule::Sgd(_) => 0.1,
            Rule::AdaBreg(_) => 0.01,
            Rule::AdamW(_) => 1e-3,
        }
    }

    /// δ and the variant, for the optimizers that keep a dual.
    pub fn mirror(&self) -> Option<(f64, Variant)> {
        match self {
            Rule::LinBreg(rule) => Some((rule.delta, rule.variant)),
            Rule::AdaBreg(rule) => Some((rule.delta, rule.variant)),
            Rule::ProxSgd(_) | Rule::Sgd(_) | Rule::AdamW(_) => None,
        }
    }

    /// Whether penalties mean nothing to it.
    pub(super) fn is_dense(&self) -> bool {
        matches!(self, Rule::Sgd(_) | Rule::AdamW(_))
    }

    /// Which of the moments m and v it keeps.
    pub(super) fn moments(&self) -> (bool, bool) {
        match self {
            Rule::LinBreg(rule) => (rule.momentum > 0.0, false),
            Rule::Sgd(rule) => (rule.momentum > 0.0, false),
            Rule::AdaBreg(_) | Rule::AdamW(_) => (true, true),
            Rule::ProxSgd(_) => (false, false),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        match self {
            Rule::LinBreg(rule) => rule.check(),
            Rule::AdaBreg(rule) => rule.check(),
            Rule::ProxSgd(_) => Ok(()),
            Rule::Sgd(rule) => rule.check(),
            Rule::AdamW(rule) => rule.check(),
        }
    }
}
