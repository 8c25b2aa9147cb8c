//! Log-mel filterbanks: framing → window → |FFT|² → mel triangles → log.

mod config;
mod fft;
mod kernel;
mod log;
mod mel;

use pulp::Arch;

pub use config::{FbankConfig, FrontEnd, Window};

use crate::Result;

/// Log-mel features, row-major [frames × bins].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Features {
    /// Number of frames.
    pub frames: usize,
    /// Mel bins per frame.
    pub bins: usize,
    /// The values, frame after frame.
    pub data: Vec<f32>,
}

impl Features {
    /// The largest value; −∞ if there is none.
    pub fn max(&self) -> f32 {
        // Eight running maxima, so that the comparison is one instruction for eight values.
        let (head, tail) = self.data.as_chunks::<8>();
        let larger = |a: f32, b: f32| if b > a { b } else { a };
        let maxima = head.iter().fold([f32::NEG_INFINITY; 8], |maxima, values| std::array::from_fn(|i| larger(maxima[i], values[i])));
        maxima.iter().chain(tail).copied().fold(f32::NEG_INFINITY, larger)
    }

    /// Raises everything below `floor` to it.
    pub fn raise_to(&mut self, floor: f32) {
        for value in &mut self.data {
            if *value < floor {
                *value = floor;
            }
        }
    }

    /// Subtracts each bin's mean over time.
    pub fn subtract_mean(&mut self) {
        if self.frames == 0 {
            return;
        }
        let mut mean = vec![0f64; self.bins];
        for row in self.data.chunks_exact(self.bins) {
            row.iter().zip(&mut mean).for_each(|(&x, sum)| *sum += f64::from(x));
        }
        let mean: Vec<f32> = mean.iter().map(|sum| (sum / self.frames as f64) as f32).collect();
        for row in self.data.chunks_exact_mut(self.bins) {
            row.iter_mut().zip(&mean).for_each(|(x, mean)| *x -= mean);
        }
    }
}

/// A filterbank with its tables and buffers: make one per thread, use it for every utterance.
pub struct Fbank {
    config: FbankConfig,
    tables: kernel::Tables,
    scratch: kernel::Scratch,
    arch: Arch,
    seed: u64,
}

impl Fbank {
    /// Checks the settings and builds the tables.
    pub fn new(config: FbankConfig) -> Result<Self> {
        config.check()?;
        let tables = kernel::Tables::new(&config);
        Ok(Self { scratch: tables.scratch(), tables, arch: Arch::new(), seed: 0, config })
    }

    /// Sets the seed of the dither for the utterances to come; without dither it changes nothing.
    pub fn reseed(&mut self, seed: u64) {
        self.seed = seed;
    }

    /// The settings.
    pub fn config(&self) -> &FbankConfig {
        &self.config
    }

    /// Frames that `samples` samples give.
    pub fn frames(&self, samples: usize) -> usize {
        match self.config.front_end {
            FrontEnd::SpeechBrain { .. } => samples / self.config.hop() + usize::from(samples > 0),
            FrontEnd::Kaldi { .. } if samples < self.config.window() => 0,
            FrontEnd::Kaldi { .. } => 1 + (samples - self.config.window()) / self.config.hop(),
        }
    }

    /// Features of an utterance with samples in [−1, 1].
    pub fn compute(&mut self, samples: &[f32]) -> Features {
        let mut features = Features::default();
        self.compute_into(samples, &mut features);
        features
    }

    /// The same into an existing value, whose memory is reused.
    pub fn compute_into(&mut self, samples: &[f32], features: &mut Features) {
        (features.frames, features.bins) = (self.frames(samples.len()), self.config.bins);
        features.data.resize(features.frames * features.bins, 0.0);
        self.rows(samples, 0, 0, &mut features.data);
        if let FrontEnd::SpeechBrain { top_db, .. } = self.config.front_end {
            features.raise_to(features.max() - top_db);
        }
    }

    /// Rows of frames `first ..` from a part of the utterance that begins at sample `start`, without the floor.
    fn rows(&mut self, samples: &[f32], start: isize, first: usize, rows: &mut [f32]) {
        let Self { tables, scratch, seed, .. } = self;
        self.arch.dispatch(kernel::Frames { tables, scratch, samples, start, first, rows, seed: *seed });
    }
}
