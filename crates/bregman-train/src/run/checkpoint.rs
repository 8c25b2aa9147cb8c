//! Saving and restoring a checkpoint: a folder from which a run continues to the same bits, see [`CheckpointFolder`].

use std::collections::HashMap;
use std::path::Path;

use bregman::optimizer::TensorState;
use bregman::{OptimizerState, Param};
use bregman_base::files::{read_bytes, replace_folder, write_unsynced};
use bregman_nn::{Checkpoint, TrainableModel};
use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, TensorView};

use super::{CheckpointFolder, RunState, format};
use crate::method::{GrownWeights, Method};
use crate::{Device, Error, Experiment, Result};

/// The largest file of arrays that is read: four for each of 2²⁸ weights, and a classifier of as many.
pub(crate) const MOST_BYTES: u64 = 1 << 33;

/// Writes the checkpoint `to`, replacing the one there as a whole.
pub(crate) fn save<B: Device>(
    to: &CheckpointFolder,
    model: &TrainableModel<B>,
    (params, arrays, grown): (&[Param], &[TensorState], &GrownWeights),
    state: &RunState,
    experiment: &Experiment,
) -> Result<()> {
    replace(to, |new| {
        write_model(&new.model(), &model.state()?)?;
        write_optimizer(&new.optimizer(), params, arrays, grown)?;
        write_unsynced(&new.state_file(), format::to_json(state))?; // the folder is synced as a whole
        Ok(write_unsynced(&new.config(), format::to_toml(experiment))?)
    })
}

/// Makes the checkpoint `to` equal to `from`; files are immutable, so links will do where the disk has them.
pub(crate) fn copy(from: &CheckpointFolder, to: &CheckpointFolder) -> Result<()> {
    replace(to, |new| {
        link(&from.model(), &new.model())?;
        link(&from.optimizer(), &new.optimizer())?;
        link(&from.state_file(), &new.state_file())?;
        link(&from.config(), &new.config())
    })
}

/// The checkpoint `from` with another model: one to evaluate, not to continue.
pub(crate) fn copy_with_model(from: &CheckpointFolder, to: &CheckpointFolder, model: &Checkpoint) -> Result<()> {
    replace(to, |new| {
        write_model(&new.model(), model)?;
        link(&from.state_file(), &new.state_file())?;
        link(&from.config(), &new.config())
    })
}

fn replace(checkpoint: &CheckpointFolder, fill: impl FnOnce(&CheckpointFolder) -> Result<()>) -> Result<()> {
    replace_folder(checkpoint.path(), |new| fill(&CheckpointFolder::new(new)))
}

#[expect(clippy::disallowed_methods, reason = "into a folder that is synced and renamed as a whole")]
fn link(from: &Path, to: &Path) -> Result<()> {
    if std::fs::hard_link(from, to).is_err() {
        std::fs::copy(from, to).map_err(Error::io(to))?;
    }
    Ok(())
}

/// Writes weights as a file of a run.
pub(crate) fn write_model(file: &Path, weights: &Checkpoint) -> Result<()> {
    Ok(weights.write_with(file, format::metadata())?)
}

/// Continues `model` and `method` from a checkpoint.
pub(crate) fn restore<B: Device>(
    from: &CheckpointFolder,
    model: &mut TrainableModel<B>,
    method: &mut Method<B>,
) -> Result<RunState> {
    let state = from.state()?;
    let file = from.model();
    model.load(&Checkpoint::read(&file)?).map_err(|error| Error::checkpoint(&file, error.to_string()))?;
    let file = from.optimizer();
    let (tensors, grown) = read_optimizer(&file, &method.names())?;
    let optimizer = OptimizerState { step: state.step, lambda: state.lambda.clone(), tensors };
    method
        .restore(optimizer, state.loops.clone(), grown, model)
        .map_err(|error| Error::checkpoint(&file, error.to_string()))?;
    Ok(state)
}

fn write_optimizer(path: &Path, params: &[Param], arrays: &[TensorState], grown: &GrownWeights) -> Result<()> {
    let mut bytes: Vec<(String, Dtype, Vec<u8>)> = Vec::new();
    for (tensor, (param, state)) in params.iter().zip(arrays).enumerate() {
        for (array, values) in state.arrays().into_iter().filter(|(_, values)| !values.is_empty()) {
            let values = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            bytes.push((format!("{}.{array}", param.name), Dtype::F32, values));
        }
        if !state.mask.is_empty() {
            bytes.push((
                format!("{}.mask", param.name),
                Dtype::BOOL,
                state.mask.iter().map(|&kept| u8::from(kept)).collect(),
            ));
        }
        if !grown.of(tensor).is_empty() {
            let places = grown.of(tensor).iter().flat_map(|place| place.to_le_bytes()).collect();
            bytes.push((format!("{}.grown", param.name), Dtype::U32, places));
        }
    }
    let views = bytes.iter().map(|(name, format, bytes)| {
        let length = bytes.len() * 8 / format.bitsize();
        (name, TensorView::new(*format, vec![length], bytes).expect("the length is that of the bytes"))
    });
    #[expect(clippy::disallowed_methods, reason = "into a folder that is synced and renamed as a whole")]
    safetensors::serialize_to_file(views, Some(format::metadata()), path).map_err(|error| match error {
        SafeTensorError::IoError(source) => Error::io(path)(source),
        other => Error::checkpoint(path, other.to_string()),
    })
}

fn read_optimizer(path: &Path, names: &[String]) -> Result<(Vec<TensorState>, GrownWeights)> {
    let bytes = read_bytes(path, MOST_BYTES)?;
    let wrong = |error: SafeTensorError| Error::checkpoint(path, error.to_string());
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(wrong)?;
    format::check(format::of_metadata(header.metadata()), &path.display().to_string())?;
    let file = SafeTensors::deserialize(&bytes).map_err(wrong)?;
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
    let mut grown = GrownWeights(vec![vec![]; names.len()]);
    for ((name, tensor), grown) in names.iter().zip(&mut tensors).zip(&mut grown.0) {
        if let Some(view) = views.remove(&format!("{name}.mask")) {
            tensor.mask = view.data().iter().map(|&kept| kept != 0).collect();
        }
        if let Some(view) = views.remove(&format!("{name}.grown")) {
            *grown = view.data().as_chunks::<4>().0.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect();
        }
    }
    match views.keys().next() {
        Some(extra) => Err(Error::checkpoint(
            path,
            format!("has {extra}, which this network lacks: is it of another network or size?"),
        )),
        None => Ok((tensors, grown)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn a_full_disk_leaves_no_half_checkpoint_and_says_how_to_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let full = |new: &CheckpointFolder| Err(Error::io(new.path())(ErrorKind::StorageFull.into()));
        let error = replace(&CheckpointFolder::new(dir.path().join("last")), full).unwrap_err();
        assert!(error.hint().unwrap().contains("--resume"));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
