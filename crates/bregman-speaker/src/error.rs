//! The one error type of this crate: names the file, the field and what was expected.

use std::path::{Path, PathBuf};

/// What can go wrong with a corpus.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// A line of a text file is not what it should be.
    #[error("{path}, line {line}: {problem}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// What is wrong, and what was expected.
        problem: String,
    },
    /// A file or folder as a whole is not what it should be.
    #[error("{path}: {problem}")]
    Format {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong, and what was expected.
        problem: String,
    },
    /// A setting is out of its range.
    #[error("{field} = {value}: expected {expected}")]
    Setting {
        /// Name of the setting.
        field: &'static str,
        /// The value given.
        value: String,
        /// The range it must lie in.
        expected: &'static str,
    },
    /// A file would be overwritten.
    #[error("{0} exists already")]
    Exists(PathBuf),
    /// No audio where audio was expected.
    #[error("{path}: no audio found; expected {expected}")]
    Empty {
        /// Where it was looked for.
        path: PathBuf,
        /// The layout that was looked for.
        expected: String,
    },
    /// A list names utterances that are not there.
    #[error("{list}: {count} names have no audio, the first is '{first}' (entry {entry})")]
    UnknownNames {
        /// The trial list or enrollment map.
        list: PathBuf,
        /// How many different names are unknown.
        count: usize,
        /// The first of them.
        first: String,
        /// The trial or model it stands in, counted from 1.
        entry: usize,
    },
    /// Audio that could not be read, in strict mode or with nothing left to take its place.
    #[error("{utterance}: {problem}")]
    Unreadable {
        /// The file, or the utterance in its shard.
        utterance: String,
        /// Why.
        problem: String,
    },
    /// Error rates need trials of both kinds.
    #[error("no {0} trials: error rates need both target and non-target trials")]
    OneClass(&'static str),
    /// A number that is NaN or infinite.
    #[error("{0} is not a finite number")]
    NotFinite(String),
    /// A network that embeddings were asked of cannot be had: no such device, or too little memory on it.
    #[error("{0}")]
    Network(String),
    /// A thread of the loader panicked: a bug of ours.
    #[error("a loader thread died: {0}")]
    Worker(String),
}

/// Short for this crate's results.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// What the user can do about it, where there is something.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Exists(_) => Some("choose another name, or pass --force to replace it"),
            Self::OneClass(_) => Some("check the labels of the trial list: 1 or target, 0 or nontarget"),
            Self::NotFinite(_) => {
                Some("the network has diverged: evaluate an earlier checkpoint, or train with a lower learning rate")
            }
            Self::Empty { .. } => {
                Some("check the corpus type and the folder; `bregman prepare --help` shows the layouts")
            }
            Self::UnknownNames { .. } => Some(
                "a name is a file under the root, or an utterance or path of the manifest (audio extensions do not matter)",
            ),
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => Some("check the path"),
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                Some("free some space; what was finished is kept")
            }
            _ => None,
        }
    }

    /// True when the input is at fault (exit code 2), false for a failure of the machine or the program (exit code 1).
    pub fn is_user_mistake(&self) -> bool {
        match self {
            Self::Io { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
            Self::Unreadable { .. } | Self::NotFinite(_) | Self::Network(_) | Self::Worker(_) => false,
            _ => true,
        }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }

    /// What the audio crate says about settings that came from here.
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
