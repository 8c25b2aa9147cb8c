//! Log-mel filterbanks: framing → window → |FFT|² → mel triangles → log.

mod config;
mod features;
mod fft;
mod kernel;
mod log;
mod mel;
mod stream;

use pulp::Arch;

pub use config::{FbankConfig, FrontEnd, Window};
pub use features::Features;
pub use stream::FbankStream;

use crate::Result;

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
