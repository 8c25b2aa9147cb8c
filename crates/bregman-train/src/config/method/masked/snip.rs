//! SNIP.

use bregman::topology::Snip;
use bregman::{Budget, Pruning, Rule, Topology};
use serde::{Deserialize, Serialize};

use super::super::dense;
use super::{Masked, MaskedRun};
use crate::Result;
use crate::error::require;

/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `target` | – | sparsity |
/// | `optimizer` | `{ kind = "sgd" }` | or `adamw` |
/// | `rounds` | 100 | rounds of pruning before the first step; 1 is the first SNIP |
/// | `batches` | three cuts of every speaker | batches whose mean gradient decides a round |
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
    /// Batches of a round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batches: Option<u64>,
    /// Shares of the layers.
    #[serde(default)]
    pub layers: Option<Budget>,
}

fn hundred() -> u64 {
    100
}

/// Cuts of every speaker that a round sees, on average: a few, as the gradient of the classifier needs. De Jorge et al.
/// average over 1, 10, 20 and 40 batches on 10, 100, 200 and 1000 classes.
const CUTS_PER_CLASS: usize = 3;
/// More than any corpus needs.
const MOST_BATCHES: u64 = 10_000;

impl SnipConfig {
    /// Batches of a round, for a corpus of so many speakers and batches of so many cuts.
    pub(crate) fn batches(&self, classes: usize, batch: usize) -> u64 {
        self.batches.unwrap_or((CUTS_PER_CLASS * classes).div_ceil(batch.max(1)).max(1) as u64)
    }

    pub(in super::super) fn check(&self) -> Result<()> {
        let (batches, expected) = (self.batches.unwrap_or(1), format!("1 to {MOST_BATCHES}"));
        require((1..=MOST_BATCHES).contains(&batches), "method.batches", batches, expected)
    }
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
