//! AC/DC.

use bregman::topology::{AcDc, Phases};
use bregman::{Budget, Pruning, Rule, Topology};
use serde::{Deserialize, Serialize};

use super::super::dense;
use super::{Masked, MaskedRun};

/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `target` | – | sparsity of the sparse phases and of the end |
/// | `optimizer` | `{ kind = "sgd" }` | or `adamw` |
/// | `dense_epochs` | a tenth of the run, as published | dense epochs at the start |
/// | `phase_epochs` | a twentieth of the run | epochs of each sparse or dense phase after that |
/// | `last_epochs` | three twentieths of the run | sparse epochs at the end |
/// | `layers` | none | `None` compares all layers together; a budget gives each its own share |
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcDcConfig {
    /// Sparsity.
    pub target: f64,
    /// The optimizer.
    #[serde(default = "dense::sgd")]
    pub optimizer: Rule,
    /// Dense epochs at the start.
    #[serde(default)]
    pub dense_epochs: Option<u64>,
    /// Epochs of a phase.
    #[serde(default)]
    pub phase_epochs: Option<u64>,
    /// Sparse epochs at the end.
    #[serde(default)]
    pub last_epochs: Option<u64>,
    /// Shares of the layers.
    #[serde(default)]
    pub layers: Option<Budget>,
}

impl Masked for AcDcConfig {
    fn title(&self) -> &'static str {
        "AC/DC,"
    }

    fn target(&self) -> f64 {
        self.target
    }

    fn rule(&self) -> Rule {
        self.optimizer
    }

    fn topology(&self, run: MaskedRun) -> bregman::Result<Topology> {
        let published = Phases::published(run.epochs);
        let phases = Phases {
            epochs: run.epochs,
            dense_epochs: self.dense_epochs.unwrap_or(published.dense_epochs),
            phase_epochs: self.phase_epochs.unwrap_or(published.phase_epochs),
            last_epochs: self.last_epochs.unwrap_or(published.last_epochs),
        };
        let pruning = Pruning { layers: self.layers.clone(), ..Pruning::default() };
        Topology::new(AcDc { target: self.target, phases }, pruning, run.seed)
    }
}
