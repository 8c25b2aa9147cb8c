//! Augmentation, off by default as in the paper: speed, reverberation and noise on the waveform, masks on the features.
//!
//! All randomness comes from the seed of the call, so an epoch can be repeated and resumed with any number of threads.

mod folder;
mod mask;
mod noise;
mod reverb;
mod speed;
mod synthetic;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

pub use mask::MaskConfig;
pub use noise::{NoiseConfig, add_noise};
pub use reverb::{ReverbConfig, reverberate};
pub use speed::change_speed;
pub use synthetic::{pink_noise, room_response};

use crate::{Error, Features, Result};
use folder::AudioFolder;

/// Augmentation of training audio; the default is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AugmentConfig {
    /// Speeds in addition to 1; each makes a new speaker of every speaker. WeSpeaker uses 0.9 and 1.1.
    pub speeds: Vec<f32>,
    /// Room impulse responses.
    pub reverb: Option<ReverbConfig>,
    /// Additive noise.
    pub noise: Option<NoiseConfig>,
    /// SpecAugment.
    pub mask: Option<MaskConfig>,
}

/// Applies an [`AugmentConfig`].
pub struct Augment {
    config: AugmentConfig,
    responses: AudioFolder,
    noises: AudioFolder,
}

impl Augment {
    /// Checks the settings and lists the folders.
    pub fn new(config: AugmentConfig) -> Result<Self> {
        for speed in &config.speeds {
            if !(0.5..=2.0).contains(speed) || *speed == 1.0 {
                return Err(Error::config("speeds", speed, "between 0.5 and 2, and not 1"));
            }
        }
        let responses = config.reverb.as_ref().map_or(Ok(AudioFolder::default()), |reverb| {
            check_probability("reverb.probability", reverb.probability)?;
            AudioFolder::list("reverb.folder", &reverb.folder)
        })?;
        let noises = config.noise.as_ref().map_or(Ok(AudioFolder::default()), |noise| {
            check_probability("noise.probability", noise.probability)?;
            noise.check()?;
            AudioFolder::list("noise.folder", &noise.folder)
        })?;
        config.mask.iter().try_for_each(MaskConfig::check)?;
        Ok(Self { config, responses, noises })
    }

    /// Number of speeds, 1 included: the number of speakers is multiplied by this.
    pub fn variants(&self) -> usize {
        1 + self.config.speeds.len()
    }

    /// One of the [`Augment::variants`], drawn uniformly.
    pub fn pick_variant(&self, seed: u64) -> usize {
        random(seed, DrawPurpose::Speed).random_range(0..self.variants())
    }

    /// The label of `speaker` (of `speakers`) at speed `variant`: a voice at another speed counts as another speaker.
    pub fn label(&self, speaker: usize, speakers: usize, variant: usize) -> usize {
        variant * speakers + speaker
    }

    /// Samples to read for `length` samples at speed `variant`.
    pub fn source_length(&self, length: usize, variant: usize) -> usize {
        (length as f64 * f64::from(self.speed(variant))).round() as usize
    }

    fn speed(&self, variant: usize) -> f32 {
        if variant == 0 { 1.0 } else { self.config.speeds[variant - 1] }
    }

    /// Applies speed `variant`, then reverberation and noise, each with its probability. Samples are at 16 kHz.
    pub fn waveform(&self, samples: &mut Vec<f32>, variant: usize, seed: u64) -> Result<()> {
        if variant > 0 {
            *samples = change_speed(samples, self.speed(variant))?;
        }
        if let Some(reverb) = &self.config.reverb {
            let mut random = random(seed, DrawPurpose::Reverb);
            if random.random_bool(reverb.probability) {
                *samples = reverberate(samples, &self.responses.any(&mut random, None)?);
            }
        }
        if let Some(noise) = &self.config.noise {
            let mut random = random(seed, DrawPurpose::Noise);
            if random.random_bool(noise.probability) {
                let sound = self.noises.any(&mut random, Some(samples.len()))?;
                add_noise(samples, &sound, random.random_range(noise.snr_db[0]..=noise.snr_db[1]));
            }
        }
        Ok(())
    }

    /// Applies masks to features whose mean has been subtracted.
    pub fn features(&self, features: &mut Features, seed: u64) {
        if let Some(mask) = &self.config.mask {
            mask.apply(features, &mut random(seed, DrawPurpose::Mask));
        }
    }
}

/// What random numbers are drawn for. Each purpose has its own stream, so that one does not shift another.
#[derive(Clone, Copy)]
enum DrawPurpose {
    Speed,
    Reverb,
    Noise,
    Mask,
}

fn random(seed: u64, purpose: DrawPurpose) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_mul(4).wrapping_add(purpose as u64))
}

