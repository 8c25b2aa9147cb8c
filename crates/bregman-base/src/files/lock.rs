//! One process at a time: a file beside what it protects, locked by whoever works there.
//!
//! The operating system gives a lock back when its process ends, however it ends: a file that a killed process leaves
//! behind locks nobody out.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Seek, Write};
use std::path::{Path, PathBuf};

use super::FileError;
use super::file::check;

/// A lock, held until it is dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Locks the file `path`, waiting for another process that has it.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn wait(path: &Path) -> Result<Self, FileError> {
        Self::acquire(path, |file| file.lock()).map_err(FileError::at(path))
    }

    /// Locks the file `path` unless another process has it.
    ///
    /// # Errors
    /// [`ErrorKind::ResourceBusy`], whose message names that process, and what the system says.
    pub fn take(path: &Path) -> Result<Self, FileError> {
        let attempt = |file: &File| match file.try_lock() {
            Ok(()) => Ok(()),
            Err(TryLockError::Error(error)) => Err(error),
            Err(TryLockError::WouldBlock) => Err(io::Error::new(ErrorKind::ResourceBusy, holder(path))),
        };
        Self::acquire(path, attempt).map_err(FileError::at(path))
    }

    fn acquire(path: &Path, lock: impl Fn(&File) -> io::Result<()>) -> io::Result<Self> {
        loop {
            check(path)?;
            let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
            match lock(&file) {
                // a file system without locks: nothing to be done about it
                Err(error) if error.kind() != ErrorKind::Unsupported => return Err(error),
                _ => {}
            }
            // who held it has removed it, and others may lock the next file of this name
            if !is_at(&file, path) {
                continue;
            }
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())?;
            return Ok(Self { file, path: path.to_owned() });
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // only where `is_at` can tell; then before the lock is given back, while nobody else holds it
        if cfg!(unix) {
            let _ = fs::remove_file(&self.path);
        }
        let _ = self.file.unlock();
    }
}

/// Whether `path` still names the open file.
fn is_at(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let identity = |data: &fs::Metadata| (data.dev(), data.ino());
        matches!((file.metadata(), fs::metadata(path)), (Ok(a), Ok(b)) if identity(&a) == identity(&b))
    }
    #[cfg(not(unix))]
    {
        let _ = (file, path);
        true
    }
}

/// Who has it, as far as its file says.
fn holder(path: &Path) -> String {
    let number = fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u32>().ok());
    number.map_or("in use by another process".to_owned(), |number| format!("in use by process {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "makes files")]
    fn a_second_taker_learns_who_has_it_and_what_a_dead_process_left_locks_nobody_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        fs::write(&path, "4000000000\n").unwrap();
        let first = Lock::take(&path).unwrap();
        let refused = Lock::take(&path).unwrap_err();
        assert_eq!(refused.source.kind(), ErrorKind::ResourceBusy);
        let expected = format!("in use by process {}", std::process::id());
        assert!(refused.to_string().ends_with(&expected), "{refused}");
        drop(first);
        assert!(!path.exists());
        Lock::take(&path).unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes files")]
    fn those_who_wait_get_it_one_after_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let (lock, count) = (dir.path().join("lock"), dir.path().join("count"));
        fs::write(&count, "0").unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..25 {
                        let _held = Lock::wait(&lock).unwrap();
                        let number: u32 = fs::read_to_string(&count).unwrap().parse().unwrap();
                        fs::write(&count, (number + 1).to_string()).unwrap();
                    }
                });
            }
        });
        assert_eq!(fs::read_to_string(&count).unwrap(), "200");
    }
}
