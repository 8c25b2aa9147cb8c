//! Outputs of this crate: not replaced unless forced, in folders that are made, whole or absent.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;

use bregman_base::files::write_file_with;

use crate::{Error, Result};

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
    fill: impl FnOnce(&mut BufWriter<&File>) -> Result<()>,
) -> Result<()> {
    check_free(path, force)?;
    create_parent(path)?;
    write_file_with(path, fill)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn folders_are_made_and_files_only_replaced_by_force() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/list.csv");
        let write = |force, text: &str| {
            write_whole(&path, force, |writer| writer.write_all(text.as_bytes()).map_err(Error::io(&path)))
        };
        write(false, "old").unwrap();
        assert!(matches!(write(false, "new"), Err(Error::Exists(_))));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        write(true, "new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
}
