//! A large file, read part by part from any thread.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::FileError;

/// An open file. Unlike a memory map, a part that is not there any more is an error, not the end of the process.
#[derive(Debug)]
pub struct PartsFile {
    file: File,
    path: PathBuf,
}

impl PartsFile {
    /// Opens a regular file for reading (see [`super::open_regular`]).
    ///
    /// # Errors
    /// If the system refuses, or if it is no regular file.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        Ok(Self { file: super::open_regular(path)?, path: path.to_owned() })
    }

    /// Opens a regular file of at most `most` bytes for reading.
    ///
    /// # Errors
    /// As [`PartsFile::open`], and a file that is larger.
    pub fn open_at_most(path: &Path, most: u64) -> Result<Self, FileError> {
        let parts = Self::open(path)?;
        if parts.length()? > most {
            return Err(super::read::too_large(path, most));
        }
        Ok(parts)
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its present length.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn length(&self) -> Result<u64, FileError> {
        Ok(self.file.metadata().map_err(FileError::at(&self.path))?.len())
    }

    /// `length` bytes from `at` on.
    ///
    /// # Errors
    /// [`ErrorKind::UnexpectedEof`] where the file ends before that, and what the system says.
    pub fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, FileError> {
        let mut part = vec![0; length];
        self.read_into(at, &mut part)?;
        Ok(part)
    }

    /// Fills `part` with the bytes from `at` on.
    ///
    /// # Errors
    /// As [`PartsFile::read`].
    pub fn read_into(&self, at: u64, part: &mut [u8]) -> Result<(), FileError> {
        read_exact_at(&self.file, at, part).map_err(|error| {
            let error = match error.kind() {
                ErrorKind::UnexpectedEof => {
                    let end = at + part.len() as u64;
                    io::Error::new(error.kind(), format!("ends before byte {end}: was it cut off?"))
                }
                _ => error,
            };
            FileError::at(&self.path)(error)
        })
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, at: u64, part: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, part, at)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut at: u64, mut part: &mut [u8]) -> io::Result<()> {
    while !part.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, part, at)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            read => {
                at += read as u64;
                part = &mut part[read..];
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "makes files")]
    fn parts_are_read_at_any_place_and_a_missing_end_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        super::super::write_file(&path, "0123456789").unwrap();
        let file = PartsFile::open(&path).unwrap();
        assert_eq!((file.read(7, 3).unwrap(), file.length().unwrap()), (b"789".to_vec(), 10));
        File::options().write(true).open(&path).unwrap().set_len(8).unwrap();
        let error = file.read(7, 3).unwrap_err();
        assert_eq!((error.source.kind(), &error.path), (ErrorKind::UnexpectedEof, &path));
        assert!(error.to_string().contains("ends before byte 10"), "{error}");
    }
}
