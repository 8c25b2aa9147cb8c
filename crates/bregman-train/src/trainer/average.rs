//! The average of the best epochs: weights of several checkpoints, element by element.
//!
//! The mean of sparse networks is non-zero wherever one of them is, so the smallest weights are set to zero again until
//! it has as many zeros as the sparsest of them: an average never costs sparsity.

use std::path::Path;

use bregman::{Param, Pruning, TensorStats};
use bregman_nn::{Checkpoint, Values};

use crate::Result;

/// The mean of the models in these files, with at least the sparsity of each in the tensors that `weights` describes.
pub(crate) fn average(files: &[impl AsRef<Path>], weights: &[Param]) -> Result<Checkpoint> {
    let models = files.iter().map(|file| Ok(Checkpoint::read(file.as_ref())?)).collect::<Result<Vec<_>>>()?;
    let zeros = |model: &Checkpoint| {
        let stats = |param: &Param| floats(model, &param.name).map(TensorStats::of);
        weights.iter().filter_map(stats).map(|stats| stats.zeros).sum::<u64>()
    };
    let most = models.iter().map(zeros).max().unwrap_or(0);
    let mut mean = models[0].clone();
    for (name, array) in &mut mean.tensors {
        if let Values::F32(values) = &mut array.values {
            for (index, value) in values.iter_mut().enumerate() {
                let sum: f64 =
                    models.iter().filter_map(|model| floats(model, name)).map(|values| f64::from(values[index])).sum();
                *value = (sum / models.len() as f64) as f32;
            }
        }
    }
    let total: usize = weights.iter().map(Param::len).sum();
    let layers: Vec<_> = weights.iter().filter_map(|param| Some((param, floats(&mean, &param.name)?))).collect();
    let masks = Pruning::default().masks(&layers, most as f64 / total.max(1) as f64)?;
    for (param, mask) in weights.iter().zip(masks) {
        if let Some(Values::F32(values)) = mean.tensors.get_mut(&param.name).map(|array| &mut array.values) {
            values.iter_mut().zip(mask).filter(|(_, kept)| !kept).for_each(|(value, _)| *value = 0.0);
        }
    }
    Ok(mean)
}

fn floats<'a>(model: &'a Checkpoint, name: &str) -> Option<&'a [f32]> {
    match &model.tensors.get(name)?.values {
        Values::F32(values) => Some(values),
        Values::I64(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bregman::Role;
    use bregman_nn::Array;

    #[test]
    fn an_average_is_the_mean_with_the_sparsity_of_the_sparsest() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, w: [f32; 4], b: f32| {
            let array = |values: Vec<f32>| Array { shape: vec![values.len()], values: Values::F32(values) };
            let tensors = [("w".to_owned(), array(w.to_vec())), ("b".to_owned(), array(vec![b]))].into();
            let path = dir.path().join(name);
            Checkpoint { tensors }.write(&path).unwrap();
            path
        };
        let files = [write("a", [4.0, 0.0, 2.0, 0.0], 1.0), write("b", [2.0, 1.0, 0.0, 0.0], 3.0)];
        let mean = average(&files, &[Param::new("w", [2, 2], Role::LinearWeight)]).unwrap();
        // means 3, ½, 1, 0: two of the four were zero in each, so two remain zero
        assert_eq!(floats(&mean, "w").unwrap(), [3.0, 0.0, 1.0, 0.0]);
        assert_eq!(floats(&mean, "b").unwrap(), [2.0]);
    }
}
