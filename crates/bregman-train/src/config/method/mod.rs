//! How the network becomes sparse, or stays dense: one table, `[method]`, whose `kind` says which settings it has.

mod adaptive;
mod dense;
mod fixed;
mod learnt;
mod masked;
mod start;

use bregman::{Freeze, GroupRule, Groups, Param, Rule, Topology};
use serde::{Deserialize, Serialize};

pub use adaptive::{AdaptiveConfig, Period, RunLength};
pub use dense::DenseConfig;
pub use fixed::FixedConfig;
pub use learnt::StrConfig;
use masked::Masked;
pub(crate) use masked::MaskedRun;
pub use masked::{
    AcDcConfig, GraNetConfig, GradualConfig, MestConfig, OneShotConfig, RigLConfig, SetConfig, SnipConfig, StaticConfig,
};
pub(crate) use start::SparseStart;

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
    /// STR: every layer learns its threshold.
    Str(StrConfig),
    /// Magnitude pruning along a ramp of epochs.
    Gradual(GradualConfig),
    /// Magnitude pruning once.
    OneShot(OneShotConfig),
    /// A random mask from the start, which stays.
    Static(StaticConfig),
    /// SNIP: a mask by connection sensitivity from the start, which stays.
    Snip(SnipConfig),
    /// SET: a random mask whose smallest weights are exchanged for random ones.
    Set(SetConfig),
    /// RigL: the same, for those where the loss is steepest.
    #[serde(rename = "rigl")]
    RigL(RigLConfig),
    /// GraNet: gradual pruning with RigL's regrowth.
    #[serde(rename = "granet")]
    GraNet(GraNetConfig),
    /// MEST: a random mask whose least important weights are exchanged for random ones.
    Mest(MestConfig),
    /// AC/DC: sparse and dense in turns.
    #[serde(rename = "acdc")]
    AcDc(AcDcConfig),
}

