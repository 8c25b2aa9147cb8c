//! Networks that a run begins with: the one whose weights it starts from, and the teacher whose embeddings it follows.

use std::path::Path;

use bregman_nn::TrainableModel;
use bregman_speaker::Batch;
use bregman_tensor::Precision;

use super::input;
use crate::config::FeaturesBy;
use crate::{Deployable, Device, Error, Experiment, Open, Result};

/// The network of an experiment, with the weights of `init` where there is one, and a classifier unless it follows a
/// teacher alone.
pub(super) fn network<B: Device>(device: B, experiment: &Experiment, speakers: usize) -> Result<TrainableModel<B>> {
    let (architecture, seed) = (experiment.architecture(), experiment.seed);
    let mut model = match (experiment.classes(speakers), experiment.loss.distance) {
        (Some(classes), Some(distance)) => TrainableModel::taught(device, &architecture, classes, distance, seed)?,
        (Some(classes), None) => TrainableModel::new(device, &architecture, Some(classes), seed)?,
        (None, _) => TrainableModel::student(device, &architecture, seed)?,
    };
    if let Some(path) = &experiment.init {
        let from = open("init", path, experiment)?;
        let mut state = model.state()?;
        state.tensors.extend(from.model().state()?.tensors); // a classifier stays as it is
        model.load(&state).map_err(|error| Error::checkpoint(path, error.to_string()))?;
    }
    set_filterbank(experiment, &mut model)?;
    Ok(model)
}

/// The teacher of an experiment, where there is one. It computes in f32, as all embeddings are.
pub(super) fn teacher<B: Device>(
    open_device: &impl Open<B>,
    experiment: &Experiment,
) -> Result<Option<TrainableModel<B>>> {
    let Some(path) = &experiment.teacher else { return Ok(None) };
    let from = open("teacher", path, experiment)?;
    if from.model().outputs() != experiment.architecture().embedding() {
        return Err(Error::Setting {
            field: "model.embedding",
            value: experiment.architecture().embedding().to_string(),
            expected: format!("{}, as the teacher {} has", from.model().outputs(), path.display()),
        });
    }
    let mut teacher = TrainableModel::new(open_device(Some(Precision::F32))?, from.architecture(), None, 0)?;
    teacher.load(&from.model().state()?)?;
    set_filterbank(experiment, &mut teacher)?;
    Ok(Some(teacher))
}

/// Tells the loss of a batch what the teacher makes of it, where there is one.
pub(super) fn follow<B: Device>(
    teacher: &mut Option<TrainableModel<B>>,
    model: &mut TrainableModel<B>,
    batch: &Batch,
) -> Result<()> {
    let Some(teacher) = teacher else { return Ok(()) };
    Ok(model.set_targets(&teacher.embed(input(batch))?)?)
}

/// Opens a network that was trained on the features of this experiment.
fn open(field: &'static str, path: &Path, experiment: &Experiment) -> Result<Deployable> {
    let front_end = if path.is_file() { experiment.front_end } else { None };
    let network = Deployable::open_with(path, front_end)?;
    let (own, other) = (experiment.data.features.fbank(), network.features());
    if own == *other {
        return Ok(network);
    }
    let json = |features| serde_json::to_string(features).unwrap_or_default();
    let expected = format!("a network trained on data.features, {}; this one is for {}", json(&own), json(other));
    Err(Error::Setting { field, value: path.display().to_string(), expected })
}

fn set_filterbank<B: Device>(experiment: &Experiment, model: &mut TrainableModel<B>) -> Result<()> {
    if experiment.data.features_by == FeaturesBy::Device {
        model.set_filterbank(experiment.data.features.tables()?)?;
    }
    Ok(())
}
