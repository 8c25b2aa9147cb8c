//! Writing 16-bit mono WAV, for the synthetic corpus, `shard` and the tests.

use std::path::Path;

use bregman_base::files::write_unsynced;

use crate::{Audio, Error, Result};

/// Writes 16-bit mono PCM; samples outside [−1, 1) are clipped.
pub fn write_wav(path: impl AsRef<Path>, audio: &Audio) -> Result<()> {
    let path = path.as_ref();
    write_unsynced(path, wav_bytes(audio)).map_err(|error| Error::Io(error.source).in_file(path))
}

/// A whole 16-bit mono WAV file in memory.
pub fn wav_bytes(audio: &Audio) -> Vec<u8> {
    let data = 2 * audio.samples.len() as u32;
    let mut bytes = Vec::with_capacity(44 + data as usize);
    bytes.extend_from_slice(b"RIFF");
    bytes.extend_from_slice(&(36 + data).to_le_bytes());
    bytes.extend_from_slice(b"WAVEfmt ");
    bytes.extend_from_slice(&16u32.to_le_bytes());
    bytes.extend_from_slice(&1u16.to_le_bytes());
    bytes.extend_from_slice(&1u16.to_le_bytes());
    bytes.extend_from_slice(&audio.rate.to_le_bytes());
    bytes.extend_from_slice(&(2 * audio.rate).to_le_bytes());
    bytes.extend_from_slice(&2u16.to_le_bytes());
    bytes.extend_from_slice(&16u16.to_le_bytes());
    bytes.extend_from_slice(b"data");
    bytes.extend_from_slice(&data.to_le_bytes());
    for sample in &audio.samples {
        let quantised = (sample * 32768.0).round().clamp(-32768.0, 32767.0) as i16;
        bytes.extend_from_slice(&quantised.to_le_bytes());
    }
    bytes
}
