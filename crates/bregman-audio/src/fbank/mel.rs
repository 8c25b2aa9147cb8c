//! Triangular filters on the mel scale, as both references define them.

use super::config::{FbankConfig, FilterbankKind};

/// The filters as runs of weights: filter i sees FFT bins `start .. start + weights.len()`.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) start: usize,
    pub(crate) weights: Vec<f32>,
}

/// One filter per mel bin over the n_fft / 2 + 1 bins of the power spectrum.
pub(crate) fn filters(config: &FbankConfig) -> Vec<Filter> {
    let weight: Box<dyn Fn(usize, f64) -> f64> = match config.front_end {
        FilterbankKind::SpeechBrain { .. } => Box::new(speechbrain(config)),
        FilterbankKind::Kaldi { .. } => Box::new(kaldi(config)),
    };
    // Kaldi leaves out the Nyquist bin, where its triangles are zero.
    let width = f64::from(config.rate) / config.n_fft() as f64;
    (0..config.bins)
        .map(|bin| {
            let row: Vec<f32> = (0..=config.n_fft() / 2).map(|k| weight(bin, k as f64 * width) as f32).collect();
            let start = row.iter().position(|&w| w > 0.0).unwrap_or(0);
            let end = row.iter().rposition(|&w| w > 0.0).map_or(start, |last| last + 1);
            Filter { start, weights: row[start..end].to_vec() }
        })
        .collect()
}

/// Triangles in Hz with the width of the left band on both sides: max(0, 1 − |f − centre| / left width).
fn speechbrain(config: &FbankConfig) -> impl Fn(usize, f64) -> f64 + use<> {
    let to_mel = |hz: f64| 2595.0 * (1.0 + hz / 700.0).log10();
    let to_hz = |mel: f64| 700.0 * (10f64.powf(mel / 2595.0) - 1.0);
    let (low, high) = (to_mel(config.low_hz.into()), to_mel(config.high().into()));
    let step = (high - low) / (config.bins + 1) as f64;
    move |bin, hz| {
        let (left, centre) = (to_hz(low + bin as f64 * step), to_hz(low + (bin + 1) as f64 * step));
        (1.0 - (hz - centre).abs() / (centre - left)).max(0.0)
    }
}

/// Triangles in mel: rising from the left to the centre, falling to the right.
fn kaldi(config: &FbankConfig) -> impl Fn(usize, f64) -> f64 + use<> {
    let to_mel = |hz: f64| 1127.0 * (1.0 + hz / 700.0).ln();
    let (low, high) = (to_mel(config.low_hz.into()), to_mel(config.high().into()));
    let step = (high - low) / (config.bins + 1) as f64;
    move |bin, hz| {
        let centre = low + (bin + 1) as f64 * step;
        (1.0 - (to_mel(hz) - centre).abs() / step).max(0.0)
    }
}
