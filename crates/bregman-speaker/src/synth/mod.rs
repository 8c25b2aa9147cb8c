//! A corpus of synthetic voices for the demo and the tests, generated in seconds and determined by its seed (up to one
//! quantisation step with another math library).
//!
//! It has `speakers` × `utterances` utterances, `per_session` in each recording session. The last `held_out` speakers
//! are for testing only. Utterance n of a speaker is drawn from (seed, speaker, n) alone: a larger corpus contains the
//! smaller one, and any utterance can be rendered by itself, in any thread.

mod phones;
mod render;
mod session;
mod trials;
mod voice;
mod write;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::Rng;
use crate::manifest::{Interner, Manifest, Utterance};
use crate::source::MemoryCorpus;
use crate::{Error, Result};
use render::Syllable;
use session::RecordingSession;
use voice::Voice;

const RATE: f64 = 16_000.0;

/// What to synthesise.
///
/// | field | default | meaning | range |
/// | --- | --- | --- | --- |
/// | `speakers` | 50 | voices | 2 … 99 999 |
/// | `utterances` | 12 | per speaker | 1 … 99 999, at most 10⁷ of all speakers |
/// | `per_session` | 3 | utterances with the same room, channel, pitch and effort | ≥ 1 |
/// | `held_out` | 10 | speakers kept for testing | < `speakers` |
/// | `seconds` | [3.2, 4.8] | shortest and longest utterance | 0.1 … 600 |
/// | `syllables` | 0 | size of the shared vocabulary; 0 for any syllables, which is harder | ≤ 100 000 |
/// | `distortion` | 1 | how much sessions differ in room, channel, noise and effort; 0 is a studio, 1 is hard | 0 … 1 |
/// | `seed` | 1 | | any |
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SynthConfig {
    /// Voices.
    pub speakers: usize,
    /// Utterances per speaker.
    pub utterances: usize,
    /// Utterances in one session.
    pub per_session: usize,
    /// Speakers kept for testing: the last ones.
    pub held_out: usize,
    /// Shortest and longest utterance.
    pub seconds: [f64; 2],
    /// Size of the vocabulary, 0 for any syllables.
    pub syllables: usize,
    /// How much sessions differ.
    pub distortion: f64,
    /// Seed of everything random.
    pub seed: u64,
}

impl Default for SynthConfig {
    fn default() -> Self {
        Self {
            speakers: 50,
            utterances: 12,
            per_session: 3,
            held_out: 10,
            seconds: [3.2, 4.8],
            syllables: 0,
            distortion: 1.0,
            seed: 1,
        }
    }
}

/// A synthetic corpus that can be listed and rendered.
#[derive(Debug, Clone)]
pub struct SynthCorpus {
    config: SynthConfig,
}

impl SynthCorpus {
    /// Checks the settings.
    pub fn new(config: SynthConfig) -> Result<Self> {
        let setting = |good: bool, field, value: String, expected| {
            if good { Ok(()) } else { Err(Error::Setting { field, value, expected }) }
        };
        let SynthConfig { speakers, utterances, per_session, held_out, seconds: [low, high], distortion, .. } = config;
        setting((2..100_000).contains(&speakers), "speakers", speakers.to_string(), "2 to 99999")?;
        setting((1..100_000).contains(&utterances), "utterances", utterances.to_string(), "1 to 99999")?;
        setting(
            speakers * utterances <= 10_000_000,
            "utterances",
            format!("{utterances} of {speakers} speakers"),
            "at most 10 million together",
        )?;
        setting(config.syllables <= 100_000, "syllables", config.syllables.to_string(), "at most 100000")?;
        setting(per_session >= 1, "per_session", per_session.to_string(), "1 or more")?;
        setting(held_out < speakers, "held_out", held_out.to_string(), "fewer than there are speakers")?;
        setting(
            low >= 0.1 && low <= high && high <= 600.0,
            "seconds",
            format!("{low}..{high}"),
            "0.1 to 600, the smaller first",
        )?;
        setting((0.0..=1.0).contains(&distortion), "distortion", distortion.to_string(), "0 to 1")?;
        Ok(Self { config })
    }

    /// The settings.
    pub fn config(&self) -> &SynthConfig {
        &self.config
    }

    /// Every utterance, by speaker and number; paths are relative, as [`SynthCorpus::write`] lays them out.
    pub fn manifest(&self) -> Manifest {
        let mut names = Interner::default();
        let each = (0..self.config.speakers)
            .flat_map(|speaker| (0..self.config.utterances).map(move |number| (speaker, number)));
        let utterance = |(speaker, number): (usize, usize)| {
            let session = number / self.config.per_session;
            let path = format!("s{speaker:05}/{session:02}-{number:03}.wav");
            let samples = (self.length(speaker, number) * RATE) as usize;
            Utterance {
                id: path.clone(),
                speaker: names.get(&format!("s{speaker:05}")),
                path: path.into(),
                seconds: Some(samples as f64 / RATE),
                session: Some(names.get(&format!("{session:02}"))),
                genre: None,
            }
        };
        Manifest { utterances: each.map(utterance).collect() }
    }

