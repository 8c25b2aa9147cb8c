//! A corpus heard in noise and from afar.

use std::ops::Range;

use bregman_audio::{add_noise, pink_noise, reverberate, room_response};
use bregman_base::hash::content_hash;

use super::AudioSource;
use crate::manifest::Manifest;
use crate::{Error, Result};

/// Conditions that a recording is heard under.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Degradation {
    /// Pink noise at this signal-to-noise ratio in dB.
    pub snr_db: Option<f32>,
    /// A room in which sound falls by 60 dB in so many seconds.
    pub room_seconds: Option<f32>,
}

impl Degradation {
    /// Whether nothing changes.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Refuses conditions that cannot be made.
    ///
    /// # Errors
    /// A ratio outside −30 … 60 dB, a room of no time or of more than 5 seconds.
    pub fn check(&self) -> Result<()> {
        let setting = |field, value: f32, expected| Err(Error::Setting { field, value: value.to_string(), expected });
        match *self {
            Self { snr_db: Some(db), .. } if !(-30.0..=60.0).contains(&db) => {
                setting("noise", db, "a signal-to-noise ratio of -30 to 60 dB")
            }
            Self { room_seconds: Some(seconds), .. } if !(0.05..=5.0).contains(&seconds) => {
                setting("room", seconds, "a reverberation time of 0.05 to 5 seconds")
            }
            _ => Ok(()),
        }
    }

    /// What is heard of `samples`: first the room, then the noise.
    fn apply(&self, samples: &mut [f32], seed: u64) {
        if let Some(seconds) = self.room_seconds {
            samples.copy_from_slice(&reverberate(samples, &room_response(seconds, seed)));
        }
        if let Some(db) = self.snr_db {
            add_noise(samples, &pink_noise(samples.len(), seed ^ 1), db);
        }
    }
}

impl std::fmt::Display for Degradation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let noise = self.snr_db.map(|db| format!("noise {db} dB"));
        let room = self.room_seconds.map(|seconds| format!("room {seconds} s"));
        f.write_str(&[noise, room].into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// Another source under such conditions; what disturbs a recording follows from its content.
pub struct DegradedAudio<S> {
    source: S,
    degradation: Degradation,
}

impl<S: AudioSource> DegradedAudio<S> {
    /// `source` under these conditions.
    ///
    /// # Errors
    /// As [`Degradation::check`].
    pub fn new(source: S, degradation: Degradation) -> Result<Self> {
        degradation.check()?;
        Ok(Self { source, degradation })
    }
}

impl<S: AudioSource> AudioSource for DegradedAudio<S> {
    fn manifest(&self) -> &Manifest {
        self.source.manifest()
    }

    fn append(&self, utterance: usize, range: Range<usize>, out: &mut Vec<f32>) -> Result<()> {
        let start = out.len();
        self.source.append(utterance, range, out)?;
        if !self.degradation.is_none() {
            self.degradation.apply(&mut out[start..], self.source.fingerprint(utterance)? as u64);
        }
        Ok(())
    }

    fn stated_seconds(&self, utterance: usize) -> Option<f64> {
        self.source.stated_seconds(utterance)
    }

    fn fingerprint(&self, utterance: usize) -> Result<u128> {
        let clean = self.source.fingerprint(utterance)?;
        if self.degradation.is_none() {
            return Ok(clean);
        }
        Ok(content_hash([&clean.to_le_bytes()[..], self.degradation.to_string().as_bytes()]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SynthConfig, SynthCorpus};

    fn corpus() -> impl AudioSource {
        let config = SynthConfig { speakers: 2, held_out: 1, utterances: 2, ..SynthConfig::default() };
        SynthCorpus::new(config).unwrap().in_memory().0
    }

    #[test]
    fn conditions_change_the_audio_the_same_way_each_time_and_its_fingerprint() {
        let clean = corpus();
        let whole = |degradation| DegradedAudio::new(corpus(), degradation).unwrap().whole(0).unwrap();
        let noisy = Degradation { snr_db: Some(0.0), room_seconds: None };
        let far = Degradation { snr_db: None, room_seconds: Some(0.4) };
        assert_eq!(whole(Degradation::default()), clean.whole(0).unwrap());
        assert_eq!(whole(noisy), whole(noisy));
        assert_ne!(whole(noisy), whole(far));
        let prints = [Degradation::default(), noisy, far]
            .map(|degradation| DegradedAudio::new(corpus(), degradation).unwrap().fingerprint(0).unwrap());
        assert_eq!(prints[0], clean.fingerprint(0).unwrap());
        assert!(prints[0] != prints[1] && prints[1] != prints[2] && prints[0] != prints[2]);
    }

    #[test]
    fn noise_of_the_same_power_doubles_it() {
        let power = |samples: &[f32]| samples.iter().map(|x| x * x).sum::<f32>();
        let noisy = DegradedAudio::new(corpus(), Degradation { snr_db: Some(0.0), room_seconds: None }).unwrap();
        let ratio = power(&noisy.whole(1).unwrap()) / power(&corpus().whole(1).unwrap());
        assert!((ratio - 2.0).abs() < 0.1, "{ratio}");
    }

    #[test]
    fn impossible_conditions_are_named() {
        let message = |degradation| DegradedAudio::new(corpus(), degradation).err().unwrap().to_string();
        assert!(message(Degradation { snr_db: Some(f32::NAN), room_seconds: None }).contains("noise"));
        assert!(message(Degradation { snr_db: None, room_seconds: Some(60.0) }).contains("reverberation time"));
    }
}
