//! From whatever is on disk to log-mel filterbanks.
//!
//! ```text
//! file ─▶ decode (any rate, mono) ─▶ resample (16 kHz) ─▶ level ─▶ cut ─▶ filterbank ─▶ mean subtraction
//! ```
#![forbid(unsafe_code)]

mod augment;
mod decode;
mod error;
mod fbank;
mod level;
mod resample;
mod vad;
mod wav;

pub use augment::{Augment, AugmentConfig, MaskConfig, NoiseConfig, ReverbConfig, add_noise, change_speed, reverberate};
pub use decode::{Decoder, MAX_SECONDS, Probe, decode_bytes, decode_file, decode_range, probe};
pub use error::{Error, Result};
pub use fbank::{Fbank, FbankConfig, FbankStream, Features, FrontEnd, Window};
pub use level::{cut, level};
pub use resample::resample;
pub use vad::Vad;
pub use wav::{wav_bytes, write_wav};

/// Mono sound.
#[derive(Clone, Debug, PartialEq)]
pub struct Audio {
    /// Samples, nominally in [−1, 1].
    pub samples: Vec<f32>,
    /// Samples per second.
    pub rate: u32,
}

impl Audio {
    /// Length in seconds.
    pub fn seconds(&self) -> f64 {
        self.samples.len() as f64 / f64::from(self.rate)
    }
}

/// The rate that everything after loading works at.
pub const RATE: u32 = 16_000;

/// Decodes a file and resamples it to 16 kHz.
pub fn load_16k(path: impl AsRef<std::path::Path>) -> Result<Vec<f32>> {
    let path = path.as_ref();
    let audio = decode_file(path)?;
    resample(&audio, RATE).map_err(|error| error.in_file(path)).map(|audio| audio.samples)
}
