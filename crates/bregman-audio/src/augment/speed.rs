//! Speed perturbation (Ko et al. 2015): changes tempo and pitch together, like a tape at another speed.

use crate::{Audio, RATE, Result, resample};

/// Plays 16 kHz audio `factor` times as fast: 1/factor as long, every frequency times `factor`.
pub fn change_speed(samples: &[f32], factor: f32) -> Result<Vec<f32>> {
    // Speeds are rounded to hundredths: the resampler is fast only if the two rates have a ratio of small numbers.
    let rate = (f64::from(factor) * 100.0).round() as u32 * (RATE / 100);
    Ok(resample(&Audio { samples: samples.to_vec(), rate }, RATE)?.samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upward zero crossings per sample.
    fn frequency(samples: &[f32]) -> f64 {
        samples.windows(2).filter(|pair| pair[0] < 0.0 && pair[1] >= 0.0).count() as f64 / samples.len() as f64
    }

    #[test]
    fn speed_changes_length_and_pitch_by_its_factor() {
        let samples: Vec<f32> = (0..48_000).map(|i| (i as f32 * 0.1).sin()).collect();
        for factor in [0.8, 0.9, 1.1, 1.25] {
            let changed = change_speed(&samples, factor).unwrap();
            let (length, pitch) =
                (samples.len() as f64 / changed.len() as f64, frequency(&changed) / frequency(&samples));
            assert!(
                (length - f64::from(factor)).abs() < 1e-3 && (pitch - f64::from(factor)).abs() < 5e-3,
                "{factor}: {length}, {pitch}"
            );
        }
    }
}
