//! Reading files that anybody may have made.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use super::FileError;
use super::file::kind;

/// Opens a regular file. A FIFO waits for somebody to write, a device such as `/dev/zero` never ends: both are refused.
///
/// # Errors
/// If the system refuses, or if it is no regular file.
pub fn open_regular(path: &Path) -> Result<File, FileError> {
    let open = || {
        let there = fs::metadata(path)?;
        if !there.is_file() {
            let message = format!("is {}, where a regular file is expected", kind(there.file_type()));
            return Err(io::Error::new(ErrorKind::InvalidInput, message));
        }
        File::open(path)
    };
    open().map_err(FileError::at(path))
}

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
/// As [`open_regular`], and a file that is larger.
pub fn read_bytes(path: &Path, most: u64) -> Result<Vec<u8>, FileError> {
    let file = open_regular(path)?;
    let read = || {
        let expected = file.metadata()?.len().min(most);
        let mut bytes = Vec::new();
        // one byte more, so that the end is found without growing
        bytes.try_reserve_exact(usize::try_from(expected).unwrap_or(usize::MAX).saturating_add(1))?;
        (&file).take(most.saturating_add(1)).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(FileError::at(path))?;
    if bytes.len() as u64 > most {
        return Err(too_large(path, most));
    }
    Ok(bytes)
}

/// That a file has more than `most` bytes.
pub(super) fn too_large(path: &Path, most: u64) -> FileError {
    let limit = if most < 1 << 20 { format!("{most} bytes") } else { format!("{} MB", most >> 20) };
    let message = format!("is larger than {limit}, the most that such a file has");
    FileError::at(path)(io::Error::new(ErrorKind::InvalidData, message))
}

/// Reads a regular file of at most `most` bytes as UTF-8 text, without the mark (BOM) that some editors put first.
///
/// # Errors
/// As [`read_bytes`], and a file that is no text.
pub fn read_text(path: &Path, most: u64) -> Result<String, FileError> {
    let no_text = |_| FileError::at(path)(io::Error::new(ErrorKind::InvalidData, "is not UTF-8 text"));
    let mut text = String::from_utf8(read_bytes(path, most)?).map_err(no_text)?;
    if text.starts_with(MARK) {
        text.drain(..MARK.len_utf8());
    }
    Ok(text)
}

/// The byte order mark, which has no meaning in UTF-8.
pub const MARK: char = '\u{feff}';

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "makes files")]
    fn text_is_read_without_its_mark_and_a_larger_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        fs::write(&path, "\u{feff}é").unwrap();
        assert_eq!(read_text(&path, 5).unwrap(), "é");
        let message = read_text(&path, 4).unwrap_err().to_string();
        assert!(message.contains("text: is larger than 4 bytes"), "{message}");
        fs::write(&path, [0xff]).unwrap();
        assert!(read_text(&path, 5).unwrap_err().to_string().contains("is not UTF-8 text"));
        assert_eq!(read_text(&dir.path().join("none"), 5).unwrap_err().source.kind(), ErrorKind::NotFound);
    }

    #[test]
    #[cfg(unix)]
    #[cfg_attr(miri, ignore = "makes files")]
    fn what_never_ends_is_refused_by_its_kind() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        for (path, kind) in [(fifo.as_path(), "a FIFO"), (Path::new("/dev/zero"), "a device"), (dir.path(), "a folder")]
        {
            let message = open_regular(path).unwrap_err().to_string();
            assert!(message.contains(&format!("is {kind}, where a regular file is expected")), "{message}");
        }
    }
}
