//! A model of the runtime: from a file, or from a run or checkpoint as `bregman export` would write it.

use std::path::{Path, PathBuf};

use bregman_runtime::{Model, Options, ValueFormat};
use bregman_train::Deployable;

use crate::failure::Failure;
use crate::network::is_model_file;

/// Where a model comes from.
pub(crate) struct RuntimeSource {
    path: PathBuf,
    /// The file that a run or checkpoint would become.
    exported: Option<Vec<u8>>,
}

impl RuntimeSource {
    /// Finds a model file, a run or a checkpoint, whose values are rounded to `format`.
    pub(crate) fn find(path: &Path, format: ValueFormat) -> Result<Self, Failure> {
        let exported =
            if is_model_file(path) { None } else { Some(Deployable::open(path)?.to_model()?.to_bytes(format)?) };
        Ok(Self { path: path.to_owned(), exported })
    }

    /// The model on so many threads; 0 for every core.
    pub(crate) fn open(&self, threads: usize) -> Result<Model, Failure> {
        let options = Options { threads, ..Options::default() };
        let opened = match &self.exported {
            Some(bytes) => Model::from_bytes_with(bytes, &options),
            None => Model::open_with(&self.path, &options),
        };
        opened.map_err(|error| Failure::from(error).in_file(&self.path))
    }
}
