//! One folder, replaced as a whole.
//!
//! A folder cannot be renamed over another, so the old one steps aside first: `NAME` → `NAME.old`, `NAME.new` → `NAME`.
//! Whenever the process is killed, `NAME` or else `NAME.old` is whole; [`present_folder`] finds it.

use std::fs::{self, DirEntry};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{FileError, beside, sync_files, sync_parent};

/// Replaces the folder `path` by the files that `fill` writes; on an error the old one stays. After a return it is on
/// disk.
///
/// # Errors
/// If the system refuses, and those of `fill`.
pub fn replace_folder<E: From<FileError>>(path: &Path, fill: impl FnOnce(&Path) -> Result<(), E>) -> Result<(), E> {
    let (new, old) = (beside(path, ".new"), beside(path, ".old"));
    settle_folder(path)?;
    fs::create_dir_all(&new).map_err(FileError::at(&new))?;
    let written = fill(&new).and_then(|()| Ok(exchange(path, &new, &old)?));
    if written.is_err() {
        let _ = remove(&new); // the first error is the one to report
    }
    written
}

/// Puts in order what a process left that was killed while it replaced the folder `path`: `NAME` is there if any of it
/// was, `NAME.new` and `NAME.old` are not.
///
/// # Errors
/// If the system refuses.
pub fn settle_folder(path: &Path) -> Result<(), FileError> {
    let old = beside(path, ".old");
    if !path.exists() && old.exists() {
        fs::rename(&old, path).and_then(|()| sync_parent(path)).map_err(FileError::at(&old))?;
    }
    remove(&old)?;
    remove(&beside(path, ".new"))
}

/// The folder that is whole, if there is one.
pub fn present_folder(path: &Path) -> Option<PathBuf> {
    [path.to_owned(), beside(path, ".old")].into_iter().find(|path| path.is_dir())
}

/// Puts `new` in the place of `path`.
fn exchange(path: &Path, new: &Path, old: &Path) -> Result<(), FileError> {
    let names = fs::read_dir(new).and_then(Iterator::collect::<std::io::Result<Vec<_>>>).map_err(FileError::at(new))?;
    sync_files(&names.iter().map(DirEntry::path).collect::<Vec<_>>())?;
    remove(old)?;
    step_aside(path, new, old)?;
    sync_parent(path).map_err(FileError::at(path))?;
    remove(old)
}

/// Renames `path` to `old` and `new` to `path`. If the second is refused, the first is undone.
fn step_aside(path: &Path, new: &Path, old: &Path) -> Result<(), FileError> {
    match fs::rename(path, old) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(FileError::at(path)(error)),
        _ => {}
    }
    fs::rename(new, path).map_err(|error| {
        let _ = fs::rename(old, path); // the first error is the one to report; `settle_folder` tries again
        FileError::at(path)(error)
    })
}

fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(FileError::at(path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) -> Result<(), FileError> {
        replace_folder(path, |folder| fs::write(folder.join("a"), text).map_err(FileError::at(folder)))
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes files")]
    fn a_failed_write_leaves_the_old_folder_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("last");
        write(&path, "one").unwrap();
        let full = |folder: &Path| {
            fs::write(folder.join("a"), "half").unwrap();
            Err(FileError::at(folder)(ErrorKind::StorageFull.into()))
        };
        assert_eq!(replace_folder(&path, full).unwrap_err().source.kind(), ErrorKind::StorageFull);
        assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "one");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        write(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "two");
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes files")]
    fn between_the_renames_the_old_folder_is_found_and_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("last");
        write(&path, "one").unwrap();
        fs::rename(&path, beside(&path, ".old")).unwrap();
        fs::create_dir(beside(&path, ".new")).unwrap();
        let found = present_folder(&path).unwrap();
        assert_eq!(fs::read_to_string(found.join("a")).unwrap(), "one");
        settle_folder(&path).unwrap();
        assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "one");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);

        step_aside(&path, &beside(&path, ".new"), &beside(&path, ".old")).unwrap_err(); // there is no new folder
        assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "one");

        fs::create_dir(beside(&path, ".old")).unwrap(); // killed after the second rename
        write(&path, "two").unwrap();
        assert_eq!(present_folder(&path).unwrap(), path);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
