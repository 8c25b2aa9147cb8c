//! How the network becomes sparse, or stays dense: one table, `[method]`, whose `kind` says which settings it has.

use bregman::topology::{GradualPruning, OneShotPruning, StaticMask};
use bregman::{
    Budget, ControllerConfig, GroupRule, Groups, INITIAL_SPARSITY, Law, LinBreg, Param, Penalty, Pruning, Ramp,
    RampShape, Role, Rule, Sgd, Structure, Survivors, Topology,
};
use serde::{Deserialize, Serialize};

use super::LrSchedule;
use crate::Result;
use crate::error::require;

/// The method.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum MethodConfig {
    /// A Bregman optimizer (or ProxSGD) whose λ is steered to a target sparsity.
    Adaptive(AdaptiveConfig),
    /// The same with a λ that stays: the non-adaptive baseline.
    Fixed(FixedConfig),
    /// No sparsity.
    Dense(DenseConfig),
    /// Magnitude pruning along a ramp of epochs.
    Gradual(GradualConfig),
    /// Magnitude pruning once.
    OneShot(OneShotConfig),
    /// A random mask from the start, which stays.
    Static(StaticConfig),
}

/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `target` | – | the sparsity asked for |
/// | `optimizer` | `{ kind = "linbreg" }` | or `adabreg`, `prox_sgd`; `variant`: correction or rescaling |
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
    #[serde(default = "linbreg")]
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
    #[serde(default = "initial_sparsity")]
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

