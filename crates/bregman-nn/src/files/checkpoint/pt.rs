//! PyTorch checkpoints: a zip archive of one pickle (`data.pkl`) and the raw values of every storage (`data/0`,
//! `data/1` …).

use std::collections::HashMap;

use super::pickle::{self, TensorRef, Value};
use super::{Array, Checkpoint, Values, check_shape, zip};

type Result<T> = std::result::Result<T, String>;

/// Tensors may share their values, but not so that a file becomes more than so many times its size.
const MOST_USES: usize = 8;

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
    let items = state_dict(pickle::load(&bytes[place.clone()])?)?;
    let mut left = MOST_USES * bytes.len();
    let tensors = items.into_iter().map(|item| match item {
        (Value::Text(name), Value::Tensor(tensor)) => {
            let storage = files.get(format!("{folder}data/{}", tensor.key).as_str());
            let storage = storage.ok_or_else(|| format!("tensor {name}: its storage {} is missing", tensor.key))?;
            let array = read(&tensor, storage, &mut left).map_err(|problem| format!("tensor {name}: {problem}"))?;
            Ok((name.to_string(), array))
        }
        (Value::Text(name), Value::Foreign(what)) => {
            Err(format!("entry {name} is {what}, not a tensor: save `model.state_dict()` only"))
        }
        (Value::Text(name), _) => Err(format!("entry {name} is not a tensor: save `model.state_dict()` only")),
        _ => Err("a key of the state_dict is not text".to_owned()),
    });
    Ok(Checkpoint { tensors: tensors.collect::<Result<_>>()? })
}

/// A file that `torch.load` reads as a `state_dict`.
pub(super) fn to_bytes(checkpoint: &Checkpoint) -> Result<Vec<u8>> {
    let program = pickle::save(checkpoint.tensors.iter().map(|(name, array)| (name.as_str(), array)));
    let values = checkpoint.tensors.values().map(|array| match &array.values {
        Values::F32(values) => bytemuck::cast_slice(values),
        Values::I64(values) => bytemuck::cast_slice(values),
    });
    let mut members: Vec<(String, &[u8])> =
        vec![("archive/data.pkl".to_owned(), &program), ("archive/byteorder".to_owned(), b"little")];
    members.extend(values.enumerate().map(|(at, bytes)| (format!("archive/data/{at}"), bytes)));
    members.push(("archive/version".to_owned(), b"3\n"));
    zip::archive(&members)
}

/// The named tensors of a file: all that is in it, or what a trainer such as Lightning saved as `state_dict` beside its
/// own things.
fn state_dict(saved: Value) -> Result<Vec<(Value, Value)>> {
    let items = match saved {
        Value::Dict(dict) => dict.items,
        Value::Foreign(what) => return Err(format!("not a state_dict but {what}: save `model.state_dict()`")),
        _ => return Err("not a state_dict: save `model.state_dict()`".to_owned()),
    };
    let inner = items.iter().position(
        |(key, value)| matches!((key, value), (Value::Text(name), Value::Dict(_)) if &**name == "state_dict"),
    );
    match inner.map(|at| items[at].1.clone()) {
        Some(Value::Dict(dict)) => Ok(dict.items),
        _ => Ok(items),
    }
}

/// Copies a strided view out of its storage; `left` are the bytes that all tensors together may still copy.
fn read(tensor: &TensorRef, storage: &[u8], left: &mut usize) -> Result<Array> {
    let TensorRef { format, offset, shape, strides, .. } = tensor;
    let outside = || "reaches outside of its storage".to_owned();
    let (width, stored) = (format.size(), storage.len() / format.size());
    let count = check_shape(shape)?;
    let reach = shape
        .iter()
        .zip(strides)
        .try_fold(*offset, |reach, (&size, stride)| reach.checked_add(size.checked_sub(1)?.checked_mul(*stride)?));
    if count > stored || count > 0 && reach.is_none_or(|reach| reach >= stored) {
        return Err(outside());
    }
    *left = left
        .checked_sub(count * width)
        .ok_or_else(|| format!("its values are used by so many tensors that they take {MOST_USES} times the file"))?;
    let in_order = shape
        .iter()
        .zip(strides)
        .rev()
        .try_fold(1, |step, (&size, &stride)| (size == 1 || stride == step).then_some(step * size));
    let values = if count == 0 {
        format.decode(&[])
    } else if in_order.is_some() {
        format.decode(&storage[offset * width..(offset + count) * width])
    } else {
        let index = |flat: usize| {
            let (at, _) = shape
                .iter()
                .zip(strides)
                .rev()
                .fold((*offset, flat), |(at, rest), (&size, stride)| (at + rest % size * stride, rest / size));
            at
        };
        let gathered: Vec<u8> = (0..count).flat_map(|flat| &storage[index(flat) * width..][..width]).copied().collect();
        format.decode(&gathered)
    };
    Ok(Array { shape: shape.clone(), values })
}

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::*;

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let array = |shape: &[usize], values| Array { shape: shape.to_vec(), values };
        let tensors = [
            ("conv.weight", array(&[2, 1, 3], Values::F32(vec![0.5, -1.0, 2.0, 0.0, 1e-30, f32::MAX]))),
            ("bn.num_batches_tracked", array(&[], Values::I64(vec![-3]))),
            ("empty", array(&[0, 4], Values::F32(vec![]))),
        ];
        let checkpoint = Checkpoint { tensors: tensors.map(|(name, array)| (name.to_owned(), array)).into() };
        assert_eq!(parse(&to_bytes(&checkpoint).unwrap()).unwrap(), checkpoint);
        assert_eq!(parse(&to_bytes(&Checkpoint::default()).unwrap()).unwrap(), Checkpoint::default());
    }

    #[test]
    fn strided_views_are_copied_and_bad_ones_refused() {
        let storage: Vec<u8> = (0..6).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let view = |offset, shape: &[usize], strides: &[usize]| {
            let tensor = TensorRef {
                format: Format::F32,
                key: "0".into(),
                offset,
                shape: shape.to_vec(),
                strides: strides.to_vec(),
            };
            read(&tensor, &storage, &mut 1000)
        };
        assert_eq!(view(0, &[3, 2], &[1, 3]).unwrap().values, Values::F32(vec![0.0, 3.0, 1.0, 4.0, 2.0, 5.0]));
        assert_eq!(view(5, &[], &[]).unwrap().values, Values::F32(vec![5.0]));
        assert_eq!(view(2, &[2, 1, 2], &[2, 77, 1]).unwrap().values, Values::F32(vec![2.0, 3.0, 4.0, 5.0]));
        assert_eq!(view(9, &[0, 3], &[3, 1]).unwrap().values, Values::F32(vec![]));
        for bad in [view(1, &[6], &[1]), view(0, &[2, 3], &[usize::MAX, 1]), view(0, &[7], &[0]), view(9, &[1], &[1])] {
            assert!(bad.unwrap_err().contains("outside"));
        }
    }

    #[test]
    fn tensors_that_multiply_one_storage_are_refused() {
        let tensor = TensorRef { format: Format::F32, key: "0".into(), offset: 0, shape: vec![64], strides: vec![1] };
        let (storage, mut left) = ([0; 256], MOST_USES * 300);
        let refused = (0..100).find_map(|_| read(&tensor, &storage, &mut left).err()).unwrap();
        assert!(refused.contains("8 times the file"), "{refused}");
    }
}
