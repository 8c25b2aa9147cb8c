//! Memory-mapped files: the one place of this crate with `unsafe`.
#![allow(unsafe_code)]

use std::fs::File;
use std::path::Path;

use memmap2::Mmap;

use crate::{Error, Result};

/// Maps a file for reading.
pub(crate) fn map(path: &Path) -> Result<Mmap> {
    let file = File::open(path).map_err(Error::io(path))?;
    // SAFETY: shards and caches are never changed in place: this crate writes them to a temporary name and renames, so
    // a mapped file keeps its bytes even when it is replaced. A program that truncates one in place would end us
    // with SIGBUS, as with any mapping.
    unsafe { Mmap::map(&file) }.map_err(Error::io(path))
}
