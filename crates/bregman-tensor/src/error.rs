//! What can go wrong on a device.

/// Everything a backend can fail with. Shape mismatches inside a layer are our own bugs and panic instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A host slice does not have the size of the device array it is copied to or from.
    #[error("{what}: expected {expected} values, got {got}")]
    Length {
        /// What was being copied.
        what: &'static str,
        /// The device array's size.
        expected: usize,
        /// The host slice's size.
        got: usize,
    },
    /// The device or its driver refused.
    #[error("device: {0}")]
    Device(String),
}

/// The result of every backend call.
pub type Result<T> = std::result::Result<T, Error>;

/// So that arrays on a device can answer an optimizer.
impl From<Error> for bregman::Error {
    fn from(error: Error) -> Self {
        bregman::Error::Engine { problem: error.to_string() }
    }
}
