//! Errors of reading audio and computing features.

use std::path::{Path, PathBuf};

/// Every error of this crate. Errors from a file are wrapped in [`Error::File`], which names it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error with this file.
    #[error("{}: {source}", path.display())]
    File {
        /// The file as it was given.
        path: PathBuf,
        /// What was wrong.
        source: Box<Error>,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The file is corrupt or not of a supported format.
    #[error("cannot decode: {reason} (supported: WAV, FLAC, MP3, M4A/AAC, Ogg Vorbis)")]
    Decode {
        /// The decoder's reason.
        reason: String,
    },
    /// The file is readable but contains no audio.
    #[error("contains no audio samples")]
    Empty,
    /// A floating-point file with NaN or infinite samples.
    #[error("sample {index} is not a finite number; re-export the file")]
    NotFinite {
        /// Index of the first such sample, counted in mono frames.
        index: u64,
    },
    /// A recording that no voice can be recognised by.
    #[error("no speech in it: {found}; at least 0.1 s of speech are needed")]
    NoSpeech {
        /// What is in it instead.
        found: String,
    },
    /// Longer than the crate decodes in one piece.
    #[error(
        "longer than the limit of {limit} s for decoding in one piece; split it, or read it block by block with \
         `Decoder`"
    )]
    TooLong {
        /// The limit in seconds.
        limit: u32,
    },
    /// A setting outside its range.
    #[error("{field} = {value}: must be {expected}")]
    Config {
        /// The setting's name.
        field: &'static str,
        /// The value given.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
}

/// `Result` with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The same error, naming the file it comes from.
    pub fn in_file(self, path: &Path) -> Self {
        Error::File { path: path.to_path_buf(), source: Box::new(self) }
    }

    pub(crate) fn config(field: &'static str, value: impl ToString, expected: &'static str) -> Self {
        Error::Config { field, value: value.to_string(), expected }
    }
}

impl From<symphonia::core::errors::Error> for Error {
    fn from(error: symphonia::core::errors::Error) -> Self {
        use symphonia::core::errors::Error as Source;
        match error {
            // An end of file in the middle of a header is a corrupt file, not an I/O failure.
            Source::IoError(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => Error::Io(error),
            other => Error::Decode { reason: other.to_string() },
        }
    }
}
