//! A λ that is steered to a target sparsity.

use bregman::{Budget, ControllerConfig, GroupRule, Law, Penalty, Ramp, Rule, Survivors};
use serde::{Deserialize, Serialize};

use super::start::{self, SparseStart};

/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `target` | – | the sparsity asked for |
/// | `optimizer` | `{ kind = "start::linbreg" }` | or `adabreg`, `prox_sgd`; `variant`: correction or rescaling |
/// | `law` | `{ kind = "multiplicative" }`, the paper's | or `density`, `quantile` |
/// | `lambda` | 0.01 LinBreg, 1 AdaBreg (less in short runs: [`AdaptiveConfig::first_lambda`]) | λ₀ |
/// | `period` | "auto": total steps / 150, at most 50 | f, steps between updates of λ |
/// | `warmup` | 0 | steps during which λ is held |
/// | `ramp` | none | movement of the target, in steps |
/// | `layers` | none | one loop per layer, targets from this budget |
/// | `penalty` | ℓ1 | on convolutions; linear layers have ℓ1 |
/// | `initial_sparsity` | 0.99 | share of zeros at the start |
/// | `initial_inputs` | 0 | but this many live inputs of every output: 10 in narrow networks, as many as 1 % of 1024 |
/// | `groups` | none | rules for some layers, before `penalty` and the sparse start |
/// | `survivors` | keep | weights that survive the initial mask |
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
    /// Live inputs of every output at the start, at least.
    #[serde(default)]
    pub initial_inputs: f64,
    /// Rules for some layers.
    #[serde(default)]
    pub groups: Vec<GroupRule>,
    /// What happens to weights that survive the initial mask.
    #[serde(default)]
    pub survivors: Survivors,
}

/// Steps between updates of λ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Period {
    /// Total steps / 150, between 1 and the paper's 50: a short run needs as many updates as a long one.
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
    /// f for a run of this many steps.
    pub fn steps(self, total: u64) -> u64 {
        match self {
            Self::Auto => (total / 150).clamp(1, 50),
            Self::Steps(steps) => steps,
        }
    }
}

impl AdaptiveConfig {
    pub(crate) fn start(&self) -> SparseStart<'_> {
        let Self { groups, penalty, initial_sparsity, initial_inputs, survivors, .. } = self;
        SparseStart::new(groups, *penalty, *initial_sparsity, *initial_inputs, *survivors)
    }

    /// λ₀ for a run of `total` steps with learning rate `lr`.
    ///
    /// AdaBreg moves a dual by about lr per step, whatever the gradient, so lr · total is the longest way it can go.
    /// The paper's λ₀ = 1 is a thousandth of that in its 10⁵ steps, but most of it in a run of a few hundred: every
    /// dual then lies just beside ±λ, a change of λ by a few percent kills or revives the whole network, and the
    /// controller swings for ever. So λ₀ is at most lr · total / 500.
    pub fn first_lambda(&self, total: u64, lr: f64) -> Option<f64> {
        let short = |lambda: f64| match self.optimizer {
            Rule::AdaBreg(_) => lambda.min(lr * total as f64 / 500.0),
            _ => lambda,
        };
        self.lambda.or_else(|| self.optimizer.default_lambda().map(short))
    }

    /// The controller of a run of `total` steps with learning rate `lr`.
    pub(crate) fn controller(&self, total: u64, lr: f64) -> ControllerConfig {
        ControllerConfig {
            target: self.target,
            law: self.law,
            lambda: self.first_lambda(total, lr),
            period: self.period.steps(total),
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
    fn the_first_lambda_of_adabreg_is_the_papers_in_long_runs_and_within_the_reach_of_the_duals_in_short_ones() {
        let config = |text: &str| toml::from_str::<AdaptiveConfig>(&format!("target = 0.9\n{text}")).unwrap();
        let adabreg = config("optimizer = { kind = \"adabreg\" }");
        assert_eq!(adabreg.first_lambda(100_000, 0.01), Some(1.0));
        assert_eq!(adabreg.first_lambda(1000, 0.01), Some(0.02));
        assert_eq!(config("").first_lambda(10, 0.1), Some(0.01), "LinBreg's duals follow the gradient, not the clock");
        assert_eq!(
            config("lambda = 3\noptimizer = { kind = \"adabreg\" }").first_lambda(10, 0.01),
            Some(3.0),
            "what is asked for is done"
        );
    }
}
