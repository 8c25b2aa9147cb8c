//! From audio files to log-mel filterbanks.
//!
//! ```text
//! file ─▶ decode (any rate, mono) ─▶ resample (16 kHz) ─▶ level ─▶ cut ─▶ filterbank ─▶ mean subtraction
//! ```
//!
//! | step | here |
//! | --- | --- |
//! | WAV, FLAC, MP3, M4A, Ogg to mono samples | [`decode_file`], [`decode_range`], [`decode_bytes`], [`Decoder`] |
//! | the header alone | [`probe`] |
//! | 16 kHz | [`resample`], [`load_16k`] |
//! | −20 dB RMS, 3 s pieces | [`level`], [`cut`]; any speech at all: [`check_speech`], where: [`speech_regions`] |
//! | features | [`Fbank`] for whole utterances, [`FbankStream`] for streaming audio |
//! | augmentation, off by default | [`Augment`] |
//!
//! The filterbank equals SpeechBrain's or Kaldi's to single precision ([`FbankConfig`]); its settings are stored with a
//! model. Arbitrary bytes give an error or audio, never a panic; errors name the file.
//!
//! ```
//! use bregman_audio::{Fbank, FbankConfig, cut, level};
//!
//! # fn main() -> bregman_audio::Result<()> {
//! let mut samples: Vec<f32> = (0..100_000).map(|i| (i as f32 * 0.05).sin()).collect(); // or load_16k("speech.flac")?
//! level(&mut samples);
//! let mut fbank = Fbank::new(FbankConfig::speechbrain())?;
//! for piece in cut(samples.len(), 16_000, 3.0) {
//!     let mut features = fbank.compute(&samples[piece]);
//!     features.subtract_mean();
//!     assert_eq!((features.frames, features.bins), (301, 80));
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod activity;
mod augment;
mod decode;
mod error;
mod fbank;
mod level;
mod resample;
mod speech;
mod wav;

pub use activity::speech_regions;
pub use augment::{
    Augment, AugmentConfig, MaskConfig, NoiseConfig, ReverbConfig, add_noise, change_speed, pink_noise, reverberate,
    room_response,
};
pub use decode::{Decoder, MAX_SECONDS, Probe, decode_bytes, decode_file, decode_range, probe};
pub use error::{Error, Result};
pub use fbank::{Fbank, FbankConfig, FbankStream, Features, FilterbankKind, Waveform, Window};
pub use level::{cut, level};
pub use resample::resample;
pub use speech::check_speech;
pub use wav::{wav_bytes, write_wav};

/// The sampling rate of everything after loading.
pub const RATE: u32 = 16_000;

/// Mono audio.
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

/// Decodes a file to mono at 16 kHz.
pub fn load_16k(path: impl AsRef<std::path::Path>) -> Result<Vec<f32>> {
    let path = path.as_ref();
    let audio = decode_file(path)?;
    if audio.rate == RATE {
        return Ok(audio.samples);
    }
    resample(&audio, RATE).map_err(|error| error.in_file(path)).map(|audio| audio.samples)
}
