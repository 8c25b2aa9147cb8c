//! PyTorch checkpoints: a zip archive of one pickle (`data.pkl`) and the raw values of every storage (`data/0`,
//! `data/1` …).

use std::collections::HashMap;

use super::pickle::{self, TensorRef, Value};
use super::{Array, Checkpoint, Values, zip};

type Result<T> = std::result::Result<T, String>;

/// Reads a saved `state_dict`.
pub(super) fn parse(bytes: &[u8]) -> Result<Checkpoint> {
    let members = zip::members(bytes)?;
    let (program, place) =
        members.iter().find(|(name, _)| name.ends_with("/data.pkl")).ok_or("no data.pkl: not a PyTorch file")?;
    let folder = program.trim_end_matches("data.pkl").to_owned();
    let files: HashMap<&str, &[u8]> =
        members.iter().map(|(name, place)| (name.as_str(), &bytes[place.clone()])).collect();
    if files.get(format!("{folder}byteorder").as_str()).is_some_and(|&order| order != b"little") {
        return Err("values are big-endian, which is not supported".to_owned());
    }
    let Value::Dict(items) = pickle::load(&bytes[place.clone()])? else {
        return Err("not a state_dict: save `model.state_dict()`".to_owned());
    };
    let tensors = items.into_iter().map(|item| match item {
        (Value::Text(name), Value::Tensor(tensor)) => {
            let storage = files.get(format!("{folder}data/{}", tensor.key).as_str());
            let storage = storage.ok_or_else(|| format!("tensor {name}: its storage {} is missing", tensor.key))?;
            let array = read(&tensor, storage).map_err(|problem| format!("tensor {name}: {problem}"))?;
            Ok((name, array))
        }
        (Value::Text(name), _) => Err(format!("entry {name} is not a tensor: save `model.state_dict()` only")),
        _ => Err("a key of the state_dict is not text".to_owned()),
    });
    Ok(Checkpoint { tensors: tensors.collect::<Result<_>>()? })
}

/// Copies a strided view out of its storage.
fn read(tensor: &TensorRef, storage: &[u8]) -> Result<Array> {
    let TensorRef { format, offset, shape, strides, .. } = tensor;
    let outside = || "reaches outside of its storage".to_owned();
    let stored = storage.len() / format.size();
    let count = shape
        .iter()
        .try_fold(1usize, |count, &size| count.checked_mul(size))
        .filter(|&count| count <= stored)
        .ok_or_else(outside)?;
    let reach = shape
        .iter()
        .zip(strides)
        .try_fold(*offset, |reach, (&size, stride)| reach.checked_add(size.checked_sub(1)?.checked_mul(*stride)?));
    if count > 0 && reach.is_none_or(|reach| reach >= stored) {
        return Err(outside());
    }
    let index = |flat: usize| {
        let (at, _) = shape
            .iter()
            .zip(strides)
            .rev()
            .fold((*offset, flat), |(at, rest), (&size, stride)| (at + rest % size * stride, rest / size));
        at
    };
    let values = match format.decode(storage) {
        Values::F32(values) => Values::F32((0..count).map(|i| values[index(i)]).collect()),
        Values::I64(values) => Values::I64((0..count).map(|i| values[index(i)]).collect()),
    };
    Ok(Array { shape: shape.clone(), values })
}

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::*;

    #[test]
    fn strided_views_are_copied_and_bad_ones_refused() {
        let storage: Vec<u8> = (0..6).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let view = |offset, shape: &[usize], strides: &[usize]| {
            let tensor = TensorRef {
                format: Format::F32,
                key: "0".to_owned(),
                offset,
                shape: shape.to_vec(),
                strides: strides.to_vec(),
            };
            read(&tensor, &storage)
        };
        assert_eq!(view(0, &[3, 2], &[1, 3]).unwrap().values, Values::F32(vec![0.0, 3.0, 1.0, 4.0, 2.0, 5.0]));
        assert_eq!(view(5, &[], &[]).unwrap().values, Values::F32(vec![5.0]));
        for bad in [view(1, &[6], &[1]), view(0, &[2, 3], &[usize::MAX, 1]), view(0, &[7], &[0]), view(9, &[1], &[1])] {
            assert!(bad.unwrap_err().contains("outside"));
        }
    }
}
