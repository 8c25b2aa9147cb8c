//! A folder of audio files to draw from.

use std::path::{Path, PathBuf};

use rand::{Rng, RngExt};

use crate::{Error, RATE, Result, decode_file, decode_range, probe, resample};

/// File extensions that count as audio.
const EXTENSIONS: [&str; 6] = ["wav", "flac", "mp3", "m4a", "ogg", "aac"];

/// Audio files in a folder and its subfolders, sorted by name.
#[derive(Default)]
pub(super) struct AudioFolder(Vec<PathBuf>);

impl AudioFolder {
    pub(super) fn list(field: &'static str, folder: &Path) -> Result<Self> {
        let mut files = Vec::new();
        let mut open = vec![folder.to_path_buf()];
        while let Some(folder) = open.pop() {
            for entry in std::fs::read_dir(&folder).map_err(|error| Error::Io(error).in_file(&folder))? {
                let entry = entry.map_err(|error| Error::Io(error).in_file(&folder))?;
                let path = entry.path();
                let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
                // Links to folders are not followed: they can form loops.
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    open.push(path);
                } else if extension.is_some_and(|extension| EXTENSIONS.contains(&extension.as_str())) {
                    files.push(path);
                }
            }
        }
        files.sort();
        if files.is_empty() {
            return Err(Error::config(field, folder.display(), "a folder with audio files in it"));
        }
        Ok(Self(files))
    }

    /// One of the files at 16 kHz; of a file longer than `length` samples a random part of that length.
    pub(super) fn any(&self, random: &mut impl Rng, length: Option<usize>) -> Result<Vec<f32>> {
        let path = &self.0[random.random_range(0..self.0.len())];
        let header = probe(path)?;
        let needed = length.map(|length| (length as u64 * u64::from(header.rate)).div_ceil(RATE.into()));
        let audio = match (header.frames, needed) {
            (Some(frames), Some(needed)) if needed < frames => {
                let start = random.random_range(0..=frames - needed);
                decode_range(path, start..start + needed)
            }
            _ => decode_file(path),
        }?;
        Ok(resample(&audio, RATE).map_err(|error| error.in_file(path))?.samples)
    }
}
