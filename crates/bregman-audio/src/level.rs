//! Level and cut, as the paper prepares its training audio.

use std::ops::Range;

/// Root mean square that [`level`] gives: −20 dB of full scale.
const TARGET_RMS: f64 = 0.1;

/// Subtracts the mean, scales to −20 dB RMS and clips at ±1. Digital silence stays silence.
pub fn level(samples: &mut [f32]) {
    if samples.is_empty() {
        return;
    }
    let count = samples.len() as f64;
    let mean = samples.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
    let power = samples.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / count;
    let gain = if power > f64::from(f32::MIN_POSITIVE) { TARGET_RMS / power.sqrt() } else { 0.0 };
    for x in samples {
        *x = ((f64::from(*x) - mean) * gain).clamp(-1.0, 1.0) as f32;
    }
}

/// Non-overlapping ranges of exactly `seconds` from the start; the rest at the end is left out.
/// A recording shorter than one cut is one range of its own length, for the caller to pad or drop.
pub fn cut(samples: usize, rate: u32, seconds: f64) -> impl ExactSizeIterator<Item = Range<usize>> + Clone {
    let length = ((seconds * f64::from(rate)).round() as usize).max(1);
    let (count, length) = if samples < length { (usize::from(samples > 0), samples) } else { (samples / length, length) };
    (0..count).map(move |index| index * length..(index + 1) * length)
}
