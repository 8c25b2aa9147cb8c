//! Additive noise at a signal-to-noise ratio.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::level::power;
use crate::{Error, Result};

/// Noise from a folder of audio files, such as MUSAN.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoiseConfig {
    /// Folder of the files; subfolders are searched too.
    pub folder: PathBuf,
    /// Lowest and highest signal-to-noise ratio in dB; values are drawn uniformly between them.
    pub snr_db: [f32; 2],
    /// Fraction of utterances that get noise.
    pub probability: f64,
}

impl NoiseConfig {
    pub(super) fn check(&self) -> Result<()> {
        let [low, high] = self.snr_db;
        if low.is_finite() && high.is_finite() && low <= high {
            return Ok(());
        }
        Err(Error::config("noise.snr_db", format!("{low} … {high}"), "two rising numbers"))
    }
}

/// Adds noise, repeated if it is shorter, so that signal power / noise power = 10^(snr_db / 10). If either is
/// silent, nothing changes.
pub fn add_noise(samples: &mut [f32], noise: &[f32], snr_db: f32) {
    // Only the part of the noise that is added counts.
    let noise = &noise[..noise.len().min(samples.len())];
    let (signal_power, noise_power) = (power(samples), power(noise));
    if noise_power <= 0.0 {
        return;
    }
    let gain = (signal_power / noise_power / 10f64.powf(f64::from(snr_db) / 10.0)).sqrt() as f32;
    samples.iter_mut().zip(noise.iter().cycle()).for_each(|(x, n)| *x += gain * n);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn noise_is_added_at_the_stated_ratio(snr_db in -10f32..40.0, gain in 0.001f32..10.0, repeats in 1usize..5) {
            let clean: Vec<f32> = (0..8000).map(|i| 0.2 * (i as f32 * 0.05).sin()).collect();
            let noise: Vec<f32> =
                (0..8000 / repeats).map(|i| gain * (((i * 7919) % 1000) as f32 / 1000.0 - 0.5)).collect();
            let mut noisy = clean.clone();
            add_noise(&mut noisy, &noise, snr_db);
            let power = |values: &mut dyn Iterator<Item = f32>| values.map(|x| f64::from(x).powi(2)).sum::<f64>();
            let ratio = power(&mut clean.iter().copied()) / power(&mut noisy.iter().zip(&clean).map(|(a, b)| a - b));
            prop_assert!((10.0 * ratio.log10() - f64::from(snr_db)).abs() < 0.05, "{} dB", 10.0 * ratio.log10());
        }
    }

    #[test]
    fn silence_changes_nothing() {
        let mut samples = vec![0.5; 10];
        add_noise(&mut samples, &[0.0; 4], 10.0);
        add_noise(&mut samples, &[], 10.0);
        assert_eq!(samples, vec![0.5; 10]);
        let mut silence = vec![0.0; 10];
        add_noise(&mut silence, &[0.1, -0.1], 10.0);
        assert_eq!(silence, vec![0.0; 10]);
    }
}
