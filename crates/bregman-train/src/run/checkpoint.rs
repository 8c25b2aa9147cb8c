//! A checkpoint: a folder from which a run continues to the same bits.
//!
//! ```text
//! model.safetensors      weights and batch-norm statistics, names of WeSpeaker's state_dict
//! optimizer.safetensors  NAME.p, NAME.m, NAME.v (f32), NAME.mask (bool): what the optimizer keeps
//! state.json             step, position, λ, controller, learning rate, best epoch, sums of the epoch, log lengths
//! config.toml            the resolved experiment
//! ```

use std::collections::HashMap;
use std::path::Path;

use bregman::controller::LoopState;
use bregman::optimizer::TensorState;
use bregman::{OptimizerState, Param};
use bregman_nn::{Checkpoint, Model};
use bregman_speaker::BatchPosition;
use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};

use crate::method::Method;
use crate::run::folder;
use crate::trainer::schedule::LearningRate;
use crate::trainer::selection::Selection;
use crate::{Device, Error, Experiment, Result};

/// File names in a checkpoint.
pub(crate) const MODEL: &str = "model.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
pub(crate) const STATE: &str = "state.json";
pub(crate) const CONFIG: &str = "config.toml";

/// Where a run stands, apart from its arrays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Steps taken.
    pub step: u64,
    /// The next batch.
    pub position: BatchPosition,
    /// Speakers told apart.
    pub classes: usize,
    /// λ of every tensor.
    pub lambda: Vec<f64>,
    /// Control loops.
    pub loops: Vec<LoopState>,
    /// Learning rate.
    pub lr: LearningRate,
    /// Best epoch.
    pub selection: Selection,
    /// Sums over the epoch so far.
    pub sums: Sums,
    /// s(θ).
    pub sparsity: f64,
    /// Bytes of `metrics.jsonl` and of the event file at this point.
    pub logged: [u64; 2],
    /// Whether the run is over.
    pub finished: bool,
    /// Seconds of training so far.
    pub seconds: f64,
}

impl State {
    /// λ, the mean over control loops; `None` where nothing is steered.
    pub fn mean_lambda(&self) -> Option<f64> {
        let loops = self.loops.len();
        (loops > 0).then(|| self.loops.iter().map(|state| state.lambda).sum::<f64>() / loops as f64)
    }
}

/// Sums over the steps of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Sums {
    /// Σ loss·cuts.
    pub loss: f64,
    /// Cuts whose speaker scored best.
    pub correct: u64,
    /// Cuts.
    pub cuts: u64,
}

impl Sums {
    pub(crate) fn add(&mut self, outcome: bregman_nn::Outcome, cuts: usize) {
        self.loss += f64::from(outcome.loss) * cuts as f64;
        self.correct += outcome.correct as u64;
        self.cuts += cuts as u64;
    }

    /// Mean loss and accuracy.
    pub(crate) fn means(&self) -> (f64, f64) {
        let cuts = self.cuts.max(1) as f64;
        (self.loss / cuts, self.correct as f64 / cuts)
    }
}

/// Writes the checkpoint `path`, replacing the one there as a whole.
pub(crate) fn save<B: Device>(
    path: &Path,
    model: &Model<B>,
    method: &Method<B>,
    state: &State,
    experiment: &Experiment,
) -> Result<()> {
    let arrays = method.arrays()?;
    folder::replace(path, |folder| {
        model.state()?.write(&folder.join(MODEL))?;
        let optimizer = folder.join(OPTIMIZER);
        write_optimizer(&optimizer, method.optimizer().groups().params(), &arrays).map_err(|error| match error {
            SafeTensorError::IoError(source) => Error::io(&optimizer)(source),
            other => Error::checkpoint(&optimizer, other.to_string()),
        })?;
        let file = folder.join(STATE);
        let text = serde_json::to_string_pretty(state).map_err(|error| Error::checkpoint(&file, error.to_string()))?;
        std::fs::write(&file, text).map_err(Error::io(&file))?;
        let file = folder.join(CONFIG);
        std::fs::write(&file, experiment.to_toml()).map_err(Error::io(&file))
    })
}

/// Makes the checkpoint `to` equal to `from`; files are immutable, so links will do where the disk has them.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    folder::replace(to, |folder| link(from, folder, &[MODEL, OPTIMIZER, STATE, CONFIG]))
}

