//! Log-mel filterbanks: framing → window → |FFT|² → mel triangles → log.

mod config;
mod mel;

use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};

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
    fft: Arc<dyn RealToComplex<f32>>,
    window: Vec<f32>,
    filters: Vec<mel::Filter>,
    frame: Vec<f32>,
    spectrum: Vec<Complex<f32>>,
    power: Vec<f32>,
}

impl Fbank {
    /// Checks the settings and builds the tables.
    pub fn new(config: FbankConfig) -> Result<Self> {
        config.check()?;
        let fft = RealFftPlanner::new().plan_fft_forward(config.n_fft());
        let n = config.window();
        let cosine = |i: usize, period: usize| (std::f64::consts::TAU * i as f64 / period as f64).cos();
        let window: Vec<f32> = (0..n)
            .map(|i| match config.front_end {
                FrontEnd::SpeechBrain { .. } => 0.54 - 0.46 * cosine(i, n),
                FrontEnd::Kaldi { window: Window::Hamming, .. } => 0.54 - 0.46 * cosine(i, n - 1),
                FrontEnd::Kaldi { window: Window::Povey, .. } => (0.5 - 0.5 * cosine(i, n - 1)).powf(0.85),
            } as f32)
            .collect();
        let (frame, spectrum) = (fft.make_input_vec(), fft.make_output_vec());
        let power = vec![0.0; spectrum.len()];
        let filters = mel::filters(&config);
        Ok(Self { fft, window, filters, frame, spectrum, power, config })
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
        features.bins = self.config.bins;
        features.frames = self.frames(samples.len());
        features.data.clear();
        for frame in 0..features.frames {
            self.frame.fill(0.0);
            let n = self.window.len();
            match self.config.front_end {
                FrontEnd::SpeechBrain { n_fft, .. } => {
                    let offset = (n_fft - n) / 2;
                    let start = (frame * self.config.hop() + offset) as isize - (n_fft / 2) as isize;
                    for i in 0..n {
                        let at = start + i as isize;
                        let x = usize::try_from(at).ok().and_then(|at| samples.get(at)).copied().unwrap_or(0.0);
                        self.frame[offset + i] = x * self.window[i];
                    }
                }
                FrontEnd::Kaldi { preemphasis, .. } => {
                    let input = &samples[frame * self.config.hop()..][..n];
                    let mean = input.iter().sum::<f32>() * 32768.0 / n as f32;
                    for i in 0..n {
                        let x = input[i] * 32768.0 - mean;
                        let before = input[i.saturating_sub(1)] * 32768.0 - mean;
                        self.frame[i] = (x - preemphasis * before) * self.window[i];
                    }
                }
            }
            self.fft.process(&mut self.frame, &mut self.spectrum).expect("the buffers were made by this plan");
            self.power.iter_mut().zip(&self.spectrum).for_each(|(p, c)| *p = c.norm_sqr());
            for filter in &self.filters {
                let energy: f32 = filter.weights.iter().zip(&self.power[filter.start..]).map(|(w, p)| w * p).sum();
                features.data.push(match self.config.front_end {
                    FrontEnd::SpeechBrain { .. } => 10.0 * energy.max(1e-10).log10(),
                    FrontEnd::Kaldi { .. } => energy.max(f32::EPSILON).ln(),
                });
            }
        }
        if let FrontEnd::SpeechBrain { top_db, .. } = self.config.front_end {
            let floor = features.data.iter().copied().fold(f32::NEG_INFINITY, f32::max) - top_db;
            features.data.iter_mut().for_each(|x| *x = x.max(floor));
        }
    }
}
