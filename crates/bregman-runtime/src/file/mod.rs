//! The model file: everything that serving needs, and nothing else.
//!
//! ```text
//!  0  "bregman\n"            8 bytes
//!  8  version                u32, little-endian like everything
//! 12  CRC-32 of all after it u32
//! 16  body                   as its version says: `version1`; version 2 is the same with input ranges
//! ```
//!
//! Reading chooses by the version. It checks the sum, every length against the architecture, and every position and
//! value while it is decoded: no content makes it panic or read elsewhere.
//!
//! A new version is a new module beside `version1`, one more case in [`Contents::parse`], and a file of it in
//! `tests/data`; the readers of earlier versions stay.

mod envelope;
mod positions;
mod source;
mod stored;
mod values;
mod version1;

use std::fmt;
use std::path::Path;

use bregman_base::files::{read_bytes, write_file};
use serde::{Deserialize, Serialize};

pub use positions::Positions;
pub(crate) use source::Source;
pub(crate) use stored::StoredLayer;
pub use values::ValueFormat;

use crate::{Architecture, Error, FrontEnd, Result};

/// The newest version that is read.
const NEWEST: u32 = 2;

/// The largest file that is read: 250 million weights, none of them zero, in f32.
pub(crate) const MAX_BYTES: u64 = 1 << 30;

/// The score above which two recordings are of one speaker: given, or found on trials as the one where misses and false
/// alarms are equally frequent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    /// Cosines above it are accepted.
    pub cosine: f64,
    /// The equal error rate, where it was found on trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eer: Option<f64>,
    /// How many trials there were, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trials: Option<usize>,
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{:.4}", self.cosine)?;
        self.eer.map_or(Ok(()), |eer| write!(f, " (equal error rate {:.2} %)", 100.0 * eer))
    }
}

/// A layer in memory: `y = W ∗ x + b`, and the norms beside it that could not be folded into W: that after the ReLU
/// that follows, and that before a ReLU of its input.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Row-major, in the shape of its [`bregman_network::LayerSpec`].
    pub weight: Vec<f32>,
    /// One per output.
    pub bias: Vec<f32>,
    /// Scale and shift per output, where [a norm follows a ReLU](bregman_network::LayerSpec::norm_after_relu).
    pub after_relu: Option<[Vec<f32>; 2]>,
    /// Scale and shift per input, where [a norm and a ReLU come first](bregman_network::LayerSpec::norm_before_relu).
    pub before: Option<[Vec<f32>; 2]>,
    /// Mean of each column's input, where a folded norm knew it. Not stored: with it, the writer makes up in the bias
    /// for what rounding the weights W to R shifts, b + (W − R)·mean, so that the error is that of the
    /// *deviations* from the mean. Where a norm with small variances was folded these are many times smaller than
    /// the inputs.
    pub input_mean: Option<Vec<f32>>,
    /// Its input's largest magnitude, as [`ModelFile::calibrate`] finds it: a file with 8-bit weights then computes
    /// this layer in whole numbers, and larger inputs are cut off.
    pub input_range: Option<f32>,
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

/// A file's content, checked but not decoded.
pub(crate) struct Contents<'a> {
    pub(crate) architecture: Architecture,
    pub(crate) front_end: FrontEnd,
    pub(crate) threshold: Option<Threshold>,
    /// Every layer of the architecture, in the order of the file.
    pub(crate) layers: Vec<StoredLayer<'a>>,
}

impl ModelFile {
    /// The bytes of the file.
    ///
    /// # Errors
    /// Layers that do not fit the architecture, weights that are not finite or too large for `format`.
    pub fn to_bytes(&self, format: ValueFormat) -> Result<Vec<u8>> {
        // what needs no newer version is written for readers of the first
        let ranges = format == ValueFormat::Int8 && self.layers.iter().any(|layer| layer.input_range.is_some());
        Ok(envelope::file(if ranges { 2 } else { 1 }, &version1::write(self, format)?))
    }

    /// Writes the file, under a temporary name until it is whole.
    ///
    /// # Errors
    /// As [`ModelFile::to_bytes`], and a file that cannot be written.
    pub fn write(&self, path: &Path, format: ValueFormat) -> Result<()> {
        Ok(write_file(path, self.to_bytes(format)?)?)
    }

    /// The bytes of a file, for [`ModelFile::from_bytes`] and [`crate::Model::from_bytes`]. They are read, not mapped:
    /// if the file is cut off meanwhile, that is an error, not the signal SIGBUS.
    ///
    /// # Errors
    /// A file that cannot be read, or is larger than any model.
    pub fn read_bytes(path: &Path) -> Result<Vec<u8>> {
        Ok(read_bytes(path, MAX_BYTES)?)
    }

    /// Reads a file back, weights as the runtime sees them.
    ///
    /// # Errors
    /// As [`crate::Model::from_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let source = Source::memory(bytes)?;
        let contents = Contents::parse(&source)?;
        let read = |layer: &StoredLayer| {
            let mut weight = vec![0.0; layer.spec.weights()];
            let [_, columns] = layer.spec.matrix();
            layer.for_each(|row, column, value| weight[row * columns + column] = value)?;
            let [bias, scale, shift] = layer.vectors()?;
            Ok(Layer {
                weight,
                bias,
                after_relu: layer.spec.norm_after_relu().map(|_| [scale, shift]),
                before: layer.spec.norm_before_relu().map(|_| layer.before()).transpose()?,
                input_mean: None,
                input_range: layer.input_range,
            })
        };
        let layers = contents.layers.iter().map(read).collect::<Result<_>>()?;
        let Contents { architecture, front_end, threshold, .. } = contents;
        Ok(Self { architecture, front_end, threshold, layers })
    }
}

impl<'a> Contents<'a> {
    /// Reads a file of any version.
    pub(crate) fn parse(source: &'a Source<'a>) -> Result<Self> {
        let (version, contents) = (source.version(), version1::read(source.whole())?);
        // the version is not part of the sum
        if contents.layers.iter().any(|layer| layer.input_range.is_some()) != (version == 2) {
            let problem = if version == 2 { "no layer has an input range" } else { "input ranges need version 2" };
            return Err(Error::format(format!("it says version {version}, but {problem}: it was altered")));
        }
        Ok(contents)
    }
}
