//! What can go wrong with a model file or with what is to be embedded.

use std::path::PathBuf;

/// Every failure of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Another kind of file, or one that was cut off or altered.
    #[error("not a usable model file: {0}")]
    Format(String),
    /// A model file of a later program.
    #[error(
        "model file of version {found}, this program reads versions up to {newest}: update bregman, or \
         export the model again with this version"
    )]
    Version {
        /// What the file says.
        found: u32,
        /// The newest that this program reads.
        newest: u32,
    },
    /// A network of impossible size, or one this program does not know.
    #[error("{field} = {value}: {expected}")]
    Architecture {
        /// The setting.
        field: &'static str,
        /// What it was.
        value: usize,
        /// What it may be.
        expected: &'static str,
    },
    /// A state lacks a tensor, or has it in another shape.
    #[error("tensor {tensor}: {problem}")]
    Tensor {
        /// Its name.
        tensor: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Audio that is too short for one window of the front end, or for the network.
    #[error("{samples} samples at {rate} Hz are too few: at least {needed} ({:.3} s) are needed",
        *needed as f64 / f64::from(*rate))]
    TooShort {
        /// How many there were.
        samples: usize,
        /// How many are needed.
        needed: usize,
        /// Samples per second.
        rate: u32,
    },
    /// Features whose number does not fit.
    #[error("{values} feature values are not a whole number (at least one) of frames of {bins} bins")]
    Features {
        /// How many there were.
        values: usize,
        /// Values per frame.
        bins: usize,
    },
    /// Fewer frames of features than the network takes.
    #[error("{frames} frames are too few: this network mirrors its input at both ends and takes at least {fewest}")]
    TooFewFrames {
        /// How many there were.
        frames: usize,
        /// How many it takes.
        fewest: usize,
    },
    /// Sliding windows of impossible length.
    #[error("{field} = {value} s: {expected}")]
    Sliding {
        /// The setting.
        field: &'static str,
        /// What it was.
        value: f64,
        /// What it may be.
        expected: &'static str,
    },
    /// Input with NaN or infinity in it.
    #[error("the input is not finite (NaN or infinity)")]
    NotFinite,
    /// The front end's settings are not valid, or this build has no front end.
    #[error("front end: {0}")]
    FrontEnd(String),
    /// The ranges of inputs cannot be found.
    #[error("calibration: {0}")]
    Calibration(String),
    /// SIMD instructions that this CPU lacks.
    #[error("this CPU does not support {0:?} instructions: use the default, or choose a level it supports")]
    Instructions(crate::Instructions),
    /// Threads could not be started.
    #[error("cannot start threads: {0}")]
    Threads(String),
}

/// The result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

impl From<bregman_network::SizeError> for Error {
    fn from(bregman_network::SizeError { field, value, expected }: bregman_network::SizeError) -> Self {
        Self::Architecture { field, value, expected }
    }
}

impl Error {
    pub(crate) fn format(problem: impl Into<String>) -> Self {
        Self::Format(problem.into())
    }

    pub(crate) fn tensor(tensor: &str, problem: impl Into<String>) -> Self {
        Self::Tensor { tensor: tensor.to_owned(), problem: problem.into() }
    }
}

impl From<bregman_base::files::FileError> for Error {
    fn from(error: bregman_base::files::FileError) -> Self {
        Self::File { path: error.path, source: error.source }
    }
}
