//! A λ that is steered to a target sparsity.

use bregman::{Budget, ControllerConfig, GroupRule, InitialMask, Law, MaskUnit, Penalty, Ramp, Rule, Survivors};
use serde::{Deserialize, Serialize};

use super::start::{self, SparseStart};

/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `target` | – | the sparsity asked for |
/// | `optimizer` | `{ kind = "linbreg" }` | or `adabreg`, `prox_sgd`; `variant`: what λ does to the duals |
/// | `law` | `{ kind = "quantile" }` | or `multiplicative`, the paper's, or `density` |
/// | `lambda` | 0.01 LinBreg, 1 AdaBreg; some narrow networks less, see [`AdaptiveConfig::first_lambda`] | λ₀ |
/// | `period` | "auto": total steps / 150, at most 50 | f, steps between updates of λ |
/// | `warmup` | 0 | steps during which λ is held |
/// | `ramp` | none | movement of the target, in steps |
/// | `layers` | none | one loop per layer, targets from this budget |
/// | `penalty` | ℓ1 | on convolutions; linear layers have ℓ1 |
/// | `initial_sparsity` | 0.99 | share of zeros at the start |
/// | `initial_inputs` | 1; 10 in narrow networks | but this many non-zero inputs of every output |
/// | `initial_mask` | element | single weights or whole groups are zero at the start |
/// | `groups` | none | rules for some layers, before `penalty` and the sparse start |
/// | `survivors` | keep | weights that survive the initial mask |
/// | `freeze` | 1 | m: every m-th step and an epoch's last are full, else only weights that are not zero move |
/// | `freeze_after` | 0.5 | the share of the run before that, in which all steps are full |
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdaptiveConfig {
    /// s*.
    pub target: f64,
    /// The optimizer.
    #[serde(default = "start::linbreg")]
    pub optimizer: Rule,
    /// The control law.
    #[serde(default)]
    pub law: Law,
    /// λ₀.
    #[serde(default)]
    pub lambda: Option<f64>,
    /// f.
    #[serde(default)]
    pub period: Period,
    /// Steps during which λ is held.
    #[serde(default)]
    pub warmup: u64,
    /// Movement of the target.
    #[serde(default)]
    pub ramp: Option<Ramp>,
    /// One loop per layer.
    #[serde(default)]
    pub layers: Option<Budget>,
    /// Penalty on convolutions.
    #[serde(default)]
    pub penalty: Penalty,
    /// Share of zeros at the start.
    #[serde(default = "start::initial_sparsity")]
    pub initial_sparsity: f64,
    /// Non-zero inputs of every output at the start, at least; a recipe that does not say gets what its network needs.
    #[serde(default)]
    pub initial_inputs: Option<f64>,
    /// What the initial mask draws.
    #[serde(default)]
    pub initial_mask: MaskUnit,
    /// Rules for some layers.
    #[serde(default)]
    pub groups: Vec<GroupRule>,
    /// What happens to weights that survive the initial mask.
    #[serde(default)]
    pub survivors: Survivors,
    /// m: every m-th step is full, in the others only weights that are not zero move.
    #[serde(default = "start::freeze")]
    pub freeze: u64,
    /// The share of the run before that: all steps are full.
    #[serde(default = "start::freeze_after")]
    pub freeze_after: f64,
}

/// Steps between updates, of λ or of masks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Period {
    /// As many as the run's length asks for: a short run needs as many updates as a long one. Of λ, total steps / 150,
    /// between 1 and the paper's 50.
    #[default]
    #[serde(with = "auto")]
    Auto,
    /// This many.
    Steps(u64),
}

mod auto {
    use serde::de::{Deserialize as _, Error as _};

    pub(super) fn serialize<S: serde::Serializer>(serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("auto")
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
        let word = String::deserialize(deserializer)?;
        if word == "auto" { Ok(()) } else { Err(D::Error::custom("expected \"auto\" or a number of steps")) }
    }
}

impl Period {
    /// f, between updates of λ in a run of this many steps.
    pub fn steps(self, total: u64) -> u64 {
        self.or((total / 150).clamp(1, 50))
    }

    /// What is asked for, or else what somebody works out.
    pub(super) fn or(self, automatic: u64) -> u64 {
        match self {
            Self::Auto => automatic,
            Self::Steps(steps) => steps,
        }
    }
}

/// How long a run is and how wide its network: what its λ₀ depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunLength {
    /// Steps of the whole run.
    pub steps: u64,
    /// Learning rate at its start.
    pub lr: f64,
    /// Whether the network is much narrower than the published one.
    pub narrow: bool,
}

impl AdaptiveConfig {
    pub(crate) fn start(&self) -> SparseStart<'_> {
        let Self { groups, penalty, initial_sparsity, initial_inputs, initial_mask, survivors, .. } = self;
        let mask = InitialMask { unit: *initial_mask, survivors: *survivors };
        SparseStart::new(groups, *penalty, *initial_sparsity, *initial_inputs, mask)
    }

    /// λ₀ for a run of this length.
    ///
    /// AdaBreg moves a dual by about lr per step, whatever the gradient, so lr · steps is the longest way it can go.
    /// The paper's λ₀ = 1 is a thousandth of that in its 10⁵ steps, but most of it in a run of a few hundred: every
    /// dual then lies just beside ±λ, a change of λ by a few percent switches all of a narrow network on or off, and
    /// the multiplicative law swings for ever. So its λ₀ in a narrow network is at most lr · steps / 500. The quantile
    /// law needs no such care, and a λ₀ that the duals reach before its first update would let weights on too early.
    pub fn first_lambda(&self, length: &RunLength) -> Option<f64> {
        let short = |lambda: f64| match self.optimizer {
            Rule::AdaBreg(_) if length.narrow && !self.law.needs_duals() => {
                lambda.min(length.lr * length.steps as f64 / 500.0)
            }
            _ => lambda,
        };
        self.lambda.or_else(|| self.optimizer.default_lambda().map(short))
    }

    /// The controller of a run of this length.
    pub(crate) fn controller(&self, length: &RunLength) -> ControllerConfig {
        ControllerConfig {
            target: self.target,
            law: self.law,
            lambda: self.first_lambda(length),
            period: self.period.steps(length.steps),
            warmup: self.warmup,
            ramp: self.ramp,
            layers: self.layers.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_lambda_is_the_papers_unless_the_duals_of_a_narrow_network_cannot_reach_it() {
        let config = |text: &str| toml::from_str::<AdaptiveConfig>(&format!("target = 0.9\n{text}")).unwrap();
        let run = |steps, narrow| RunLength { steps, lr: 0.01, narrow };
        let adabreg = config("optimizer = { kind = \"adabreg\" }\nlaw = { kind = \"multiplicative\" }");
        assert_eq!(adabreg.first_lambda(&run(100_000, true)), Some(1.0));
        assert_eq!(adabreg.first_lambda(&run(1000, true)), Some(0.02));
        assert_eq!(adabreg.first_lambda(&run(1000, false)), Some(1.0));
        let quantile = config("optimizer = { kind = \"adabreg\" }");
        assert_eq!(quantile.first_lambda(&run(1000, true)), Some(1.0), "it finds its λ from any");
        assert_eq!(config("").first_lambda(&run(10, true)), Some(0.01), "LinBreg's duals follow the gradient");
        let asked = config("lambda = 3\noptimizer = { kind = \"adabreg\" }");
        assert_eq!(asked.first_lambda(&run(10, true)), Some(3.0), "what is asked for is done");
    }
}
