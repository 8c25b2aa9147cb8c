//! Files that only grow: logs, journals, stores.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;

use super::file::check;
use super::{FileError, sync_parent};

/// Opens `path` to append to its first `length` bytes; what comes after them is cut off. A new file is empty.
///
/// # Errors
/// [`ErrorKind::UnexpectedEof`] where the file is shorter: it is not padded. If the system refuses, or if there is
/// something at `path` that is no regular file.
pub fn append_after(path: &Path, length: u64) -> Result<File, FileError> {
    let open = || {
        let file = open_for_appending(path)?;
        let found = file.metadata()?.len();
        if found < length {
            let message = format!("has {found} bytes where {length} were written: its end is missing");
            return Err(io::Error::new(ErrorKind::UnexpectedEof, message));
        }
        if found > length {
            file.set_len(length)?;
        }
        Ok(file)
    };
    open().map_err(FileError::at(path))
}

/// Opens `path` to append to it.
///
/// # Errors
/// If the system refuses, or if there is something at `path` that is no regular file.
pub fn append_to(path: &Path) -> Result<File, FileError> {
    open_for_appending(path).map_err(FileError::at(path))
}

fn open_for_appending(path: &Path) -> io::Result<File> {
    check(path)?;
    let there = path.exists();
    let file = OpenOptions::new().create(true).append(true).read(true).open(path)?;
    if !there {
        sync_parent(path)?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "makes files")]
    fn a_file_is_cut_off_where_it_was_whole_and_never_padded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        append_after(&path, 0).unwrap().write_all(b"one two").unwrap();
        append_after(&path, 3).unwrap().write_all(b" three").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one three");
        let short = append_after(&path, 10).unwrap_err();
        assert_eq!(short.source.kind(), ErrorKind::UnexpectedEof);
        assert!(short.to_string().contains("9 bytes where 10 were written"), "{short}");
        append_to(&path).unwrap().write_all(b"!").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one three!");
        assert_eq!(append_to(dir.path()).unwrap_err().source.kind(), ErrorKind::InvalidInput);
    }
}
