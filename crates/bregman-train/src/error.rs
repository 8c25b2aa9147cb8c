//! The one error type of this crate: names the recipe, the key or the file, and what to do.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use bregman_base::text::excerpt;

/// What can go wrong with an experiment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A recipe that cannot be understood.
    #[error("{origin}: {}", excerpt(problem, 600))]
    Recipe {
        /// The file, or the `--set` argument.
        origin: String,
        /// What is wrong, and what was expected.
        problem: String,
    },
    /// A setting out of its range.
    #[error("{field} = {}: expected {expected}", excerpt(value, 400))]
    Setting {
        /// Dotted name of the setting.
        field: &'static str,
        /// The value given.
        value: String,
        /// The range it must lie in.
        expected: String,
    },
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// A run or checkpoint on disk that is not what it should be.
    #[error("{}: {}", path.display(), excerpt(problem, 600))]
    Checkpoint {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A checkpoint of others that could have been trained on several front ends.
    #[error("{}: nothing in the file tells which front end the network was trained with", .0.display())]
    FrontEndUnknown(PathBuf),
    /// A file of a run that a later program wrote.
    #[error("{origin}: written in format {found}, this program reads formats up to {newest}")]
    NewerFormat {
        /// The file.
        origin: String,
        /// Its format.
        found: u32,
        /// The newest that this program knows.
        newest: u32,
    },
    /// There is a run in the folder already.
    #[error("{} holds a run already", .0.display())]
    Exists(PathBuf),
    /// Another process trains in the folder.
    #[error("{}: {problem}, which is training here", run.display())]
    Busy {
        /// The folder of the run.
        run: PathBuf,
        /// Which process, as far as it is known.
        problem: String,
    },
    /// The log of a run ends before its checkpoint was written.
    #[error("{}: {source}", path.display())]
    ShortLog {
        /// The file.
        path: PathBuf,
        /// How much is missing.
        source: std::io::Error,
    },
    /// The corpus is not the one that the checkpoint was trained on.
    #[error("{}: {corpus} has changed since its last checkpoint: it had {had}, now it has {has}", run.display())]
    CorpusChanged {
        /// The folder of the run.
        run: PathBuf,
        /// Which corpus of the recipe.
        corpus: &'static str,
        /// What was there.
        had: String,
        /// What is there.
        has: String,
    },
    /// The loss or a gradient became NaN or infinite.
    #[error("step {step} (epoch {epoch}): {what}")]
    NotFinite {
        /// The step that failed, from 1.
        step: u64,
        /// Its epoch, from 1.
        epoch: u64,
        /// What became so first.
        what: String,
        /// The folder of the last good checkpoint, if one was written.
        last: Option<PathBuf>,
    },
    /// Ranks that should have the same weights and duals do not.
    #[error("step {step}: weights, duals or λ of rank {rank} are not those of rank 0")]
    RanksDiffer {
        /// Steps taken.
        step: u64,
        /// The first rank that differs.
        rank: usize,
    },
    /// The optimizer or the controller refused.
    #[error(transparent)]
    Method(#[from] bregman::Error),
    /// The network refused.
    #[error(transparent)]
    Network(#[from] bregman_nn::Error),
    /// The corpus of a recipe is not there.
    #[error("{}: there is neither a manifest nor a folder of shards", path.display())]
    NoCorpus {
        /// What the recipe names.
        path: PathBuf,
        /// The folder of the corpus.
        root: PathBuf,
    },
    /// The corpus refused.
    #[error(transparent)]
    Corpus(#[from] bregman_speaker::Error),
}

/// Short for this crate's results.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<bregman_tensor::Error> for Error {
    fn from(error: bregman_tensor::Error) -> Self {
        Self::Network(bregman_nn::Error::Device(error))
    }
}

impl Error {
    /// What the user can do about it, where there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::FrontEndUnknown(_) => Some(
                "name it: --front-end 3d-speaker or wespeaker (in a recipe front_end); these train the same network on \
                 different features"
                    .to_owned(),
            ),
            Self::NewerFormat { .. } => Some("it is of a newer bregman: use that one, or update this one".to_owned()),
            Self::Exists(_) => Some("continue it with --resume, or choose another --out".to_owned()),
            Self::Busy { .. } => Some("wait until it has ended, or choose another --out".to_owned()),
            Self::ShortLog { .. } => Some("put back a copy of it, or train anew with another --out".to_owned()),
            Self::CorpusChanged { .. } => {
                Some("put the corpus back as it was, or train anew with another --out".to_owned())
            }
            Self::NoCorpus { path, root } if root.is_dir() => {
                let (root, path) = (root.display(), path.display());
                Some(format!("list the audio of {root}: bregman prepare folder {root} --out {path}"))
            }
            Self::NoCorpus { .. } => Some("set data.root to the folder of the corpus".to_owned()),
            Self::RanksDiffer { .. } => Some(
                "this is a fault of a machine or of this program: continue from the last checkpoint with --resume"
                    .to_owned(),
            ),
            Self::NotFinite { last, .. } => {
                let advice = "lower the learning rate (--set train.lr=…) or clip gradients (--set train.clip=1)";
                Some(match last {
                    Some(last) => format!("the last good checkpoint is {}; {advice}", last.display()),
                    None => advice.to_owned(),
                })
            }
            Self::Io { source, .. } | Self::Network(bregman_nn::Error::File { source, .. }) => match source.kind() {
                ErrorKind::NotFound => Some("check the path".to_owned()),
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                    Some("free some space, then continue with --resume: the last checkpoint is whole".to_owned())
                }
                _ => None,
            },
            Self::Corpus(error) => error.hint().map(str::to_owned),
            Self::Network(bregman_nn::Error::Device(error)) => error.hint().map(str::to_owned),
            _ => None,
        }
    }

    /// True when the input is at fault (exit code 2), false for a failure of the machine or the run (exit code 1).
    pub fn is_user_mistake(&self) -> bool {
        match self {
            Self::Io { source, .. } | Self::Network(bregman_nn::Error::File { source, .. }) => {
                matches!(source.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput | ErrorKind::InvalidData)
            }
            Self::NotFinite { .. } | Self::RanksDiffer { .. } => false,
            Self::Corpus(error) => error.is_user_mistake(),
            Self::Network(bregman_nn::Error::Device(error)) => error.is_unavailable(),
            _ => true,
        }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }

    pub(crate) fn checkpoint(path: &Path, problem: impl Into<String>) -> Self {
        Self::Checkpoint { path: path.to_owned(), problem: problem.into() }
    }
}

impl From<bregman_base::files::FileError> for Error {
    fn from(error: bregman_base::files::FileError) -> Self {
        Self::Io { path: error.path, source: error.source }
    }
}

/// `Err` naming `field` unless `ok`: the one place where settings are refused.
pub(crate) fn require(ok: bool, field: &'static str, value: impl ToString, expected: impl Into<String>) -> Result<()> {
    if ok { Ok(()) } else { Err(Error::Setting { field, value: value.to_string(), expected: expected.into() }) }
}
