//! Log-mel filterbanks: framing → window → |FFT|² → mel triangles → log.

mod config;
mod features;
mod fft;
mod kernel;
mod log;
mod mel;
mod products;
mod stream;

use bregman_base::simd;
use pulp::Arch;

pub use config::{FbankConfig, FilterbankKind, Waveform, Window};
pub use features::Features;
pub use stream::FbankStream;

use crate::Result;

/// A filterbank with its tables and buffers. Each thread needs its own; reuse it for every utterance.
pub struct Fbank {
    config: FbankConfig,
    tables: kernel::Tables,
    scratch: kernel::FbankScratch,
    arch: Arch,
    seed: u64,
}

impl Fbank {
    /// Checks the settings and builds the tables.
    pub fn new(config: FbankConfig) -> Result<Self> {
        config.check()?;
        let tables = kernel::Tables::new(&config);
        Ok(Self { scratch: tables.scratch(), tables, arch: simd::arch(), seed: 0, config })
    }

    /// Sets the seed of the dither for the following utterances; without dither it has no effect.
    pub fn reseed(&mut self, seed: u64) {
        self.seed = seed;
    }

    /// The settings.
    pub fn config(&self) -> &FbankConfig {
        &self.config
    }

    /// Number of frames of `samples` samples.
    pub fn frames(&self, samples: usize) -> usize {
        match self.config.front_end {
            FilterbankKind::SpeechBrain { .. } => samples / self.config.hop() + usize::from(samples > 0),
            FilterbankKind::Kaldi { .. } if samples < self.config.window() => 0,
            FilterbankKind::Kaldi { .. } => 1 + (samples - self.config.window()) / self.config.hop(),
        }
    }

    /// Features of an utterance with samples in [−1, 1].
    pub fn compute(&mut self, samples: &[f32]) -> Features {
        let mut features = Features::default();
        self.compute_into(samples, &mut features);
        features
    }

    /// [`Fbank::compute`] into an existing value, whose memory is reused.
    pub fn compute_into(&mut self, samples: &[f32], features: &mut Features) {
        (features.frames, features.bins) = (self.frames(samples.len()), self.config.bins);
        features.data.resize(features.frames * features.bins, 0.0);
        self.rows(samples, 0, 0, &mut features.data);
        if let FilterbankKind::SpeechBrain { top_db, .. } = self.config.front_end {
            features.raise_to(features.max() - top_db);
        }
    }

    /// Index of frame 0's first sample: negative for centred frames.
    fn origin(&self) -> isize {
        self.tables.origin
    }