/// What kinds of method differ in, but for their settings.
enum Family<'a> {
    Adaptive(&'a AdaptiveConfig),
    Fixed(&'a FixedConfig),
    Dense(&'a DenseConfig),
    Str(&'a StrConfig),
    Masked(&'a dyn Masked),
}

impl MethodConfig {
    fn family(&self) -> Family<'_> {
        match self {
            Self::Adaptive(config) => Family::Adaptive(config),
            Self::Fixed(config) => Family::Fixed(config),
            Self::Dense(config) => Family::Dense(config),
            Self::Str(config) => Family::Str(config),
            Self::Gradual(config) => Family::Masked(config),
            Self::OneShot(config) => Family::Masked(config),
            Self::Static(config) => Family::Masked(config),
            Self::Snip(config) => Family::Masked(config),
            Self::Set(config) => Family::Masked(config),
            Self::RigL(config) => Family::Masked(config),
            Self::GraNet(config) => Family::Masked(config),
            Self::Mest(config) => Family::Masked(config),
            Self::AcDc(config) => Family::Masked(config),
        }
    }

    /// The optimizer.
    pub fn rule(&self) -> Rule {
        match self.family() {
            Family::Adaptive(config) => config.optimizer,
            Family::Fixed(config) => config.optimizer,
            Family::Dense(config) => config.optimizer,
            Family::Str(config) => config.optimizer,
            Family::Masked(config) => config.rule(),
        }
    }

    /// The sparsity asked for.
    pub fn target(&self) -> Option<f64> {
        match self.family() {
            Family::Adaptive(config) => Some(config.target),
            Family::Str(config) => config.target,
            Family::Fixed(_) | Family::Dense(_) => None,
            Family::Masked(config) => Some(config.target()),
        }
    }

    /// The parameters in the groups of this method.
    pub(crate) fn groups(&self, params: Vec<Param>) -> Result<Groups> {
        match self.family() {
            Family::Adaptive(config) => config.start().groups(params),
            Family::Fixed(config) => config.start().groups(params),
            Family::Str(_) => Ok(Groups::resolve(params, vec![])?),
            Family::Dense(_) | Family::Masked(_) => Ok(Groups::resolve(params, vec![GroupRule::dense()])?),
        }
    }

    /// Which weights are masked and when, where the method has masks.
    pub(crate) fn topology(&self, run: MaskedRun) -> Result<Option<Topology>> {
        match self.family() {
            Family::Adaptive(_) | Family::Fixed(_) | Family::Dense(_) | Family::Str(_) => Ok(None),
            Family::Masked(config) => config.topology_of_recipe(run).map(Some),
        }
    }

    /// Which steps of a run of so many steps in so many epochs are full.
    pub(crate) fn freeze(&self, total: u64, epochs: u64) -> Freeze {
        match self {
            Self::Adaptive(AdaptiveConfig { freeze, freeze_after, .. })
            | Self::Fixed(FixedConfig { freeze, freeze_after, .. }) => {
                let after = (freeze_after * total as f64).round() as u64;
                Freeze { every: *freeze, after, epoch: total / epochs.max(1) }
            }
            _ => Freeze::default(),
        }
    }

    /// Batches whose mean gradient decides a round of masks before the first step, for a corpus of so many speakers and
    /// batches of so many cuts.
    pub(crate) fn batches_per_round(&self, classes: usize, batch: usize) -> u64 {
        match self {
            Self::Snip(config) => config.batches(classes, batch),
            _ => 1,
        }
    }

    /// A few words for tables and bars: "AdaBreg → 95 %".
    pub fn title(&self) -> String {
        let percent = |target: f64| format!("{} %", (target * 1e4).round() / 1e2);
        let rule = self.rule().name();
        match self.family() {
            Family::Adaptive(config) => format!("{rule} → {}", percent(config.target)),
            Family::Fixed(config) => {
                let lambda = config.lambda.or(self.rule().default_lambda()).unwrap_or_default();
                format!("{rule}, λ = {lambda}")
            }
            Family::Dense(_) => format!("dense {rule}"),
            Family::Str(config) => match config.target {
                Some(target) => format!("STR → {}", percent(target)),
                None => "STR".to_owned(),
            },
            Family::Masked(config) => format!("{} {}", config.title(), percent(config.target())),
        }
    }

    pub(super) fn check(&self, epochs: u64) -> Result<()> {
        if let Some(target) = self.target() {
            require(target > 0.0 && target < 1.0, "method.target", target, "a share in (0, 1), such as 0.95")?;
        }
        if let Self::Adaptive(AdaptiveConfig { freeze, freeze_after, .. })
        | Self::Fixed(FixedConfig { freeze, freeze_after, .. }) = self
        {
            require(*freeze >= 1, "method.freeze", freeze, "a whole number ≥ 1; 1 makes every step full")?;
            require((0.0..=1.0).contains(freeze_after), "method.freeze_after", freeze_after, "a share in [0, 1]")?;
        }
        let (dense, learnt) = (self.rule().is_dense(), matches!(self.rule(), Rule::Str(_)));
        let wants_dense = !matches!(self, Self::Adaptive(_) | Self::Fixed(_));
        let expected = if wants_dense {
            "sgd or adamw with this kind of method"
        } else {
            "linbreg, adabreg or prox_sgd with this kind of method"
        };
        let right = dense == wants_dense && !learnt; // STR is a kind of its own
        require(right, "method.optimizer.kind", self.rule().name(), expected)?;
        if let Self::Gradual(config) = self {
            require(config.epochs >= 1, "method.epochs", config.epochs, "1 or more")?;
        }
        if let Self::Snip(config) = self {
            config.check()?;
        }
        match self.family() {
            Family::Adaptive(config) => {
                require(config.period != Period::Steps(0), "method.period", 0, "\"auto\" or 1 or more steps")
            }
            Family::Fixed(_) | Family::Dense(_) => Ok(()),
            Family::Str(config) => config.check(),
            // of any length: what is wrong with the settings themselves shows before the corpus is read
            Family::Masked(config) => config.topology_of_recipe(MaskedRun { seed: 0, steps: 1, epochs }).map(drop),
        }
    }
}
