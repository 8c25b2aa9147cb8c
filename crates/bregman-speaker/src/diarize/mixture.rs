//! Conversations with known truth: turns cut from the utterances of a corpus, one after another, over quiet noise.

use bregman_audio::{RATE, level, pink_noise};
use bregman_base::Rng;

use super::turn::Turn;
use crate::{AudioSource, Error, Result};

/// What a conversation consists of.
///
/// | field | default | meaning |
/// | --- | --- | --- |
/// | `speakers` | 3 | who talk |
/// | `turns` | 20 | each of another speaker than the one before |
/// | `seconds` | [1.5, 6] | of a turn, as far as its utterance goes |
/// | `pauses` | [0, 1.5] | seconds of noise between turns |
/// | `levels` | 3 | speakers are up to so many dB louder or quieter than −20 dB |
/// | `noise` | −55 | dB of the noise behind everything |
#[derive(Debug, Clone, PartialEq)]
pub struct MixtureConfig {
    /// Speakers.
    pub speakers: usize,
    /// Turns.
    pub turns: usize,
    /// Shortest and longest turn.
    pub seconds: [f64; 2],
    /// Shortest and longest pause.
    pub pauses: [f64; 2],
    /// Differences of level between speakers, in dB.
    pub levels: f64,
    /// Level of the noise, in dB of full scale.
    pub noise: f64,
}

impl Default for MixtureConfig {
    fn default() -> Self {
        Self { speakers: 3, turns: 20, seconds: [1.5, 6.0], pauses: [0.0, 1.5], levels: 3.0, noise: -55.0 }
    }
}

/// A conversation and who spoke when in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Mixture {
    /// At 16 kHz.
    pub samples: Vec<f32>,
    /// Named as in the corpus.
    pub truth: Vec<Turn>,
}

impl Mixture {
    /// A conversation between speakers of `source`; the same for the same seed.
    ///
    /// # Errors
    /// A corpus with fewer speakers, or audio that cannot be read.
    pub fn draw(source: &dyn AudioSource, config: &MixtureConfig, seed: u64) -> Result<Self> {
        let manifest = source.manifest();
        let speakers = manifest.speakers();
        let mut by_speaker = vec![Vec::new(); speakers.len()];
        for (at, utterance) in manifest.utterances.iter().enumerate() {
            by_speaker[speakers.label(&utterance.speaker).unwrap_or(0) as usize].push(at);
        }
        if config.speakers == 0 || by_speaker.len() < config.speakers {
            let value = format!("{} of {} speakers", config.speakers, by_speaker.len());
            return Err(Error::Setting { field: "speakers", value, expected: "1 or more, and as many in the corpus" });
        }
        let mut rng = Rng::keyed(&[seed, 0x6d69_7874_7572_6573]);
        rng.shuffle(&mut by_speaker);
        by_speaker.truncate(config.speakers);
        let gains: Vec<f64> = by_speaker.iter().map(|_| rng.range(-config.levels, config.levels)).collect();
        let mut mixture = Self { samples: Vec::new(), truth: Vec::new() };
        let mut speaker = 0;
        for turn in 0..config.turns {
            // everybody speaks once, then whoever did not speak last
            speaker = if turn < by_speaker.len() || by_speaker.len() == 1 {
                turn % by_speaker.len()
            } else {
                (speaker + 1 + rng.below(by_speaker.len() - 1)) % by_speaker.len()
            };
            let utterances = &by_speaker[speaker];
            let utterance = utterances[rng.below(utterances.len())];
            let mut samples = source.whole(utterance)?;
            let wanted = (rng.range(config.seconds[0], config.seconds[1]) * f64::from(RATE)) as usize;
            let from = rng.below(samples.len().saturating_sub(wanted) + 1);
            samples.truncate(from + wanted);
            samples.drain(..from);
            level(&mut samples);
            let gain = 10f64.powf(gains[speaker] / 20.0) as f32;
            mixture.pause(rng.range(config.pauses[0], config.pauses[1]));
            let start = mixture.seconds();
            mixture.samples.extend(samples.iter().map(|sample| gain * sample));
            let name = manifest.utterances[utterance].speaker.to_string();
            mixture.truth.push(Turn { start, end: mixture.seconds(), speaker: name });
        }
        mixture.pause(config.pauses[1]);
        let mut noise = pink_noise(mixture.samples.len(), rng.bits());
        level(&mut noise); // to −20 dB
        let gain = 10f64.powf((config.noise + 20.0) / 20.0) as f32;
        mixture.samples.iter_mut().zip(noise).for_each(|(sample, noise)| *sample += gain * noise);
        Ok(mixture)
    }

    /// Its length.
    pub fn seconds(&self) -> f64 {
        self.samples.len() as f64 / f64::from(RATE)
    }

    fn pause(&mut self, seconds: f64) {
        self.samples.extend(std::iter::repeat_n(0.0, (seconds * f64::from(RATE)) as usize));
    }
}