/// The checkpoint `from` with another model: one to evaluate, not to continue.
pub(crate) fn copy_with_model(from: &Path, to: &Path, model: &Checkpoint) -> Result<()> {
    folder::replace(to, |folder| {
        model.write(&folder.join(MODEL))?;
        link(from, folder, &[STATE, CONFIG])
    })
}

fn link(from: &Path, to: &Path, names: &[&str]) -> Result<()> {
    for name in names {
        let (from, to) = (from.join(name), to.join(name));
        if std::fs::hard_link(&from, &to).is_err() {
            std::fs::copy(&from, &to).map_err(Error::io(&to))?;
        }
    }
    Ok(())
}

/// The state of a checkpoint.
pub(crate) fn read_state(folder: &Path) -> Result<State> {
    let file = folder.join(STATE);
    let text = std::fs::read_to_string(&file).map_err(Error::io(&file))?;
    serde_json::from_str(&text).map_err(|error| Error::checkpoint(&file, error.to_string()))
}

/// The experiment of a checkpoint or run folder.
pub(crate) fn read_experiment(folder: &Path) -> Result<Experiment> {
    let file = folder.join(CONFIG);
    let text = std::fs::read_to_string(&file).map_err(Error::io(&file))?;
    Experiment::parse(&text, &file.display().to_string(), &[] as &[&str])
}

/// Continues `model` and `method` from a checkpoint.
pub(crate) fn restore<B: Device>(folder: &Path, model: &mut Model<B>, method: &mut Method<B>) -> Result<State> {
    let state = read_state(folder)?;
    let file = folder.join(MODEL);
    model.load(&Checkpoint::read(&file)?).map_err(|error| Error::checkpoint(&file, error.to_string()))?;
    let file = folder.join(OPTIMIZER);
    let names: Vec<String> = method.optimizer().groups().params().iter().map(|param| param.name.clone()).collect();
    let tensors = read_optimizer(&file, &names)?;
    let optimizer = OptimizerState { step: state.step, lambda: state.lambda.clone(), tensors };
    method
        .restore(optimizer, state.loops.clone(), model)
        .map_err(|error| Error::checkpoint(&file, error.to_string()))?;
    Ok(state)
}

fn write_optimizer(path: &Path, params: &[Param], arrays: &[TensorState]) -> std::result::Result<(), SafeTensorError> {
    let mut bytes: Vec<(String, Dtype, Vec<u8>)> = Vec::new();
    for (param, state) in params.iter().zip(arrays) {
        for (array, values) in state.arrays().into_iter().filter(|(_, values)| !values.is_empty()) {
            let values = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            bytes.push((format!("{}.{array}", param.name), Dtype::F32, values));
        }
        if !state.mask.is_empty() {
            bytes.push((
                format!("{}.mask", param.name),
                Dtype::BOOL,
                state.mask.iter().map(|&lives| u8::from(lives)).collect(),
            ));
        }
    }
    let views = bytes.iter().map(|(name, format, bytes)| {
        let length = bytes.len() * 8 / format.bitsize();
        TensorView::new(*format, vec![length], bytes).map(|view| (name, view))
    });
    safetensors::serialize_to_file(views.collect::<std::result::Result<Vec<_>, _>>()?, None, path)
}

fn read_optimizer(path: &Path, names: &[String]) -> Result<Vec<TensorState>> {
    let bytes = std::fs::read(path).map_err(Error::io(path))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|error| Error::checkpoint(path, error.to_string()))?;
    let mut views: HashMap<String, TensorView> = file.tensors().into_iter().collect();
    let mut floats = |name: &str, array: &str| -> Vec<f32> {
        let view = views.remove(&format!("{name}.{array}"));
        view.map(|view| view.data().as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect())
            .unwrap_or_default()
    };
    let mut tensors: Vec<TensorState> = names
        .iter()
        .map(|name| TensorState { p: floats(name, "p"), m: floats(name, "m"), v: floats(name, "v"), mask: Vec::new() })
        .collect();
    for (name, tensor) in names.iter().zip(&mut tensors) {
        if let Some(view) = views.remove(&format!("{name}.mask")) {
            tensor.mask = view.data().iter().map(|&lives| lives != 0).collect();
        }
    }
    match views.keys().next() {
        Some(extra) => Err(Error::checkpoint(
            path,
            format!("has {extra}, which this network lacks: is it of another network or size?"),
        )),
        None => Ok(tensors),
    }
}
