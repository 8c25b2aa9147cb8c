//! Named tensors on disk: safetensors and PyTorch's `.pt`, to read and write.

mod pickle;
mod pt;
mod zip;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use bregman_base::files::{read_bytes, write_file, write_file_at};
use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, TensorView};

use crate::{Error, Result};

/// The largest file that is read: the largest network, its classifier and as much again, in double precision.
const MOST_BYTES: u64 = 1 << 33;

/// A tensor's values; every floating-point format is converted to f32 on reading.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Floating point.
    F32(Vec<f32>),
    /// Counters.
    I64(Vec<i64>),
}

/// A tensor in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Row-major shape.
    pub shape: Vec<usize>,
    /// The values.
    pub values: Values,
}

/// Tensors by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checkpoint {
    /// The tensors.
    pub tensors: BTreeMap<String, Array>,
}

/// The number formats both file types know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    F16,
    BF16,
    F32,
    F64,
    I32,
    I64,
}

impl Format {
    fn size(self) -> usize {
        match self {
            Self::F16 | Self::BF16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }

    /// Decodes little-endian values.
    fn decode(self, bytes: &[u8]) -> Values {
        fn each<const N: usize, T>(bytes: &[u8], f: impl Fn([u8; N]) -> T) -> Vec<T> {
            bytes.as_chunks::<N>().0.iter().map(|&chunk| f(chunk)).collect()
        }
        match self {
            Self::F16 => Values::F32(each(bytes, |b| half::f16::from_le_bytes(b).to_f32())),
            Self::BF16 => Values::F32(each(bytes, |b| half::bf16::from_le_bytes(b).to_f32())),
            Self::F32 => Values::F32(each(bytes, f32::from_le_bytes)),
            Self::F64 => Values::F32(each(bytes, |b| f64::from_le_bytes(b) as f32)),
            Self::I32 => Values::I64(each(bytes, |b| i64::from(i32::from_le_bytes(b)))),
            Self::I64 => Values::I64(each(bytes, i64::from_le_bytes)),
        }
    }
}

impl Checkpoint {
    /// Reads a `.safetensors` file or a PyTorch `.pt` (told apart by their content).
    pub fn read(path: &Path) -> Result<Self> {
        let bytes =
            read_bytes(path, MOST_BYTES).map_err(|error| Error::File { path: error.path, source: error.source })?;
        Self::from_bytes(&bytes, path)
    }

    /// As [`Checkpoint::read`], from the content of a file; `name` is for messages.
    pub fn from_bytes(bytes: &[u8], name: &Path) -> Result<Self> {
        let parsed = if bytes.starts_with(b"PK") { pt::parse(bytes) } else { from_safetensors(bytes) };
        parsed.map_err(|problem| Error::Checkpoint { path: name.to_owned(), problem })
    }

    /// Writes a `.safetensors` file.
    pub fn write(&self, path: &Path) -> Result<()> {
        self.write_metadata(path, None)
    }

    /// Writes a `.safetensors` file with metadata in its header.
    pub fn write_with(&self, path: &Path, metadata: HashMap<String, String>) -> Result<()> {
        self.write_metadata(path, Some(metadata))
    }

    /// Writes a `.pt` file, which `torch.load` reads as a `state_dict`.
    pub fn write_pt(&self, path: &Path) -> Result<()> {
        let bytes = pt::to_bytes(self).map_err(|problem| Error::Checkpoint { path: path.to_owned(), problem })?;
        write_file(path, bytes).map_err(|error| Error::File { path: error.path, source: error.source })
    }

