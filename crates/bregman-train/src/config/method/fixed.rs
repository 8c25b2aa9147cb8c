//! A λ that stays.

use bregman::{GroupRule, Penalty, Rule, Survivors};
use serde::{Deserialize, Serialize};

use super::start::{self, SparseStart};

/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `lambda` | 0.01 LinBreg, 1 AdaBreg | λ |
/// | `target` | none | the sparsity it is meant to reach: for the display, and which epochs may be the best |
/// | others | | as in [`AdaptiveConfig`](super::AdaptiveConfig) |
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
    #[serde(default = "start::linbreg")]
    pub optimizer: Rule,
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

impl FixedConfig {
    pub(crate) fn start(&self) -> SparseStart<'_> {
        let Self { groups, penalty, initial_sparsity, initial_inputs, survivors, .. } = self;
        SparseStart::new(groups, *penalty, *initial_sparsity, *initial_inputs, *survivors)
    }
}
