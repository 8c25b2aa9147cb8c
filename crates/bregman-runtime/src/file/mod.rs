//! The model file: everything that serving needs, and nothing else.
//!
//! ```text
//!  0  "bregman\n"            8 bytes
//!  8  version                u32, little-endian like everything
//! 12  CRC-32 of all after it u32
//! 16  length of the header   u64
//! 24  header                 JSON: architecture, front end, threshold, and per layer its encoding and lengths
//!     payload                layer after layer: positions, values, bias, then scale and shift of a norm after a ReLU
//!                            (f32)
//! ```
//!
//! Reading checks the sum, then every length against the architecture, then every position and value while it is
//! decoded: no content makes it panic or read elsewhere.

mod positions;
mod values;

use std::collections::HashMap;
use std::path::Path;

use bregman_base::files::write_file;
use serde::{Deserialize, Serialize};

pub use positions::Positions;
pub use values::ValueFormat;

use bregman_network::LayerSpec;

use crate::{Architecture, Error, FrontEnd, Result};

const MAGIC: &[u8; 8] = b"bregman\n";
/// The version this program reads and writes.
pub(crate) const VERSION: u32 = 1;
const PREFIX: usize = 24;

/// Where misses and false alarms were equally frequent on the trials that a model was calibrated with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    /// Cosines above it are accepted.
    pub cosine: f64,
    /// The equal error rate.
    pub eer: f64,
    /// How many trials there were, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trials: Option<usize>,
}

/// A layer in memory: `y = W ∗ x + b`, and where there is one the norm after the ReLU that follows.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Row-major, in the shape that its [`LayerSpec`] has.
    pub weight: Vec<f32>,
    /// One per output.
    pub bias: Vec<f32>,
    /// Scale and shift per output, where [a norm follows a ReLU](LayerSpec::norm_after_relu).
    pub after_relu: Option<[Vec<f32>; 2]>,
    /// Mean of each column's input, where a folded norm knew it. Not stored: with it, the writer makes up in the bias
    /// for what rounding the weights W to R shifts, b + (W − R)·mean, so that the error is that of the
    /// *deviations* from the mean. Where a norm with small variances was folded these are many times smaller than
    /// the inputs.
    pub input_mean: Option<Vec<f32>>,
}

/// A model to be written, or read back whole.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFile {
    /// The network.
    pub architecture: Architecture,
    /// What computes its input.
    pub front_end: FrontEnd,
    /// The calibrated threshold, if any.
    pub threshold: Option<Threshold>,
    /// One per [`Architecture::layers`].
    pub layers: Vec<Layer>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    architecture: Architecture,
    front_end: FrontEnd,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    threshold: Option<Threshold>,
    layers: Vec<Entry>,
}

/// One layer's lines in the header.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    positions: Positions,
    values: ValueFormat,
    /// Values stored.
    live: usize,
    /// Bytes of the positions.
    position_bytes: usize,
}

/// A file's content, checked but not decoded.
pub(crate) struct Contents<'a> {
    pub(crate) architecture: Architecture,
    pub(crate) front_end: FrontEnd,
    pub(crate) threshold: Option<Threshold>,
    /// Every layer of the architecture, in the order of the file.
    pub(crate) layers: Vec<StoredLayer<'a>>,
}

/// A layer in its encoding.
pub(crate) struct StoredLayer<'a> {
    pub(crate) spec: LayerSpec,
    pub(crate) positions: Positions,
    pub(crate) values: ValueFormat,
    /// Values stored.
    pub(crate) live: usize,
    position_bytes: &'a [u8],
    value_bytes: &'a [u8],
    vector_bytes: &'a [u8],
}

impl ModelFile {
    /// The bytes of the file.
    ///
    /// # Errors
    /// Layers that do not fit the architecture, weights that are not finite or too large for `format`.
    pub fn to_bytes(&self, format: ValueFormat) -> Result<Vec<u8>> {
        self.architecture.check()?;
        let specs = self.architecture.layers();
        if specs.len() != self.layers.len() {
            return Err(Error::format(format!("{} layers, the architecture has {}", self.layers.len(), specs.len())));
        }
        let (mut entries, mut payload) = (Vec::new(), Vec::new());
        for (spec, layer) in specs.iter().zip(&self.layers) {
            entries.push(write_layer(spec, layer, format, &mut payload)?);
        }
        let header = Header {
            architecture: self.architecture,
            front_end: self.front_end.clone(),
            threshold: self.threshold.clone(),
            layers: entries,
        };
        let header = serde_json::to_vec(&header).map_err(|error| Error::format(error.to_string()))?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend((header.len() as u64).to_le_bytes());
        bytes.extend(header);
        bytes.extend(payload);
        let sum = crc32fast::hash(&bytes[16..]);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        Ok(bytes)
    }

