//! A file in memory without reading it first.

use std::fs::File;
use std::path::Path;

pub use memmap2::Mmap;

use super::FileError;

/// Maps a file for reading.
///
/// # Errors
/// If it cannot be opened or mapped.
pub fn map(path: &Path) -> Result<Mmap, FileError> {
    let file = File::open(path).map_err(FileError::at(path))?;
    // SAFETY: model files are never changed in place: they are written under a temporary name and
    // renamed (see `write_file`), so a mapped file keeps its bytes even when it is replaced. A program that truncates
    // one in place would end us with SIGBUS, as with any mapping.
    unsafe { Mmap::map(&file) }.map_err(FileError::at(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "makes files")]
    fn a_mapped_file_keeps_its_bytes_when_it_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        super::super::write_file(&path, "old").unwrap();
        let mapped = map(&path).unwrap();
        super::super::write_file(&path, "newer").unwrap();
        assert_eq!(&mapped[..], b"old");
        assert_eq!(&map(&path).unwrap()[..], b"newer");
        assert_eq!(map(&dir.path().join("none")).unwrap_err().path, dir.path().join("none"));
    }
}