fn check_probability(field: &'static str, value: f64) -> Result<()> {
    if (0.0..=1.0).contains(&value) { Ok(()) } else { Err(Error::config(field, value, "between 0 and 1")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Audio, write_wav};

    fn sound(period: f32) -> Vec<f32> {
        (0..16_000).map(|i| 0.3 * (i as f32 * std::f32::consts::TAU / period).sin()).collect()
    }

    fn everything(folder: &std::path::Path) -> AugmentConfig {
        std::fs::create_dir_all(folder.join("deep")).unwrap();
        for (name, period) in [("a.wav", 11.0), ("deep/b.wav", 47.0)] {
            write_wav(folder.join(name), &Audio { samples: sound(period), rate: 8_000 }).unwrap();
        }
        std::fs::write(folder.join("notes.txt"), "not sound").unwrap();
        AugmentConfig {
            speeds: vec![0.9, 1.1],
            reverb: Some(ReverbConfig { folder: folder.into(), probability: 0.5 }),
            noise: Some(NoiseConfig { folder: folder.into(), snr_db: [0.0, 15.0], probability: 0.5 }),
            mask: Some(MaskConfig::default()),
        }
    }

    #[test]
    fn the_seed_determines_the_samples() {
        let folder = tempfile::tempdir().unwrap();
        let augment = Augment::new(everything(folder.path())).unwrap();
        let run = |seed| {
            let mut samples = sound(80.0);
            augment.waveform(&mut samples, augment.pick_variant(seed), seed).unwrap();
            samples
        };
        let runs: Vec<Vec<f32>> = (0..20).map(run).collect();
        assert!(runs.iter().all(|samples| samples.iter().all(|x| x.is_finite())));
        (0..20).for_each(|seed| assert_eq!(runs[seed as usize], run(seed)));
        let distinct = runs.iter().enumerate().filter(|(i, samples)| !runs[..*i].contains(samples)).count();
        assert!(distinct > 12, "{distinct} of 20");
    }

    #[test]
    fn the_default_changes_nothing() {
        let augment = Augment::new(AugmentConfig::default()).unwrap();
        let mut samples = sound(80.0);
        augment.waveform(&mut samples, augment.pick_variant(3), 3).unwrap();
        let mut features = Features { frames: 5, bins: 4, data: vec![1.0; 20] };
        augment.features(&mut features, 3);
        assert_eq!((samples, features.data), (sound(80.0), vec![1.0; 20]));
    }

    #[test]
    fn every_speed_has_its_own_labels_and_input_length() {
        let augment = Augment::new(AugmentConfig { speeds: vec![0.9, 1.1], ..AugmentConfig::default() }).unwrap();
        let labels: std::collections::BTreeSet<usize> = (0..augment.variants())
            .flat_map(|variant| (0..7).map(move |speaker| (speaker, variant)))
            .map(|(s, v)| augment.label(s, 7, v))
            .collect();
        assert_eq!(labels, (0..21).collect());
        for variant in 0..3 {
            let mut samples = vec![0.1; augment.source_length(48_000, variant)];
            augment.waveform(&mut samples, variant, 0).unwrap();
            assert!(samples.len().abs_diff(48_000) <= 1, "{}", samples.len());
        }
        let counts = (0..3000).map(|seed| augment.pick_variant(seed)).fold([0; 3], |mut counts, variant| {
            counts[variant] += 1;
            counts
        });
        assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
    }

    #[test]
    fn errors_name_the_wrong_setting() {
        let folder = tempfile::tempdir().unwrap();
        let config = everything(folder.path());
        let empty = tempfile::tempdir().unwrap();
        let masked = |mask| AugmentConfig { mask: Some(mask), ..AugmentConfig::default() };
        for (text, config) in [
            ("speeds = 1", AugmentConfig { speeds: vec![1.0], ..config.clone() }),
            (
                "reverb.probability = 2",
                AugmentConfig {
                    reverb: Some(ReverbConfig { folder: folder.path().into(), probability: 2.0 }),
                    ..config.clone()
                },
            ),
            (
                "noise.folder = ",
                AugmentConfig {
                    noise: Some(NoiseConfig { folder: empty.path().into(), snr_db: [0.0, 1.0], probability: 1.0 }),
                    ..config.clone()
                },
            ),
            (
                "noise.snr_db = ",
                AugmentConfig {
                    noise: Some(NoiseConfig { folder: folder.path().into(), snr_db: [9.0, 1.0], probability: 1.0 }),
                    ..config.clone()
                },
            ),
            ("mask.probability = 1.5", masked(MaskConfig { probability: 1.5, ..MaskConfig::default() })),
            ("mask.time_masks = 1001", masked(MaskConfig { time_masks: 1001, ..MaskConfig::default() })),
            ("mask.bin_masks = 1099511627776", masked(MaskConfig { bin_masks: 1 << 40, ..MaskConfig::default() })),
        ] {
            let error = Augment::new(config).err().expect(text).to_string();
            assert!(error.starts_with(text), "{error}");
        }
    }
}