    /// Writes the file, under a temporary name until it is whole.
    ///
    /// # Errors
    /// As [`ModelFile::to_bytes`], and a file that cannot be written.
    pub fn write(&self, path: &Path, format: ValueFormat) -> Result<()> {
        Ok(write_file(path, self.to_bytes(format)?)?)
    }

    /// Reads a file back, weights as the runtime sees them.
    ///
    /// # Errors
    /// As [`crate::Model::from_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let contents = Contents::parse(bytes)?;
        let read = |layer: &StoredLayer| {
            let mut weight = vec![0.0; layer.spec.weights()];
            let [_, columns] = layer.spec.matrix();
            layer.for_each(|row, column, value| weight[row * columns + column] = value)?;
            let [bias, scale, shift] = layer.vectors()?;
            Ok(Layer {
                weight,
                bias,
                after_relu: layer.spec.norm_after_relu().map(|_| [scale, shift]),
                input_mean: None,
            })
        };
        let layers = contents.layers.iter().map(read).collect::<Result<_>>()?;
        let Contents { architecture, front_end, threshold, .. } = contents;
        Ok(Self { architecture, front_end, threshold, layers })
    }
}

fn write_layer(spec: &LayerSpec, layer: &Layer, format: ValueFormat, payload: &mut Vec<u8>) -> Result<Entry> {
    let (count, rows) = (spec.weights(), spec.outputs);
    let wrong = |problem: String| Error::tensor(&spec.name, problem);
    if layer.weight.len() != count {
        return Err(wrong(format!("{} weights, the shape {:?} needs {count}", layer.weight.len(), spec.shape())));
    }
    let vectors: Vec<&Vec<f32>> = layer.after_relu.iter().flatten().collect();
    let expected = if spec.norm_after_relu().is_some() { 2 } else { 0 };
    if layer.bias.len() != rows || vectors.len() != expected || vectors.iter().any(|vector| vector.len() != rows) {
        return Err(wrong(format!("bias, scale or shift is missing, extra or not of length {rows}")));
    }
    if layer.weight.iter().chain(&layer.bias).chain(vectors.iter().copied().flatten()).any(|value| !value.is_finite()) {
        return Err(wrong("has a value that is not finite".to_owned()));
    }
    let (positions, position_bytes) = positions::encode(&layer.weight, format.bytes());
    let dense = positions == Positions::Dense;
    let live: Vec<usize> = (0..count).filter(|&at| dense || layer.weight[at] != 0.0).collect();
    let values: Vec<f32> = live.iter().map(|&at| layer.weight[at]).collect();
    payload.extend(&position_bytes);
    let (columns, from) = (count / rows, payload.len());
    let too_large = || wrong("has a value too large for half precision: export it as f32".to_owned());
    format.encode(&values, |i| live[i] / columns, rows, payload).ok_or_else(too_large)?;
    let mut bias: Vec<f64> = layer.bias.iter().map(|&bias| f64::from(bias)).collect();
    if let Some(mean) = &layer.input_mean {
        for (i, (&at, &value)) in live.iter().zip(&values).enumerate() {
            let stored = format.get(&payload[from..], rows, i, at / columns);
            bias[at / columns] += (f64::from(value) - f64::from(stored)) * f64::from(mean[at % columns]);
        }
    }
    payload.extend(bias.iter().flat_map(|&bias| (bias as f32).to_le_bytes()));
    vectors.into_iter().flatten().for_each(|value| payload.extend(value.to_le_bytes()));
    Ok(Entry {
        name: spec.name.clone(),
        positions,
        values: format,
        live: live.len(),
        position_bytes: position_bytes.len(),
    })
}