/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `lambda` | 0.01 LinBreg, 1 AdaBreg | λ |
/// | `target` | none | the sparsity it is meant to reach: for the display, and which epochs may be the best |
/// | others | | as in [`AdaptiveConfig`] |
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FixedConfig {
    /// λ.
    #[serde(default)]
    pub lambda: Option<f64>,
    /// The sparsity it is meant to reach.
    #[serde(default)]
    pub target: Option<f64>,
    /// The optimizer.
    #[serde(default = "linbreg")]
    pub optimizer: Rule,
    /// Penalty on convolutions.
    #[serde(default)]
    pub penalty: Penalty,
    /// Share of zeros at the start.
    #[serde(default = "initial_sparsity")]
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

/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `optimizer` | `{ kind = "sgd" }` | or `adamw` |
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DenseConfig {
    /// The optimizer.
    #[serde(default = "sgd")]
    pub optimizer: Rule,
}

/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `target` | – | final sparsity |
/// | `optimizer` | `{ kind = "sgd" }` | or `adamw` |
/// | `epochs` | 10 | epochs until the target: s_i = 1 − (1 − s*)^(i / epochs) |
/// | `structure` | weights | or `channels`: whole output channels |
/// | `layers` | none | `None` compares all layers together; a budget gives each its own share |
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GradualConfig {
    /// Final sparsity.
    pub target: f64,
    /// The optimizer.
    #[serde(default = "sgd")]
    pub optimizer: Rule,
    /// Epochs until the target.
    #[serde(default = "ten")]
    pub epochs: u64,
    /// What is masked together.
    #[serde(default)]
    pub structure: Structure,
    /// Shares of the layers.
    #[serde(default)]
    pub layers: Option<Budget>,
}

/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `target` | – | sparsity |
/// | `at` | 0 | pruned before this epoch, counted from 0: at initialisation |
/// | others | | as in [`GradualConfig`] |
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneShotConfig {
    /// Sparsity.
    pub target: f64,
    /// The optimizer.
    #[serde(default = "sgd")]
    pub optimizer: Rule,
    /// The epoch before which it happens, from 0.
    #[serde(default)]
    pub at: u64,
    /// What is masked together.
    #[serde(default)]
    pub structure: Structure,
    /// Shares of the layers.
    #[serde(default)]
    pub layers: Option<Budget>,
}

/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `target` | – | sparsity |
/// | `optimizer` | `{ kind = "sgd" }` | or `adamw` |
/// | `structure` | weights | or `channels`: whole output channels |
/// | `layers` | `{ sharing = "uniform" }` | shares of the layers; `erk` spares small ones |
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticConfig {
    /// Sparsity.
    pub target: f64,
    /// The optimizer.
    #[serde(default = "sgd")]
    pub optimizer: Rule,
    /// What is masked together.
    #[serde(default)]
    pub structure: Structure,
    /// Shares of the layers.
    #[serde(default)]
    pub layers: Budget,
}

fn linbreg() -> Rule {
    Rule::LinBreg(LinBreg::default())
}

fn sgd() -> Rule {
    Rule::Sgd(Sgd::default())
}

fn ten() -> u64 {
    10
}

fn initial_sparsity() -> f64 {
    INITIAL_SPARSITY
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

impl MethodConfig {
    /// The optimizer.
    pub fn rule(&self) -> Rule {
        match self {
            Self::Adaptive(config) => config.optimizer,
            Self::Fixed(config) => config.optimizer,
            Self::Dense(config) => config.optimizer,
            Self::Gradual(config) => config.optimizer,
            Self::OneShot(config) => config.optimizer,
            Self::Static(config) => config.optimizer,
        }
    }

    /// The sparsity asked for.
    pub fn target(&self) -> Option<f64> {
        match self {
            Self::Adaptive(config) => Some(config.target),
            Self::Fixed(config) => config.target,
            Self::Dense(_) => None,
            Self::Gradual(config) => Some(config.target),
            Self::OneShot(config) => Some(config.target),
            Self::Static(config) => Some(config.target),
        }
    }

    /// Which weights are masked and when, where the method has masks.
    pub(crate) fn topology(&self, seed: u64) -> Result<Option<Topology>> {
        let topology = match self {
            Self::Adaptive(_) | Self::Fixed(_) | Self::Dense(_) => return Ok(None),
            Self::Gradual(GradualConfig { target, epochs, structure, layers, .. }) => {
                let ramp = Ramp { shape: RampShape::Exponential, from: 0.0, begin: 0, end: *epochs };
                let pruning = Pruning { structure: *structure, layers: layers.clone() };
                Topology::new(GradualPruning { target: *target, ramp }, pruning, seed)
            }
            Self::OneShot(OneShotConfig { target, at, structure, layers, .. }) => {
                let pruning = Pruning { structure: *structure, layers: layers.clone() };
                Topology::new(OneShotPruning { target: *target, epoch: *at }, pruning, seed)
            }
            Self::Static(StaticConfig { target, structure, layers, .. }) => {
                let pruning = Pruning { structure: *structure, layers: Some(layers.clone()) };
                Topology::new(StaticMask { target: *target }, pruning, seed)
            }
        };
        Ok(Some(topology?))
    }

    /// How the learning rate moves unless the recipe says otherwise.
    pub fn default_schedule(&self) -> LrSchedule {
        match self {
            Self::Adaptive(_) | Self::Fixed(_) => LrSchedule::plateau(),
            Self::Dense(_) | Self::Gradual(_) | Self::OneShot(_) | Self::Static(_) => LrSchedule::exponential(),
        }
    }

    /// A few words for tables and bars: "AdaBreg → 95 %".
    pub fn title(&self) -> String {
        let percent = |target: f64| format!("{} %", (target * 1e4).round() / 1e2);
        let rule = self.rule().name();
        match self {
            Self::Adaptive(config) => format!("{rule} → {}", percent(config.target)),
            Self::Fixed(config) => {
                let lambda = config.lambda.or(self.rule().default_lambda()).unwrap_or_default();
                format!("{rule}, λ = {lambda}")
            }
            Self::Dense(_) => format!("dense {rule}"),
            Self::Gradual(config) => format!("gradual pruning → {}", percent(config.target)),
            Self::OneShot(config) => format!("one-shot pruning → {}", percent(config.target)),
            Self::Static(config) => format!("static mask, {}", percent(config.target)),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        if let Some(target) = self.target() {
            require(target > 0.0 && target < 1.0, "method.target", target, "a share in (0, 1), such as 0.95")?;
        }
        let dense = self.rule().is_dense();
        let wants_dense = !matches!(self, Self::Adaptive(_) | Self::Fixed(_));
        let expected = if wants_dense {
            "sgd or adamw with this kind of method"
        } else {
            "linbreg, adabreg or prox_sgd with this kind of method"
        };
        require(dense == wants_dense, "method.optimizer.kind", self.rule().name(), expected)?;
        match self {
            Self::Gradual(config) => require(config.epochs >= 1, "method.epochs", config.epochs, "1 or more"),
            Self::Adaptive(config) => {
                require(config.period != Period::Steps(0), "method.period", 0, "\"auto\" or 1 or more steps")
            }
            _ => Ok(()),
        }
    }
}

/// How a network starts sparse: which penalty and how many zeros each layer has.
pub(crate) struct SparseStart<'a> {
    groups: &'a [GroupRule],
    /// What holds for every layer that no rule of `groups` names.
    general: GroupRule,
    pub(crate) survivors: Survivors,
}

impl FixedConfig {
    pub(crate) fn start(&self) -> SparseStart<'_> {
        let Self { groups, penalty, initial_sparsity, initial_inputs, survivors, .. } = self;
        SparseStart::new(groups, *penalty, *initial_sparsity, *initial_inputs, *survivors)
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

impl MethodConfig {
    /// The parameters in the groups of this method.
    pub(crate) fn groups(&self, params: Vec<Param>) -> Result<Groups> {
        match self {
            Self::Adaptive(config) => config.start().groups(params),
            Self::Fixed(config) => config.start().groups(params),
            Self::Dense(_) | Self::Gradual(_) | Self::OneShot(_) | Self::Static(_) => {
                Ok(Groups::resolve(params, vec![GroupRule::dense()])?)
            }
        }
    }
}

impl<'a> SparseStart<'a> {
    fn new(groups: &'a [GroupRule], penalty: Penalty, sparsity: f64, inputs: f64, survivors: Survivors) -> Self {
        let (initial_sparsity, initial_inputs) = (Some(sparsity), Some(inputs));
        let general = GroupRule { penalty, initial_sparsity, initial_inputs, ..GroupRule::default() };
        Self { groups, general, survivors }
    }

    /// The parameters in groups: by the rules of a recipe first, then by what it says of all.
    pub(crate) fn groups(&self, params: Vec<Param>) -> Result<Groups> {
        let general = &self.general;
        let start = |rule: &GroupRule| GroupRule {
            initial_sparsity: rule.initial_sparsity.or(general.initial_sparsity),
            initial_inputs: rule.initial_inputs.or(general.initial_inputs),
            ..rule.clone()
        };
        let convolutions = GroupRule { roles: vec![Role::ConvWeight], ..general.clone() };
        let others = GroupRule { penalty: Penalty::L1, ..general.clone() };
        Ok(Groups::resolve_over(params, self.groups.iter().map(start).collect(), vec![convolutions, others])?)
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

    #[test]
    fn rules_of_a_recipe_inherit_its_sparse_start() {
        let params = vec![
            Param::new("conv.weight", [8, 20, 3], Role::ConvWeight),
            Param::new("linear.weight", [8, 40], Role::LinearWeight),
            Param::new("head.weight", [8, 20], Role::Classifier),
        ];
        let heavier = GroupRule { lambda_scale: 2.0, ..GroupRule::for_roles([Role::Classifier]) };
        let general = GroupRule { penalty: Penalty::GroupKernel, initial_inputs: Some(10.0), ..GroupRule::default() };
        let start = SparseStart { groups: &[heavier], general, survivors: Survivors::default() };
        let groups = start.groups(params).unwrap();
        assert_eq!([0, 1, 2].map(|tensor| groups.initial_sparsity(tensor)), [0.5, 0.75, 0.5]);
        assert_eq!(
            [0, 1, 2].map(|tensor| groups.rule(tensor).penalty),
            [Penalty::GroupKernel, Penalty::L1, Penalty::L1]
        );
        assert_eq!(groups.rule(2).lambda_scale, 2.0);
    }
}
