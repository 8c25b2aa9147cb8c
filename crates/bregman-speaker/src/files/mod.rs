//! Files that are either whole or absent: written to a temporary name beside the target, synced, renamed.

pub(crate) mod hash;
pub(crate) mod mmap;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// `dir/name.suffix` for `dir/name`: the name stays complete, so `a.csv` and `a.txt` never share a companion.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    PathBuf::from(name)
}

/// Fails early, before long work, if `path` exists and may not be replaced.
pub(crate) fn check_free(path: &Path, force: bool) -> Result<()> {
    if !force && path.exists() { Err(Error::Exists(path.to_owned())) } else { Ok(()) }
}

/// Creates the folders above `path`.
pub(crate) fn create_parent(path: &Path) -> Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => fs::create_dir_all(parent).map_err(Error::io(parent)),
        _ => Ok(()),
    }
}

/// Writes `path` through `fill`; nobody ever sees half a file, and an error leaves what was there before.
pub(crate) fn write_whole(
    path: &Path,
    force: bool,
    fill: impl FnOnce(&mut BufWriter<File>) -> Result<()>,
) -> Result<()> {
    check_free(path, force)?;
    create_parent(path)?;
    let temporary = beside(path, "tmp");
    let written = (|| {
        let mut writer = BufWriter::with_capacity(1 << 18, File::create(&temporary).map_err(Error::io(&temporary))?);
        fill(&mut writer)?;
        writer.flush().map_err(Error::io(path))?;
        writer.get_ref().sync_all().map_err(Error::io(path))?;
        fs::rename(&temporary, path).map_err(Error::io(path))
    })();
    if written.is_err() {
        let _ = fs::remove_file(&temporary); // the first error is the one to report
    }
    written
}

/// Writes one of many files: renamed into place like [`write_whole`], replacing what was there, but without waiting for
/// the disk.
pub(crate) fn write_bytes(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = beside(path, "tmp");
    fs::write(&temporary, bytes).map_err(Error::io(&temporary))?;
    fs::rename(&temporary, path).map_err(Error::io(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_while_writing_leaves_the_old_file_and_no_rubbish() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/list.csv");
        write_whole(&path, false, |w| w.write_all(b"old").map_err(Error::io(Path::new("a")))).unwrap();
        assert!(matches!(write_whole(&path, false, |_| Ok(())), Err(Error::Exists(_))));
        write_whole(&path, true, |w| {
            w.write_all(b"half").unwrap();
            Err(Error::format(Path::new("x"), "stop"))
        })
        .unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        write_whole(&path, true, |w| w.write_all(b"new").map_err(Error::io(Path::new("a")))).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
}
