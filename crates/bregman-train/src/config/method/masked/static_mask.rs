//! A random mask that stays.

use bregman::topology::StaticMask;
use bregman::{Budget, Pruning, Rule, Structure, Topology};
use serde::{Deserialize, Serialize};

use super::super::dense;
use super::{Masked, MaskedRun};

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
    #[serde(default = "dense::sgd")]
    pub optimizer: Rule,
    /// What is masked together.
    #[serde(default)]
    pub structure: Structure,
    /// Shares of the layers.
    #[serde(default)]
    pub layers: Budget,
}

impl Masked for StaticConfig {
    fn title(&self) -> &'static str {
        "static mask,"
    }

    fn target(&self) -> f64 {
        self.target
    }

    fn rule(&self) -> Rule {
        self.optimizer
    }

    fn topology(&self, run: MaskedRun) -> bregman::Result<Topology> {
        let pruning = Pruning { structure: self.structure, layers: Some(self.layers.clone()) };
        Topology::new(StaticMask { target: self.target }, pruning, run.seed)
    }
}
