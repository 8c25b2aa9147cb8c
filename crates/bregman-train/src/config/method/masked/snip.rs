//! SNIP.

use bregman::topology::Snip;
use bregman::{Budget, Pruning, Rule, Topology};
use serde::{Deserialize, Serialize};

use super::super::dense;
use super::{Masked, MaskedRun};

/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `target` | – | sparsity |
/// | `optimizer` | `{ kind = "sgd" }` | or `adamw` |
/// | `rounds` | 100 | rounds of pruning before the first step, each on its own batch; 1 is the first SNIP |
/// | `layers` | none | `None` compares all layers together; a budget gives each its own share |
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnipConfig {
    /// Sparsity.
    pub target: f64,
    /// The optimizer.
    #[serde(default = "dense::sgd")]
    pub optimizer: Rule,
    /// Rounds of pruning.
    #[serde(default = "hundred")]
    pub rounds: u64,
    /// Shares of the layers.
    #[serde(default)]
    pub layers: Option<Budget>,
}

fn hundred() -> u64 {
    100
}

impl Masked for SnipConfig {
    fn title(&self) -> &'static str {
        "SNIP,"
    }

    fn target(&self) -> f64 {
        self.target
    }

    fn rule(&self) -> Rule {
        self.optimizer
    }

    fn topology(&self, run: MaskedRun) -> bregman::Result<Topology> {
        let pruning = Pruning { layers: self.layers.clone(), ..Pruning::default() };
        Topology::new(Snip { target: self.target, rounds: self.rounds }, pruning, run.seed)
    }
}
