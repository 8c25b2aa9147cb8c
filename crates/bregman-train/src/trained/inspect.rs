//! What is in a checkpoint: the account that `bregman inspect` prints.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::run::log::LayerRecord;
use crate::trainer::selection::Best;
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
    pub live: u64,
    /// The sparsity asked for, if any.
    pub target: Option<f64>,
    /// Share of zeros among the weights.
    pub sparsity: f64,
    /// λ (the mean over loops), where one is steered.
    pub lambda: Option<f64>,
    /// The best epoch so far.
    pub best: Option<Best>,
    /// Every weight tensor.
    pub layers: Vec<LayerRecord>,
    /// Weight tensors without a live weight.
    pub dead: Vec<String>,
}

impl Inspection {
    /// Looks at a run (its best checkpoint, or its last) or a checkpoint.
    ///
    /// # Errors
    /// As [`Trained::load`].
    pub fn of(path: &Path) -> Result<Self> {
        let trained = Trained::load(path)?;
        let (experiment, state) = (trained.experiment(), trained.state());
        let params = trained.model().params();
        let live = |values: &[f32]| values.iter().filter(|&&value| value != 0.0).count() as u64;
        let norm = |values: &[f32]| values.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt();
        let layer = |(param, parameter): (bregman::Param, &bregman_nn::Parameter<bregman_tensor::Cpu>)| {
            let live = live(&parameter.value);
            LayerRecord {
                sparsity: 1.0 - live as f64 / param.len() as f64,
                live,
                norm: norm(&parameter.value),
                name: param.name,
                shape: param.shape,
            }
        };
        let described = params.described().into_iter().zip(params.all());
        let layers: Vec<LayerRecord> = described.filter(|(param, _)| param.role.is_weight()).map(layer).collect();
        let weights: u64 = layers.iter().map(LayerRecord::len).sum();
        let living: u64 = layers.iter().map(|layer| layer.live).sum();
        Ok(Self {
            checkpoint: trained.folder().to_owned(),
            method: experiment.method.title(),
            step: state.step,
            epoch: state.position.epoch,
            finished: state.finished,
            seconds: state.seconds,
            classes: state.classes,
            parameters: params.all().iter().map(|parameter| parameter.param.len() as u64).sum(),
            live: params.all().iter().map(|parameter| live(&parameter.value)).sum(),
            target: experiment.method.target(),
            sparsity: 1.0 - living as f64 / weights.max(1) as f64,
            lambda: state.mean_lambda(),
            best: state.selection.best,
            dead: layers.iter().filter(|layer| layer.live == 0).map(|layer| layer.name.clone()).collect(),
            layers,
        })
    }
}