impl<'a> Contents<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self> {
        let word =
            |at: usize| bytes.get(at..at + 4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")));
        if !bytes.starts_with(MAGIC) {
            return Err(Error::format("it does not begin as one (bregman export RUN -o model.breg makes one)"));
        }
        let cut = || Error::format("it was cut off");
        let version = word(8).ok_or_else(cut)?;
        if version != VERSION {
            return Err(Error::Version { found: version, known: VERSION });
        }
        let (sum, rest) = (word(12).ok_or_else(cut)?, bytes.get(16..).ok_or_else(cut)?);
        if crc32fast::hash(rest) != sum {
            return Err(Error::format("its content does not match its checksum: it was cut off or altered"));
        }
        let length =
            rest.get(..8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes"))).ok_or_else(cut)?;
        let end = usize::try_from(length).ok().and_then(|length| length.checked_add(PREFIX)).ok_or_else(cut)?;
        let (header, mut payload) = (bytes.get(PREFIX..end).ok_or_else(cut)?, &bytes[end..]);
        let header: Header =
            serde_json::from_slice(header).map_err(|error| Error::format(format!("header: {error}")))?;
        header.architecture.check()?;
        let mut specs: HashMap<String, LayerSpec> =
            header.architecture.layers().into_iter().map(|spec| (spec.name.clone(), spec)).collect();
        let mut split = |entry: Entry| {
            let unknown = || Error::tensor(&entry.name, "is no layer of its architecture, or stands in the file twice");
            let spec = specs.remove(&entry.name).ok_or_else(unknown)?;
            StoredLayer::split(spec, entry, &mut payload)
        };
        let layers = header.layers.into_iter().map(&mut split).collect::<Result<Vec<_>>>()?;
        if let Some(missing) = specs.keys().min() {
            return Err(Error::tensor(missing, "is missing"));
        }
        if !payload.is_empty() {
            return Err(Error::format(format!("{} bytes too many", payload.len())));
        }
        Ok(Self { architecture: header.architecture, front_end: header.front_end, threshold: header.threshold, layers })
    }
}

impl<'a> StoredLayer<'a> {
    fn split(spec: LayerSpec, entry: Entry, payload: &mut &'a [u8]) -> Result<Self> {
        let Entry { positions, values, live, position_bytes, .. } = entry;
        let wrong = |problem: &str| Error::tensor(&spec.name, problem);
        let (count, rows) = (spec.weights(), spec.outputs);
        if live > count {
            return Err(wrong("more values than weights"));
        }
        let vectors = if spec.norm_after_relu().is_some() { 3 } else { 1 };
        let lengths = [Some(position_bytes), values.size(live, rows), ValueFormat::F32.size(vectors * rows, 1)];
        let mut take = |length: Option<usize>| -> Result<_> {
            let (bytes, rest) = length
                .and_then(|length| payload.split_at_checked(length))
                .ok_or_else(|| wrong("the file ends within it"))?;
            *payload = rest;
            Ok(bytes)
        };
        let [position_bytes, value_bytes, vector_bytes] = [take(lengths[0])?, take(lengths[1])?, take(lengths[2])?];
        Ok(Self { positions, values, live, position_bytes, value_bytes, vector_bytes, spec })
    }

    /// Bytes in the file.
    pub(crate) fn bytes(&self) -> usize {
        self.position_bytes.len() + self.value_bytes.len() + self.vector_bytes.len()
    }

    /// Calls `found` with row, column and value of every stored weight, in rising order.
    pub(crate) fn for_each(&self, mut found: impl FnMut(usize, usize, f32)) -> Result<()> {
        let ([rows, columns], count) = (self.spec.matrix(), self.spec.weights());
        let (mut i, mut finite) = (0, true);
        let (mut row, mut row_end) = (0, columns);
        let decoded = positions::decode(self.positions, self.position_bytes, count, self.live, |at| {
            while at >= row_end {
                (row, row_end) = (row + 1, row_end + columns);
            }
            let value = self.values.get(self.value_bytes, rows, i, row);
            finite &= value.is_finite();
            found(row, at + columns - row_end, value);
            i += 1;
        });
        decoded.map_err(|problem| Error::tensor(&self.spec.name, problem))?;
        if finite { Ok(()) } else { Err(Error::tensor(&self.spec.name, "has a weight that is not finite")) }
    }

    /// Bias, scale and shift; the latter two empty where there is no norm.
    pub(crate) fn vectors(&self) -> Result<[Vec<f32>; 3]> {
        let rows = self.spec.outputs;
        let format = ValueFormat::F32;
        let present = self.vector_bytes.len() / (rows * format.bytes());
        let read = |which: usize| -> Vec<f32> {
            let range = if which < present { which * rows..(which + 1) * rows } else { 0..0 };
            range.map(|i| format.get(self.vector_bytes, 1, i, 0)).collect()
        };
        let vectors = [read(0), read(1), read(2)];
        if vectors.iter().flatten().any(|value| !value.is_finite()) {
            return Err(Error::tensor(&self.spec.name, "has a bias, scale or shift that is not finite"));
        }
        Ok(vectors)
    }
}
