//! Level normalisation and cutting, as the paper prepares its training audio.

use std::ops::Range;

/// Root mean square after [`level`]: −20 dB of full scale.
const TARGET_RMS: f64 = 0.1;

/// Subtracts the mean, scales to −20 dB RMS and clips at ±1. Digital silence stays silence.
pub fn level(samples: &mut [f32]) {
    if samples.is_empty() {
        return;
    }
    let (mean, power) = moments(samples);
    let gain = if power > 0.0 { TARGET_RMS / power.sqrt() } else { 0.0 };
    // In f64: the rounding error of an f32 mean would be amplified by a large gain.
    samples.iter_mut().for_each(|x| *x = ((f64::from(*x) - mean) * gain).clamp(-1.0, 1.0) as f32);
}

/// Mean square; 0 for an empty signal.
pub(crate) fn power(samples: &[f32]) -> f64 {
    sums(samples).1 / samples.len().max(1) as f64
}

/// The mean, and the mean square of the deviations from it.
pub(crate) fn moments(samples: &[f32]) -> (f64, f64) {
    let (sum, squares) = sums(samples);
    let mean = sum / samples.len().max(1) as f64;
    let power = squares / samples.len().max(1) as f64 - mean * mean;
    // Rounding leaves some power in a constant signal; below this fraction of its square it counts as silence.
    (mean, if power > 1e-12 * mean * mean { power } else { 0.0 })
}

/// Σx and Σx², in eight partial sums each to shorten the dependency chain.
fn sums(samples: &[f32]) -> (f64, f64) {
    let (eights, rest) = samples.as_chunks::<8>();
    let (mut sum, mut squares) = ([0f64; 8], [0f64; 8]);
    for eight in eights {
        for (i, &x) in eight.iter().enumerate() {
            sum[i] += f64::from(x);
            squares[i] += f64::from(x) * f64::from(x);
        }
    }
    let add = |(sum, squares): (f64, f64), &x: &f32| (sum + f64::from(x), squares + f64::from(x).powi(2));
    rest.iter().fold((sum.iter().sum(), squares.iter().sum()), add)
}

/// Non-overlapping ranges of exactly `seconds` from the start; the remainder at the end is dropped.
/// A recording shorter than one cut is one range of its own length, for the caller to pad or drop.
pub fn cut(samples: usize, rate: u32, seconds: f64) -> impl ExactSizeIterator<Item = Range<usize>> + Clone {
    let length = ((seconds * f64::from(rate)).round() as usize).max(1);
    let (count, length) =
        if samples < length { (usize::from(samples > 0), samples) } else { (samples / length, length) };
    (0..count).map(move |index| index * length..(index + 1) * length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn statistics(samples: &[f32]) -> (f64, f64) {
        let mean = samples.iter().map(|&x| f64::from(x)).sum::<f64>() / samples.len() as f64;
        (mean, (samples.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / samples.len() as f64).sqrt())
    }

    proptest! {
        #[test]
        fn level_removes_the_mean_and_sets_the_loudness(
            offset in -0.5f32..0.5,
            gain in 1e-4f32..10.0,
            period in 5usize..90,
        ) {
            let mut samples: Vec<f32> =
                (0..8000).map(|i| offset + gain * (i as f32 * std::f32::consts::TAU / period as f32).sin()).collect();
            level(&mut samples);
            let (mean, rms) = statistics(&samples);
            prop_assert!(mean.abs() < 1e-6 && (rms - 0.1).abs() < 1e-4, "mean {mean}, rms {rms}");
        }

        #[test]
        fn cuts_are_consecutive_equal_and_leave_less_than_one_over(samples in 0usize..200_000, seconds in 0.5f64..4.0) {
            let length = (seconds * 16_000.0).round() as usize;
            let cuts: Vec<_> = cut(samples, 16_000, seconds).collect();
            let end = cuts.iter().try_fold(0, |end, range| (range.start == end).then_some(range.end));
            if samples >= length {
                prop_assert!(cuts.iter().all(|range| range.len() == length));
                prop_assert!(end.is_some_and(|end| end <= samples && samples - end < length));
            } else {
                prop_assert_eq!(end, Some(samples));
            }
        }
    }

    #[test]
    fn level_clips_peaks_at_full_scale() {
        let mut samples = vec![0.001; 10_000];
        (samples[77], samples[99]) = (1.0, -1.0);
        level(&mut samples);
        assert_eq!((samples[77], samples[99]), (1.0, -1.0));
    }

    #[test]
    fn level_leaves_silence_silent() {
        for constant in [0.0, 0.3] {
            let mut samples = vec![constant; 100];
            level(&mut samples);
            assert!(samples.iter().all(|&x| x == 0.0));
        }
        level(&mut []);
    }
}