    fn write_metadata(&self, path: &Path, metadata: Option<HashMap<String, String>>) -> Result<()> {
        let views = self.tensors.iter().map(|(name, array)| {
            let (format, bytes): (_, &[u8]) = match &array.values {
                Values::F32(values) => (Dtype::F32, bytemuck::cast_slice(values)),
                Values::I64(values) => (Dtype::I64, bytemuck::cast_slice(values)),
            };
            (name, TensorView::new(format, array.shape.clone(), bytes).expect("an array's values fill its shape"))
        });
        #[expect(clippy::disallowed_methods, reason = "the file that it creates is the temporary one")]
        let serialize = |temporary: &Path| safetensors::serialize_to_file(views, metadata, temporary);
        write_file_at(path, |temporary| {
            serialize(temporary).map_err(|error| match error {
                SafeTensorError::IoError(source) => Error::File { path: path.to_owned(), source },
                other => Error::Checkpoint { path: path.to_owned(), problem: other.to_string() },
            })
        })
    }

    /// Drops all tensors whose name starts so, such as the `projection.` classifier of a training checkpoint.
    pub fn without(mut self, prefix: &str) -> Self {
        self.tensors.retain(|name, _| !name.starts_with(prefix));
        self
    }
}

/// The values of a shape. Where a size is zero the others count: what multiplies them later must not overflow.
fn check_shape(shape: &[usize]) -> std::result::Result<usize, String> {
    const MOST: usize = 1 << 31;
    let size = shape.iter().try_fold(1usize, |size, &side| size.checked_mul(side.max(1)).filter(|&size| size <= MOST));
    let size = size.ok_or_else(|| format!("shape {shape:?} is larger than any tensor"))?;
    Ok(if shape.contains(&0) { 0 } else { size })
}

fn from_safetensors(bytes: &[u8]) -> std::result::Result<Checkpoint, String> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| format!("neither safetensors nor .pt: {error}"))?;
    let decode = |(name, view): (String, TensorView)| {
        let format = match view.dtype() {
            Dtype::F16 => Format::F16,
            Dtype::BF16 => Format::BF16,
            Dtype::F32 => Format::F32,
            Dtype::F64 => Format::F64,
            Dtype::I32 => Format::I32,
            Dtype::I64 => Format::I64,
            other => return Err(format!("tensor {name}: number format {other:?} is not supported")),
        };
        check_shape(view.shape()).map_err(|problem| format!("tensor {name}: {problem}"))?;
        Ok((name, Array { shape: view.shape().to_vec(), values: format.decode(view.data()) }))
    };
    Ok(Checkpoint { tensors: file.tensors().into_iter().map(decode).collect::<std::result::Result<_, _>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_checkpoint_reads_back_bit_for_bit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let mut checkpoint = Checkpoint::default();
        let values = Values::F32(vec![1.5, -0.0, f32::MIN_POSITIVE, 3e38, 1e-45, 0.1]);
        checkpoint.tensors.insert("a.weight".to_owned(), Array { shape: vec![2, 3], values });
        checkpoint.tensors.insert("count".to_owned(), Array { shape: vec![], values: Values::I64(vec![i64::MAX]) });
        checkpoint.write(&path).unwrap();
        assert_eq!(Checkpoint::read(&path).unwrap(), checkpoint);
    }

    #[test]
    fn other_files_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.pt");
        for content in [&b""[..], b"PK\x03\x04", b"PK rubbish that is no archive", b"{\"a\": 1}"] {
            std::fs::write(&path, content).unwrap();
            let message = Checkpoint::read(&path).unwrap_err().to_string();
            assert!(message.contains("model.pt"), "{message}");
        }
        let absent = Checkpoint::read(&folder.path().join("absent.pt")).unwrap_err().to_string();
        assert!(absent.contains("absent.pt"), "{absent}");
    }

    #[test]
    fn a_shape_too_large_for_any_tensor_is_refused_even_if_it_holds_nothing() {
        let read = |shape: &str| {
            let header = format!(r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":[0,0]}}}}"#);
            let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
            Checkpoint::from_bytes(&bytes, Path::new("a.safetensors"))
        };
        assert_eq!(read("[0,5]").unwrap().tensors["a"].shape, [0, 5]);
        for shape in ["[4294967296,0]", "[65536,65536,0]"] {
            let message = read(shape).unwrap_err().to_string();
            assert!(message.contains("a.safetensors: ") && message.contains("tensor"), "{message}");
        }
    }
}
