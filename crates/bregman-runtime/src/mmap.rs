//! A model file in memory without reading it first.

use std::fs::File;
use std::path::Path;

use memmap2::Mmap;

use crate::{Error, Result};

/// Maps a file for reading.
pub(crate) fn map(path: &Path) -> Result<Mmap> {
    let file = File::open(path).map_err(Error::file(path))?;
    // SAFETY: the map lives only while the weights are decoded into memory of their own. Model files are written under
    // a temporary name and renamed, so that one keeps its bytes while it is mapped; a program that truncates it in
    // place just then ends us with SIGBUS.
    unsafe { Mmap::map(&file) }.map_err(Error::file(path))
}
