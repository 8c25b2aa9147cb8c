//! A λ that stays. It leads to some sparsity, which is known at the end: there is no target.

use bregman::{GroupRule, InitialMask, MaskUnit, Penalty, Rule, Survivors};
use serde::{Deserialize, Serialize};

use super::start::{self, SparseStart};

/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `lambda` | 0.01 LinBreg, 1 AdaBreg | λ |
/// | others | | as in [`AdaptiveConfig`](super::AdaptiveConfig) |
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FixedConfig {
    /// λ.
    #[serde(default)]
    pub lambda: Option<f64>,
    /// The optimizer.
    #[serde(default = "start::linbreg")]
    pub optimizer: Rule,
    /// Penalty on convolutions.
    #[serde(default)]
    pub penalty: Penalty,
    /// Share of zeros at the start.
    #[serde(default = "start::initial_sparsity")]
    pub initial_sparsity: f64,
    /// Non-zero inputs of every output at the start, at least.
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

impl FixedConfig {
    pub(crate) fn start(&self) -> SparseStart<'_> {
        let Self { groups, penalty, initial_sparsity, initial_inputs, initial_mask, survivors, .. } = self;
        let mask = InitialMask { unit: *initial_mask, survivors: *survivors };
        SparseStart::new(groups, *penalty, *initial_sparsity, *initial_inputs, mask)
    }
}
