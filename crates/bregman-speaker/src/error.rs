//! The one error type of this crate: names the file, the field and what was expected.

use std::borrow::Cow;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use bregman_base::text::excerpt;

/// What can go wrong with a corpus.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file operation failed.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line of a text file is malformed.
    #[error("{path}, line {line}: {}", quoted(problem))]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// What is wrong, and what was expected.
        problem: String,
    },
    /// A file or folder is malformed.
    #[error("{path}: {}", quoted(problem))]
    Format {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong, and what was expected.
        problem: String,
    },
    /// A setting is out of its range.
    #[error("{field} = {}: expected {expected}", quoted(value))]
    Setting {
        /// Name of the setting.
        field: &'static str,
        /// The value given.
        value: String,
        /// The range it must lie in.
        expected: &'static str,
    },
    /// A file would be overwritten.
    #[error("{0} already exists")]
    Exists(PathBuf),
    /// No audio where audio was expected.
    #[error("{path}: no audio found; expected {expected}")]
    Empty {
        /// The folder searched.
        path: PathBuf,
        /// The layout expected there.
        expected: String,
    },
    /// A list names utterances that do not exist.
    #[error("{list}: {count} names have no audio, the first is '{}' (entry {entry})", quoted(first))]
    UnknownNames {
        /// The trial list or enrollment map.
        list: PathBuf,
        /// How many different names are unknown.
        count: usize,
        /// The first of them.
        first: String,
        /// The trial or model that names it, counted from 1.
        entry: usize,
    },
    /// Audio that could not be read, in strict mode or without a replacement.
    #[error("{}: {}", quoted(utterance), quoted(problem))]
    Unreadable {
        /// The file, or the utterance in its shard.
        utterance: String,
        /// Why.
        problem: String,
    },
    /// A recording in which nobody speaks, and what is in it instead.
    #[error("{0}")]
    NoSpeech(String),
    /// A window of a recording that the network cannot embed.
    #[error("at {at:.2} s: {}", quoted(problem))]
    Window {
        /// Where it begins, in seconds.
        at: f64,
        /// Why.
        problem: String,
    },
    /// Error rates need trials of both kinds.
    #[error("no {0} trials: error rates need both target and non-target trials")]
    OneClass(&'static str),
    /// A number that is NaN or infinite.
    #[error("{0} is not a finite number")]
    NotFinite(String),
    /// The network for the embeddings could not be created: no such device, or too little memory on it.
    #[error("{0}")]
    Network(String),
    /// A loader thread panicked: a bug.
    #[error("a loader thread failed: {0}")]
    Worker(String),
    /// Other ranks have ended.
    #[error(transparent)]
    Ranks(#[from] bregman_tensor::Error),
}

/// Words out of a file, which may be of any length.
fn quoted(words: &str) -> Cow<'_, str> {
    excerpt(words, 400)
}

/// `Result` with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// What the user can do about it, if anything.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Exists(_) => Some("choose another name, or pass --force to replace it"),
            Self::OneClass(_) => Some("check the labels of the trial list: 1 or target, 0 or nontarget"),
            Self::NotFinite(_) => {
                Some("the network has diverged: evaluate an earlier checkpoint, or train with a lower learning rate")
            }
            Self::NoSpeech(_) => Some("pass a recording with speech in it"),
            Self::Empty { .. } => {
                Some("check the corpus type and the folder; `bregman prepare --help` shows the layouts")
            }
            Self::UnknownNames { .. } => Some(
                "a name is a file under a root, or an utterance or path of a manifest; the audio extension may differ; \
                 pass --root more than once if the lists count from different folders",
            ),
            Self::Io { source, .. } if source.kind() == ErrorKind::NotFound => Some("check the path"),
            Self::Io { source, .. } if source.kind() == ErrorKind::StorageFull => {
                Some("free some disk space and run it again; finished work is kept")
            }
            _ => None,
        }
    }

    /// True for a mistake in the input (exit code 2), false for a failure of the machine or the program (exit code 1).
    pub fn is_user_mistake(&self) -> bool {
        match self {
            Self::Io { source, .. } => {
                matches!(source.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput | ErrorKind::InvalidData)
            }
            Self::Unreadable { .. }
            | Self::Window { .. }
            | Self::NotFinite(_)
            | Self::Network(_)
            | Self::Worker(_)
            | Self::Ranks(_) => false,
            _ => true,
        }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }

    /// Errors of the audio crate about settings passed on from here.
    pub(crate) fn front_end(error: bregman_audio::Error) -> Self {
        match error {
            bregman_audio::Error::Config { field, value, expected } => Self::Setting { field, value, expected },
            other => {
                Self::Setting { field: "augment", value: other.to_string(), expected: "readable folders of audio" }
            }
        }
    }

    pub(crate) fn format(path: &Path, problem: impl Into<String>) -> Self {
        Self::Format { path: path.to_owned(), problem: problem.into() }
    }

    pub(crate) fn line(path: &Path, line: u64, problem: impl Into<String>) -> Self {
        Self::Line { path: path.to_owned(), line, problem: problem.into() }
    }
}

impl From<bregman_base::files::FileError> for Error {
    fn from(error: bregman_base::files::FileError) -> Self {
        Self::Io { path: error.path, source: error.source }
    }
}
