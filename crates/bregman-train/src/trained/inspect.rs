//! What is in a checkpoint: the account that `bregman inspect` prints.

use std::path::{Path, PathBuf};

use bregman::{Groups, Param, Scope, Sparsity, TensorStats};
use serde::Serialize;

use crate::run::LayerRecord;
use crate::trainer::selection::BestEpoch;
use crate::{Result, Trained};

/// A checkpoint in numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Inspection {
    /// The checkpoint looked at.
    pub checkpoint: PathBuf,
    /// How it was trained.
    pub method: String,
    /// Steps taken.
    pub step: u64,
    /// Epochs completed.
    pub epoch: u64,
    /// Whether its run is over.
    pub finished: bool,
    /// Seconds of training.
    pub seconds: f64,
    /// Speakers told apart.
    pub classes: usize,
    /// All parameters, biases and normalisations included.
    pub parameters: u64,
    /// Those of them that are not zero.
    pub nonzero_parameters: u64,
    /// The sparsity asked for, if any.
    pub target: Option<f64>,
    /// s(θ): share of zeros among the controlled weights.
    pub sparsity: f64,
    /// λ (the mean over loops), where it is controlled.
    pub lambda: Option<f64>,
    /// The share of the weights grown by exchanges of masks that the next exchange kept, where masks are exchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub survived: Option<f64>,
    /// The best epoch so far.
    pub best: Option<BestEpoch>,
    /// Every weight tensor.
    pub layers: Vec<LayerRecord>,
    /// Weight tensors in which every weight is zero.
    pub all_zero: Vec<String>,
}

impl Inspection {
    /// Looks at a run (its best checkpoint, or its last) or a checkpoint.
    ///
    /// # Errors
    /// As [`Trained::load`].
    pub fn of(path: &Path) -> Result<Self> {
        let trained = Trained::load(path)?;
        let (experiment, state) = (trained.experiment(), trained.state());
        let (groups, stats) = trained.count()?;
        let account = Sparsity::new(&groups, &stats);
        let layer = |(param, stats): (&Param, &TensorStats)| LayerRecord {
            name: param.name.clone(),
            shape: param.shape.clone(),
            sparsity: stats.sparsity(),
            nonzero: stats.nonzeros(),
            norm: stats.norm(),
        };
        let weights = groups.params().iter().zip(&stats).filter(|(param, _)| param.role.is_weight());
        let all = account.total(Scope::All);
        Ok(Self {
            checkpoint: trained.checkpoint().path().to_owned(),
            method: experiment.method.title(),
            step: state.step,
            epoch: state.position.epoch,
            finished: state.finished,
            seconds: state.seconds,
            classes: state.classes,
            parameters: all.len,
            nonzero_parameters: all.nonzeros(),
            target: experiment.method.target(),
            sparsity: account.total(Scope::Controlled).sparsity(),
            lambda: state.mean_lambda(),
            survived: state.survival.share(),
            best: state.selection.best,
            all_zero: account.all_zero().into_iter().map(str::to_owned).collect(),
            layers: weights.map(layer).collect(),
        })
    }
}

impl Trained {
    /// s(θ) of its weights: the share of zeros among those that its method controls.
    ///
    /// # Errors
    /// Groups of the recipe that do not fit the network.
    pub fn sparsity(&self) -> Result<f64> {
        let (groups, stats) = self.count()?;
        Ok(Sparsity::new(&groups, &stats).total(Scope::Controlled).sparsity())
    }

    /// Every parameter with its zeros, in the groups of its method.
    fn count(&self) -> Result<(Groups, Vec<TensorStats>)> {
        let params = self.model().params();
        let groups = self.experiment().method.groups(params.described())?;
        Ok((groups, params.all().iter().map(|parameter| TensorStats::of(&parameter.value)).collect()))
    }
}
