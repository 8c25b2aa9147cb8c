//! The filterbank as two matrix products, for a device that is best at those.
//!
//! Mean removal, pre-emphasis, window and Fourier transform are all linear, so the spectrum of a frame is one product
//! of its samples with a fixed matrix, computed here once in double precision; the mel filters are a second product,
//! with the powers.

use std::f64::consts::TAU;

use bregman_base::FilterbankTables;

use super::config::{FbankConfig, FilterbankKind};
use super::kernel::Tables;
use crate::{Error, Result};

impl FbankConfig {
    /// The filterbank as matrix products.
    ///
    /// # Errors
    /// A setting out of its range, and dither, which is not linear.
    pub fn products(&self) -> Result<FilterbankTables> {
        self.check()?;
        let (preemphasis, scale, top_db) = match self.front_end {
            FilterbankKind::SpeechBrain { top_db, .. } => (None, 1.0, Some(top_db)),
            FilterbankKind::Kaldi { dither, .. } if dither > 0.0 => {
                return Err(Error::config("dither", dither, "0 for features by products"));
            }
            FilterbankKind::Kaldi { preemphasis, .. } => {
                (Some(f64::from(preemphasis)), f64::from(self.kaldi_scale()), None)
            }
        };
        let tables = Tables::new(self);
        let filters = tables.filters();
        let first = filters.iter().map(|filter| filter.start).min().unwrap_or(0);
        let last = filters.iter().map(|filter| filter.start + filter.weights.len()).max().unwrap_or(0);
        let (frequencies, n, n_fft) = ((last - first).next_multiple_of(4), self.window(), self.n_fft());
        let mut mel = vec![0.0; frequencies * self.bins];
        for (bin, filter) in filters.iter().enumerate() {
            filter
                .weights
                .iter()
                .zip(filter.start - first..)
                .for_each(|(&weight, k)| mel[k * self.bins + bin] = weight);
        }
        let window: Vec<f64> = (0..n).map(|i| scale * self.window_at(i)).collect();
        let mut spectrum = vec![0.0; n * 2 * frequencies];
        for k in 0..last - first {
            for (part, shift) in [(k, 0.25), (frequencies + k, 0.0)] {
                // sin(x + τ/4) is the cosine; where the window stands in the transform changes the phase alone
                let wave = |i: usize| (TAU * (((first + k) * i % n_fft) as f64 / n_fft as f64 + shift)).sin();
                let windowed: Vec<f64> = window.iter().enumerate().map(|(i, w)| w * wave(i)).collect();
                let mean = windowed.iter().sum::<f64>() / n as f64;
                for i in 0..n {
                    let value = match preemphasis {
                        None => windowed[i],
                        Some(c) => {
                            // x[i] in its own place, in the next one's past, at the start in its own past, and in the
                            // mean
                            let past = windowed.get(i + 1).unwrap_or(&0.0) + if i == 0 { windowed[0] } else { 0.0 };
                            windowed[i] - c * past - (1.0 - c) * mean
                        }
                    };
                    spectrum[i * 2 * frequencies + part] = value as f32;
                }
            }
        }
        let (smallest, factor) = tables.logarithm();
        let relative = preemphasis.is_some(); // and the mean removed
        let centred = matches!(self.front_end, FilterbankKind::SpeechBrain { .. });
        let (window, hop, origin, bins) = (n, self.hop(), tables.origin, self.bins);
        Ok(FilterbankTables {
            window,
            hop,
            origin,
            centred,
            relative,
            frequencies,
            spectrum,
            bins,
            mel,
            smallest,
            factor,
            top_db,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fbank, Window};

    /// The products, in double precision.
    fn compute(products: &FilterbankTables, samples: &[f32], frames: usize) -> Vec<f64> {
        let &FilterbankTables { window, hop, origin, frequencies, bins, .. } = products;
        let mut features = Vec::new();
        for frame in 0..frames {
            let mut spectrum = vec![0.0; 2 * frequencies];
            let at = |n: usize| {
                usize::try_from(origin + (frame * hop + n) as isize)
                    .ok()
                    .and_then(|at| samples.get(at))
                    .map_or(0.0, |&x| f64::from(x))
            };
            for n in 0..window {
                let x = at(n) - if products.relative { at(0) } else { 0.0 };
                spectrum
                    .iter_mut()
                    .enumerate()
                    .for_each(|(k, sum)| *sum += x * f64::from(products.spectrum[n * 2 * frequencies + k]));
            }
            let power = |k: usize| spectrum[k].powi(2) + spectrum[frequencies + k].powi(2);
            for bin in 0..bins {
                let energy: f64 = (0..frequencies).map(|k| power(k) * f64::from(products.mel[k * bins + bin])).sum();
                features.push(f64::from(products.factor) * energy.max(products.smallest.into()).ln());
            }
        }
        if let Some(top_db) = products.top_db {
            let floor = features.iter().copied().fold(f64::NEG_INFINITY, f64::max) - f64::from(top_db);
            features.iter_mut().for_each(|x| *x = x.max(floor));
        }
        features
    }

    #[test]
    fn the_products_are_the_filterbank() {
        let noise = |i: u32| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 25) as f32 - 0.2;
        // In the end almost silence.
        let samples: Vec<f32> = (0..6_000).map(|i| if i < 4_000 { noise(i) } else { 1e-3 }).collect();
        let base = FbankConfig::speechbrain();
        let odd = FilterbankKind::SpeechBrain { n_fft: 442, top_db: 30.0 };
        for config in [
            FbankConfig { bins: 40, ..base.clone() },
            FbankConfig { bins: 24, window_ms: 20.0, high_hz: Some(5_000.0), front_end: odd, ..base },
            FbankConfig { bins: 40, ..FbankConfig::kaldi(Window::Hamming) },
            FbankConfig { bins: 23, window_ms: 17.0, hop_ms: 7.0, ..FbankConfig::kaldi(Window::Povey) },
        ] {
            let expected = Fbank::new(config.clone()).unwrap().compute(&samples);
            let ours = compute(&config.products().unwrap(), &samples, expected.frames);
            assert_eq!(ours.len(), expected.data.len());
            let worst = ours.iter().zip(&expected.data).map(|(a, b)| (a - f64::from(*b)).abs()).fold(0.0, f64::max);
            assert!(worst < 2e-3, "{config:?}: {worst}");
        }
    }

    #[test]
    fn dither_is_refused() {
        let front_end = FilterbankKind::Kaldi { window: Window::Povey, preemphasis: 0.97, dither: 1.0 };
        let error = FbankConfig { front_end, ..FbankConfig::kaldi(Window::Povey) }.products().unwrap_err();
        assert!(error.to_string().contains("dither"), "{error}");
    }
}
