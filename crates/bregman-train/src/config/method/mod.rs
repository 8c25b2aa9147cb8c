//! How the network becomes sparse, or stays dense: one table, `[method]`, whose `kind` says which settings it has.

mod adaptive;
mod dense;
mod fixed;
mod masked;
mod start;

use bregman::{Freeze, GroupRule, Groups, Param, Rule, Topology};
use serde::{Deserialize, Serialize};

pub use adaptive::{AdaptiveConfig, Period, RunLength};
pub use dense::DenseConfig;
pub use fixed::FixedConfig;
pub use masked::{GradualConfig, OneShotConfig, StaticConfig};
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
    /// Magnitude pruning along a ramp of epochs.
    Gradual(GradualConfig),
    /// Magnitude pruning once.
    OneShot(OneShotConfig),
    /// A random mask from the start, which stays.
    Static(StaticConfig),
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
            Self::Fixed(_) | Self::Dense(_) => None,
            Self::Gradual(config) => Some(config.target),
            Self::OneShot(config) => Some(config.target),
            Self::Static(config) => Some(config.target),
        }
    }

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

    /// Which weights are masked and when, where the method has masks.
    pub(crate) fn topology(&self, seed: u64) -> Result<Option<Topology>> {
        match self {
            Self::Adaptive(_) | Self::Fixed(_) | Self::Dense(_) => Ok(None),
            Self::Gradual(config) => config.topology(seed).map(Some),
            Self::OneShot(config) => config.topology(seed).map(Some),
            Self::Static(config) => config.topology(seed).map(Some),
        }
    }

    /// Which steps of a run of this length are full.
    pub(crate) fn freeze(&self, total: u64) -> Freeze {
        match self {
            Self::Adaptive(AdaptiveConfig { freeze, freeze_after, .. })
            | Self::Fixed(FixedConfig { freeze, freeze_after, .. }) => {
                Freeze { every: *freeze, after: (freeze_after * total as f64).round() as u64 }
            }
            _ => Freeze::default(),
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
        if let Self::Adaptive(AdaptiveConfig { freeze, freeze_after, .. })
        | Self::Fixed(FixedConfig { freeze, freeze_after, .. }) = self
        {
            require(*freeze >= 1, "method.freeze", freeze, "a whole number ≥ 1; 1 makes every step full")?;
            require((0.0..=1.0).contains(freeze_after), "method.freeze_after", freeze_after, "a share in [0, 1]")?;
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