    /// True for speakers kept for testing.
    pub fn is_held_out(&self, speaker: usize) -> bool {
        speaker >= self.config.speakers - self.config.held_out
    }

    /// The samples of one utterance, 16 kHz, 16-bit.
    pub fn render(&self, speaker: usize, number: usize) -> Vec<i16> {
        let (seed, session) = (self.config.seed, number / self.config.per_session);
        let voice = Voice::draw(&mut Rng::keyed(&[seed, 1, speaker as u64]));
        let session =
            RecordingSession::draw(self.config.distortion, &mut Rng::keyed(&[seed, 2, speaker as u64, session as u64]));
        let mut rng = Rng::keyed(&[seed, 3, speaker as u64, number as u64]);
        let vocabulary: Vec<_> =
            (0..self.config.syllables).map(|n| Syllable::draw(&mut Rng::keyed(&[seed, 5, n as u64]))).collect();
        let mut samples = render::speak(&voice, &session, &vocabulary, self.length(speaker, number), &mut rng);
        session.record(&mut samples, &mut rng);
        samples.into_iter().map(|sample| (sample * 32767.0) as i16).collect()
    }

    /// All utterances in manifest order, rendered in parallel.
    pub fn render_all(&self) -> Vec<Vec<i16>> {
        let per_speaker = self.config.utterances;
        (0..self.config.speakers * per_speaker)
            .into_par_iter()
            .map(|at| self.render(at / per_speaker, at % per_speaker))
            .collect()
    }

    /// The corpus in memory: (training, held-out) speakers.
    pub fn in_memory(&self) -> (MemoryCorpus, MemoryCorpus) {
        let (train, test) = self.divide(&self.manifest());
        let mut samples = self.render_all();
        let held_out = samples.split_off(train.utterances.len());
        let corpus = |manifest, samples| MemoryCorpus::new(manifest, samples).expect("one rendering per utterance");
        (corpus(train, samples), corpus(test, held_out))
    }

    fn length(&self, speaker: usize, number: usize) -> f64 {
        let [low, high] = self.config.seconds;
        Rng::keyed(&[self.config.seed, 4, speaker as u64, number as u64]).range(low, high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_corpus_and_a_larger_one_contains_it() {
        let corpus = |config| SynthCorpus::new(config).unwrap();
        let small = corpus(SynthConfig { speakers: 3, utterances: 2, held_out: 1, ..SynthConfig::default() });
        let large = corpus(SynthConfig { speakers: 5, utterances: 4, held_out: 1, ..SynthConfig::default() });
        assert_eq!(small.render(2, 1), large.render(2, 1));
        assert_eq!(small.render_all()[5], small.render(2, 1));
        assert_ne!(small.render(0, 0), small.render(1, 0));
        let other = corpus(SynthConfig { seed: 2, ..small.config().clone() });
        assert_ne!(small.render(0, 0), other.render(0, 0));
        let manifest = small.manifest();
        for (utterance, samples) in manifest.utterances.iter().zip(small.render_all()) {
            assert_eq!(utterance.seconds, Some(samples.len() as f64 / RATE), "{}", utterance.id);
        }
    }

    #[test]
    fn a_corpus_that_no_memory_holds_is_refused_by_its_setting() {
        let refused = |config| SynthCorpus::new(config).unwrap_err().to_string();
        let usual = SynthConfig::default();
        let message = refused(SynthConfig { syllables: 100_000_000_000, ..usual.clone() });
        assert_eq!(message, "syllables = 100000000000: expected at most 100000");
        let message = refused(SynthConfig { speakers: 99_999, utterances: 99_999, ..usual });
        assert_eq!(message, "utterances = 99999 of 99999 speakers: expected at most 10 million together");
    }

    #[test]
    fn every_voice_has_a_plausible_level_and_no_offset() {
        let corpus = SynthCorpus::new(SynthConfig {
            speakers: 40,
            utterances: 1,
            seconds: [1.0, 1.5],
            ..SynthConfig::default()
        })
        .unwrap();
        for samples in corpus.render_all() {
            let n = samples.len() as f64;
            let mean = samples.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
            let rms = (samples.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / n).sqrt();
            assert!((300.0..6000.0).contains(&rms), "rms {rms}");
            assert!(mean.abs() < 0.1 * rms, "mean {mean}, rms {rms}");
        }
    }

    #[test]
    fn settings_out_of_range_are_errors() {
        let message = |config| SynthCorpus::new(config).unwrap_err().to_string();
        assert_eq!(message(SynthConfig { speakers: 1, ..SynthConfig::default() }), "speakers = 1: expected 2 to 99999");
        let seconds = SynthConfig { seconds: [5.0, 4.0], ..SynthConfig::default() };
        assert_eq!(message(seconds), "seconds = 5..4: expected 0.1 to 600, the smaller first");
        assert!(SynthCorpus::new(SynthConfig { seconds: [f64::NAN, 4.0], ..SynthConfig::default() }).is_err());
        assert_eq!(
            message(SynthConfig { distortion: 2.0, ..SynthConfig::default() }),
            "distortion = 2: expected 0 to 1"
        );
    }
}
