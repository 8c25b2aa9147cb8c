//! An error of the operating system and the file it is about.

use std::io;
use std::path::{Path, PathBuf};

/// What went wrong with which file or folder.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct FileError {
    /// The file or folder.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

impl FileError {
    /// Names the file an error is about: `operation.map_err(FileError::at(path))`.
    pub fn at(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self { path, source }
    }
}
