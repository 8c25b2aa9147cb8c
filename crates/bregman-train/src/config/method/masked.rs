//! Masks: the smallest weights, step by step or at once, or weights drawn at random.

use bregman::topology::{GradualPruning, OneShotPruning, StaticMask};
use bregman::{Budget, Pruning, Ramp, RampShape, Rule, Structure, Topology};
use serde::{Deserialize, Serialize};

use super::dense;
use crate::Result;

/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `target` | – | final sparsity |
/// | `optimizer` | `{ kind = "sgd" }` | or `adamw` |
/// | `epochs` | 10 | epochs until the target |
/// | `shape` | exponential: s_i = 1 − (1 − s*)^(i / epochs), the paper's | or `linear`, `cubic` (Zhu and Gupta, 2017) |
/// | `structure` | weights | or `channels`: whole output channels |
/// | `layers` | none | `None` compares all layers together; a budget gives each its own share |
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GradualConfig {
    /// Final sparsity.
    pub target: f64,
    /// The optimizer.
    #[serde(default = "dense::sgd")]
    pub optimizer: Rule,
    /// Epochs until the target.
    #[serde(default = "ten")]
    pub epochs: u64,
    /// The way there.
    #[serde(default = "exponential")]
    pub shape: RampShape,
    /// What is masked together.
    #[serde(default)]
    pub structure: Structure,
    /// Shares of the layers.
    #[serde(default)]
    pub layers: Option<Budget>,
}

fn ten() -> u64 {
    10
}

fn exponential() -> RampShape {
    RampShape::Exponential
}

impl GradualConfig {
    pub(super) fn topology(&self, seed: u64) -> Result<Topology> {
        let ramp = Ramp { shape: self.shape, from: 0.0, begin: 0, end: self.epochs };
        let pruning = Pruning { structure: self.structure, layers: self.layers.clone() };
        Ok(Topology::new(GradualPruning { target: self.target, ramp }, pruning, seed)?)
    }
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
    #[serde(default = "dense::sgd")]
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

impl OneShotConfig {
    pub(super) fn topology(&self, seed: u64) -> Result<Topology> {
        let pruning = Pruning { structure: self.structure, layers: self.layers.clone() };
        Ok(Topology::new(OneShotPruning { target: self.target, epoch: self.at }, pruning, seed)?)
    }
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
    #[serde(default = "dense::sgd")]
    pub optimizer: Rule,
    /// What is masked together.
    #[serde(default)]
    pub structure: Structure,
    /// Shares of the layers.
    #[serde(default)]
    pub layers: Budget,
}

impl StaticConfig {
    pub(super) fn topology(&self, seed: u64) -> Result<Topology> {
        let pruning = Pruning { structure: self.structure, layers: Some(self.layers.clone()) };
        Ok(Topology::new(StaticMask { target: self.target }, pruning, seed)?)
    }
}
