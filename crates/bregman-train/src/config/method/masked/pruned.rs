//! Masks on the smallest weights, step by step or at once.

use bregman::topology::{GradualPruning, OneShotPruning};
use bregman::{Budget, Pruning, Ramp, RampShape, Rule, Structure, Topology};
use serde::{Deserialize, Serialize};

use super::super::dense;
use super::{Masked, MaskedRun};

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

impl Masked for GradualConfig {
    fn title(&self) -> &'static str {
        "gradual pruning →"
    }

    fn target(&self) -> f64 {
        self.target
    }

    fn rule(&self) -> Rule {
        self.optimizer
    }

    fn topology(&self, run: MaskedRun) -> bregman::Result<Topology> {
        let ramp = Ramp { shape: self.shape, from: 0.0, begin: 0, end: self.epochs };
        let pruning = Pruning { structure: self.structure, layers: self.layers.clone() };
        Topology::new(GradualPruning { target: self.target, ramp }, pruning, run.seed)
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

impl Masked for OneShotConfig {
    fn title(&self) -> &'static str {
        "one-shot pruning →"
    }

    fn target(&self) -> f64 {
        self.target
    }

    fn rule(&self) -> Rule {
        self.optimizer
    }

    fn topology(&self, run: MaskedRun) -> bregman::Result<Topology> {
        let pruning = Pruning { structure: self.structure, layers: self.layers.clone() };
        Topology::new(OneShotPruning { target: self.target, epoch: self.at }, pruning, run.seed)
    }
}
