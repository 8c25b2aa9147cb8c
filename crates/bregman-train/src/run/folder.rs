//! Folders that are either whole or absent: written under a temporary name, synced, renamed.
//!
//! A folder cannot be renamed over another, so the old one steps aside first: `NAME` → `NAME.old`, `NAME.new` → `NAME`.
//! Whenever the process is killed, `NAME` or else `NAME.old` is whole; [`present`] finds it.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Replaces the folder `path` by what `fill` writes; on an error the old one stays.
pub(crate) fn replace(path: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let (new, old) = (beside(path, ".new"), beside(path, ".old"));
    if !path.exists() && old.exists() {
        fs::rename(&old, path).map_err(Error::io(&old))?; // killed between the two renames below
    }
    remove(&new)?;
    fs::create_dir_all(&new).map_err(Error::io(&new))?;
    let written = fill(&new).and_then(|()| sync(&new)).and_then(|()| {
        remove(&old)?;
        match fs::rename(path, &old) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(Error::io(path)(error)),
            _ => {}
        }
        fs::rename(&new, path).map_err(Error::io(path))?;
        remove(&old)
    });
    if written.is_err() {
        let _ = remove(&new); // the first error is the one to report
    }
    written
}

/// The folder that is whole, if there is one.
pub(crate) fn present(path: &Path) -> Option<PathBuf> {
    [path.to_owned(), beside(path, ".old")].into_iter().find(|path| path.is_dir())
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io(path)(error)),
        _ => Ok(()),
    }
}

/// Waits until the files of a folder are on disk.
fn sync(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(Error::io(folder))? {
        let path = entry.map_err(Error::io(folder))?.path();
        File::open(&path).and_then(|file| file.sync_all()).map_err(Error::io(&path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) -> Result<()> {
        replace(path, |folder| fs::write(folder.join("a"), text).map_err(Error::io(folder)))
    }

    #[test]
    fn a_failed_write_leaves_the_old_folder_and_no_rubbish() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("last");
        write(&path, "one").unwrap();
        let full = |folder: &Path| {
            fs::write(folder.join("a"), "half").unwrap();
            Err(Error::io(folder)(std::io::Error::from(ErrorKind::StorageFull)))
        };
        assert!(replace(&path, full).unwrap_err().hint().unwrap().contains("--resume"));
        assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "one");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        write(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "two");
    }

    #[test]
    fn killed_between_the_renames_the_old_folder_is_found_and_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("last");
        write(&path, "one").unwrap();
        fs::rename(&path, beside(&path, ".old")).unwrap();
        fs::create_dir(beside(&path, ".new")).unwrap();
        let found = present(&path).unwrap();
        assert_eq!(fs::read_to_string(found.join("a")).unwrap(), "one");
        write(&path, "two").unwrap();
        assert_eq!(present(&path).unwrap(), path);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
