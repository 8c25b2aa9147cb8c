//! What can go wrong with a network, its input or its checkpoint.

use std::path::PathBuf;

/// Every failure of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] bregman_tensor::Error),
    /// A network was configured with an impossible value.
    #[error("{field} = {value}: {expected}")]
    Config {
        /// The setting.
        field: &'static str,
        /// What it was.
        value: usize,
        /// What it may be.
        expected: &'static str,
    },
    /// A layer whose description does not fit what is built of it.
    #[error("layer {layer} {problem}")]
    Layer {
        /// Its name.
        layer: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Input that the network cannot take.
    #[error("input {tensor}: {problem}")]
    Input {
        /// Which input.
        tensor: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// With checking on: an activation became NaN or infinite.
    #[error("{tensor} is not finite (NaN or infinity): lower the learning rate, or check the input features")]
    NotFinite {
        /// The first tensor found so.
        tensor: String,
    },
    /// A checkpoint lacks a tensor that the network has.
    #[error("checkpoint lacks tensor {tensor}: is it of another network or size?")]
    Missing {
        /// The tensor's name.
        tensor: String,
    },
    /// A checkpoint has a tensor that the network lacks.
    #[error("checkpoint has tensor {tensor}, which this network lacks: is it of another network or size?")]
    Extra {
        /// The tensor's name.
        tensor: String,
    },
    /// A checkpoint's tensor has another shape.
    #[error("tensor {tensor}: checkpoint has shape {got:?}, the network {expected:?}")]
    Shape {
        /// The tensor's name.
        tensor: String,
        /// The network's shape.
        expected: Vec<usize>,
        /// The checkpoint's shape.
        got: Vec<usize>,
    },
    /// A checkpoint is of a network that is not here, or a network does not say what it is.
    #[error("unknown network: {problem}")]
    Unknown {
        /// What was found in it.
        problem: String,
    },
    /// A checkpoint file cannot be understood.
    #[error("{}: {problem}", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl From<bregman_network::SizeError> for Error {
    fn from(bregman_network::SizeError { field, value, expected }: bregman_network::SizeError) -> Self {
        Self::Config { field, value, expected }
    }
}

impl From<bregman_base::files::FileError> for Error {
    fn from(error: bregman_base::files::FileError) -> Self {
        Self::File { path: error.path, source: error.source }
    }
}

/// The result of everything here.
pub type Result<T> = std::result::Result<T, Error>;
