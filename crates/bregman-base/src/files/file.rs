//! One file: written to a temporary name in the same folder, synced, renamed.

use std::collections::BTreeMap;
use std::fs::{self, File, FileType};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{FileError, beside, sync_parent};

/// Writes `bytes` to `path`. Nobody ever sees half a file, an error leaves what was there before, and after a return
/// the file is on disk.
///
/// # Errors
/// If the system refuses, or if there is something at `path` that is no regular file.
pub fn write_file(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), FileError> {
    replace(path, true, |file, _| { file }.write_all(bytes.as_ref()).map_err(FileError::at(path)))
}

/// As [`write_file`], through a buffered writer.
///
/// # Errors
/// As [`write_file`], and those of `fill`.
pub fn write_file_with<E: From<FileError>>(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<&File>) -> Result<(), E>,
) -> Result<(), E> {
    replace(path, true, |file, _| {
        let mut writer = BufWriter::with_capacity(1 << 18, file);
        fill(&mut writer)?;
        Ok(writer.flush().map_err(FileError::at(path))?)
    })
}

/// As [`write_file`], for libraries that write to a path: `fill` gets the temporary one.
///
/// # Errors
/// As [`write_file`], and those of `fill`.
pub fn write_file_at<E: From<FileError>>(path: &Path, fill: impl FnOnce(&Path) -> Result<(), E>) -> Result<(), E> {
    replace(path, true, |_, temporary| fill(temporary))
}

/// As [`write_file`], without waiting for the disk: for a file that can be made again, or one of many before
/// [`sync_files`].
///
/// # Errors
/// As [`write_file`].
pub fn write_unsynced(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), FileError> {
    replace(path, false, |file, _| { file }.write_all(bytes.as_ref()).map_err(FileError::at(path)))
}

/// Waits until these files and their names are on disk.
///
/// # Errors
/// If the system refuses.
pub fn sync_files(paths: &[PathBuf]) -> Result<(), FileError> {
    for path in paths {
        File::open(path).and_then(|file| file.sync_all()).map_err(FileError::at(path))?;
    }
    let one_in_each: BTreeMap<_, _> = paths.iter().map(|path| (path.parent(), path)).collect();
    one_in_each.values().try_for_each(|path| sync_parent(path).map_err(FileError::at(path)))
}

/// Writes a temporary file next to `path`, then renames it to `path`.
fn replace<E: From<FileError>>(
    path: &Path,
    synced: bool,
    fill: impl FnOnce(&File, &Path) -> Result<(), E>,
) -> Result<(), E> {
    check(path).map_err(FileError::at(path))?;
    let temporary = temporary(path);
    let file = File::create_new(&temporary).map_err(FileError::at(path))?;
    let finish = || {
        if synced {
            file.sync_all()?;
        }
        fs::rename(&temporary, path)?;
        if synced { sync_parent(path) } else { Ok(()) }
    };
    let written = fill(&file, &temporary).and_then(|()| Ok(finish().map_err(FileError::at(path))?));
    if written.is_err() {
        let _ = fs::remove_file(&temporary); // the first error is the one to report
    }
    written
}

/// A name that no other call has: writers of the same file do not meet, and the last one wins.
fn temporary(path: &Path) -> PathBuf {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    beside(path, &format!(".{}-{}.tmp", std::process::id(), CALLS.fetch_add(1, Ordering::Relaxed)))
}

/// Removes what killed writers left in `folder`: only for those who hold its lock, as a living writer's file looks the
/// same.
///
/// # Errors
/// If the system refuses.
pub fn remove_temporaries(folder: &Path) -> Result<(), FileError> {
    for entry in fs::read_dir(folder).map_err(FileError::at(folder))? {
        let path = entry.map_err(FileError::at(folder))?.path();
        if is_temporary(&path) {
            fs::remove_file(&path).map_err(FileError::at(&path))?;
        }
    }
    Ok(())
}