    /// Rows of frames `first ..` from a part of the utterance that begins at sample `start`, without the floor.
    fn rows(&mut self, samples: &[f32], start: isize, first: usize, rows: &mut [f32]) {
        let Self { tables, scratch, seed, .. } = self;
        self.arch.dispatch(kernel::Frames { tables, scratch, samples, start, first, rows, seed: *seed });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bregman_base::simd::Level;
    use proptest::prelude::*;
    use std::f64::consts::TAU;

    /// The definition, in double precision: energies of frame `frame` after the mel filters.
    fn energies(config: &FbankConfig, samples: &[f32], frame: usize) -> Vec<f64> {
        let (n, n_fft, hop) = (config.window(), config.n_fft(), config.hop());
        let at = |index: isize| {
            usize::try_from(index).ok().and_then(|index| samples.get(index)).map_or(0.0, |&x| f64::from(x))
        };
        let cosine = |i: usize, period: usize| (TAU * i as f64 / period as f64).cos();
        let mut input = vec![0.0; n_fft];
        match config.front_end {
            FilterbankKind::SpeechBrain { .. } => {
                let offset = (n_fft - n) / 2;
                for i in 0..n {
                    let x = at((frame * hop + offset + i) as isize - (n_fft / 2) as isize);
                    input[offset + i] = x * (0.54 - 0.46 * cosine(i, n));
                }
            }
            FilterbankKind::Kaldi { window, preemphasis, .. } => {
                let x: Vec<f64> = (0..n).map(|i| 32768.0 * at((frame * hop + i) as isize)).collect();
                let mean = x.iter().sum::<f64>() / n as f64;
                for i in 0..n {
                    let shape = match window {
                        Window::Hamming => 0.54 - 0.46 * cosine(i, n - 1),
                        Window::Povey => (0.5 - 0.5 * cosine(i, n - 1)).powf(0.85),
                    };
                    input[i] = shape * ((x[i] - mean) - f64::from(preemphasis) * (x[i.saturating_sub(1)] - mean));
                }
            }
        }
        let power: Vec<f64> = (0..=n_fft / 2)
            .map(|k| {
                let part = |f: fn(f64) -> f64| {
                    input
                        .iter()
                        .enumerate()
                        .map(|(i, x)| x * f(TAU * (k * i % n_fft) as f64 / n_fft as f64))
                        .sum::<f64>()
                };
                part(f64::cos).powi(2) + part(f64::sin).powi(2)
            })
            .collect();
        let filters = mel::filters(config);
        filters
            .iter()
            .map(|filter| filter.weights.iter().zip(&power[filter.start..]).map(|(&w, p)| f64::from(w) * p).sum())
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn filterbanks_of_any_size_equal_their_definition(
            kind in 0usize..3,
            rate in 4_000u32..20_000,
            bins in 1usize..24,
            window_ms in 4f32..12.0,
            hop_ms in 1f32..15.0,
            extra in 0usize..40,
            length in 0usize..1_000,
            seed in any::<u32>(),
        ) {
            let base = FbankConfig { rate, bins, window_ms, hop_ms, ..FbankConfig::speechbrain() };
            let kaldi = |window| FilterbankKind::Kaldi { window, preemphasis: 0.97, dither: 0.0 };
            let config = match kind {
                0 => FbankConfig {
                    front_end: FilterbankKind::SpeechBrain {
                        n_fft: (base.window() + extra).next_multiple_of(2),
                        top_db: 80.0,
                    },
                    ..base
                },
                1 => FbankConfig { low_hz: 20.0, front_end: kaldi(Window::Povey), ..base },
                _ => FbankConfig {
                    low_hz: 100.0,
                    high_hz: Some(rate as f32 / 2.5),
                    front_end: kaldi(Window::Hamming),
                    ..base
                },
            };
            prop_assume!(config.check().is_ok());
            let samples: Vec<f32> = (0..length as u32)
                .map(|i| ((i ^ seed).wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 25) as f32 - 0.2)
                .collect();
            let ours = Fbank::new(config.clone()).unwrap().compute(&samples);
            let expected: Vec<f64> = (0..ours.frames)
                .flat_map(|frame| energies(&config, &samples, frame))
                .map(|energy| match config.front_end {
                    FilterbankKind::SpeechBrain { .. } => 10.0 * energy.max(1e-10).log10(),
                    FilterbankKind::Kaldi { .. } => energy.max(f32::EPSILON.into()).ln(),
                })
                .collect();
            let floor = match config.front_end {
                FilterbankKind::SpeechBrain { top_db, .. } => {
                    expected.iter().copied().fold(f64::NEG_INFINITY, f64::max) - f64::from(top_db)
                }
                FilterbankKind::Kaldi { .. } => f64::NEG_INFINITY,
            };
            prop_assert_eq!(ours.data.len(), expected.len());
            for (ours, expected) in ours.data.iter().zip(expected) {
                // In single precision, a bin far below the maximum of its frame has the rounding error of that maximum.
                prop_assert!((f64::from(*ours) - expected.max(floor)).abs() < 0.02, "{ours} for {expected}");
            }
        }
    }

    #[test]
    fn every_instruction_set_computes_the_same() {
        let samples: Vec<f32> =
            (0..9_000).map(|i| 0.3 * (i as f32 * 0.05).sin() + 0.01 * ((i * 7919) % 100) as f32 / 100.0).collect();
        for config in [FbankConfig::speechbrain(), FbankConfig::kaldi(Window::Povey)] {
            let mut fbank = Fbank::new(config).unwrap();
            let fast = fbank.compute(&samples);
            for arch in Level::ALL.iter().filter_map(|level| level.arch()) {
                fbank.arch = arch;
                let other = fbank.compute(&samples);
                let worst = fast.data.iter().zip(&other.data).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(fast.frames == other.frames && worst < 1e-3, "{worst}");
            }
        }
    }

    #[test]
    fn dither_has_its_stated_size_and_follows_the_seed() {
        let front_end = FilterbankKind::Kaldi { window: Window::Povey, preemphasis: 0.97, dither: 1.0 };
        let mut fbank = Fbank::new(FbankConfig { front_end, ..FbankConfig::kaldi(Window::Povey) }).unwrap();
        let silence = vec![0.0; 16_000];
        let first = fbank.compute(&silence);
        assert_eq!(first, fbank.compute(&silence), "the same seed gives the same noise");
        fbank.reseed(1);
        assert_ne!(first, fbank.compute(&silence));
        // White noise of variance σ² has an expected power of σ²·Σw² in every FFT bin, before pre-emphasis; compare
        // with Gaussian noise of one 16-bit step added to the waveform itself, which is the same in
        // distribution.
        let mut random = 12345u64;
        let mut uniform = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((random >> 40) as f64 + 0.5) / (1u64 << 24) as f64
        };
        let noise: Vec<f32> =
            (0..16_000).map(|_| ((-2.0 * uniform().ln()).sqrt() * (TAU * uniform()).cos() / 32768.0) as f32).collect();
        let mean =
            |features: &Features| features.data.iter().map(|&x| f64::from(x)).sum::<f64>() / features.data.len() as f64;
        let added = Fbank::new(FbankConfig::kaldi(Window::Povey)).unwrap().compute(&noise);
        assert!((mean(&first) - mean(&added)).abs() < 0.05, "{} and {}", mean(&first), mean(&added));
    }

    #[test]
    fn an_utterance_too_short_for_a_frame_has_no_frames() {
        for length in [0, 1, 399] {
            assert_eq!(Fbank::new(FbankConfig::kaldi(Window::Povey)).unwrap().compute(&vec![0.1; length]).frames, 0);
        }
        let mut speechbrain = Fbank::new(FbankConfig::speechbrain()).unwrap();
        assert_eq!(speechbrain.compute(&[]).frames, 0);
        assert_eq!(speechbrain.compute(&[0.1]).frames, 1);
    }
}