/// Whether [`temporary`] made this name.
fn is_temporary(path: &Path) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|letter| letter.is_ascii_digit());
    let numbers = |name: &str| -> Option<bool> {
        let (process, call) = name.strip_suffix(".tmp")?.rsplit_once('.')?.1.split_once('-')?;
        Some(digits(process) && digits(call))
    };
    path.file_name().and_then(|name| name.to_str()).and_then(numbers).unwrap_or(false)
}

/// A rename replaces what is there: only a file may be replaced.
pub(super) fn check(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_file() => Ok(()),
        Ok(there) => {
            let kind = kind(there.file_type());
            Err(io::Error::new(ErrorKind::InvalidInput, format!("is {kind}; only a regular file can be replaced")))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// What is no regular file, in words.
pub(super) fn kind(what: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if what.is_fifo() {
            return "a FIFO";
        }
        if what.is_socket() {
            return "a socket";
        }
        if what.is_char_device() || what.is_block_device() {
            return "a device";
        }
    }
    if what.is_dir() {
        "a folder"
    } else if what.is_symlink() {
        "a symbolic link"
    } else {
        "a special file"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes files")]
    fn an_error_while_writing_leaves_the_old_file_and_no_temporary_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list.csv");
        write_file(&path, "old").unwrap();
        let stopped = write_file_with(&path, |writer| {
            writer.write_all(b"half").map_err(FileError::at(&path))?;
            Err(FileError::at(Path::new("input.wav"))(ErrorKind::UnexpectedEof.into()))
        });
        assert_eq!(stopped.unwrap_err().path, Path::new("input.wav"));
        assert_eq!((fs::read(&path).unwrap(), entries(dir.path())), (b"old".to_vec(), 1));
        write_file_with(&path, |writer| writer.write_all(b"new").map_err(FileError::at(&path))).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        write_file_at(&path, |temporary| fs::write(temporary, "newer").map_err(FileError::at(temporary))).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"newer");
        write_unsynced(&path, [1, 2]).unwrap();
        assert_eq!((fs::read(&path).unwrap(), entries(dir.path())), (vec![1, 2], 1));
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes files")]
    fn what_is_no_regular_file_is_refused_by_name_and_kind() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |path: &Path| write_file(path, "text").unwrap_err().to_string();
        let message = refused(dir.path());
        assert!(message.contains("a folder") && message.contains(&dir.path().display().to_string()), "{message}");
        #[cfg(unix)]
        {
            let (target, link) = (dir.path().join("target"), dir.path().join("link"));
            fs::write(&target, "kept").unwrap();
            std::os::unix::fs::symlink(&target, &link).unwrap();
            assert!(refused(&link).contains("a symbolic link"), "{}", refused(&link));
            assert!(refused(Path::new("/dev/null")).contains("a device"));
            assert_eq!((fs::read(&target).unwrap(), entries(dir.path())), (b"kept".to_vec(), 2));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes files")]
    fn a_missing_folder_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("missing/file");
        let error = write_file(&path, "").unwrap_err();
        assert_eq!((error.path, error.source.kind()), (path, ErrorKind::NotFound));
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes files")]
    fn what_a_killed_writer_left_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index.csv");
        for kept in ["index.csv", "a.tmp", "b.1-x.tmp", "c.12.tmp"] {
            fs::write(dir.path().join(kept), "kept").unwrap();
        }
        fs::write(temporary(&path), "half").unwrap();
        fs::write(temporary(&dir.path().join("no-extension")), "half").unwrap();
        assert_eq!(entries(dir.path()), 6);
        remove_temporaries(dir.path()).unwrap();
        assert_eq!(entries(dir.path()), 4);
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes files")]
    fn writers_of_the_same_file_do_not_meet() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::thread::scope(|scope| {
            for writer in 0..4u8 {
                let path = &path;
                scope.spawn(move || (0..20).for_each(|_| write_unsynced(path, vec![writer; 10_000]).unwrap()));
            }
        });
        let bytes = fs::read(&path).unwrap();
        assert!(bytes.len() == 10_000 && bytes.iter().all(|byte| *byte == bytes[0]));
        assert_eq!(entries(dir.path()), 1);
    }
}
