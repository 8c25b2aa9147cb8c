//! Reverberation: convolution with a room's impulse response.

use std::path::PathBuf;

use realfft::RealFftPlanner;
use serde::{Deserialize, Serialize};

use crate::level::power;

/// Impulse responses from a folder of audio files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReverbConfig {
    /// Folder of the files; subfolders are searched too.
    pub folder: PathBuf,
    /// Fraction of utterances that are reverberated.
    pub probability: f64,
}

/// Convolves with the room's response, keeping the length, the power, and the time of the direct sound (the response's
/// peak).
pub fn reverberate(samples: &[f32], response: &[f32]) -> Vec<f32> {
    let Some(direct) = (0..response.len()).max_by(|&a, &b| response[a].abs().total_cmp(&response[b].abs())) else {
        return samples.to_vec();
    };
    let length = (samples.len() + response.len()).next_power_of_two();
    let mut planner = RealFftPlanner::<f32>::new();
    let (forward, inverse) = (planner.plan_fft_forward(length), planner.plan_fft_inverse(length));
    let spectrum = |samples: &[f32]| {
        let mut padded = samples.to_vec();
        padded.resize(length, 0.0);
        let mut spectrum = forward.make_output_vec();
        forward.process(&mut padded, &mut spectrum).expect("the buffers were made for this plan");
        spectrum
    };
    let mut product = spectrum(samples);
    product.iter_mut().zip(spectrum(response)).for_each(|(a, b)| *a *= b);
    // Zero in exact arithmetic for real signals; the inverse transform requires exact zeros.
    let last = product.len() - 1;
    (product[0].im, product[last].im) = (0.0, 0.0);
    let mut heard = inverse.make_output_vec();
    inverse.process(&mut product, &mut heard).expect("the buffers were made for this plan");
    heard.drain(..direct);
    heard.truncate(samples.len());
    let (before, after) = (power(samples), power(&heard));
    let gain = if after > 0.0 { (before / after).sqrt() as f32 } else { 0.0 };
    heard.iter_mut().for_each(|x| *x *= gain);
    heard
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn reverberation_is_convolution_from_the_direct_sound_on(
            samples in prop::collection::vec(-1f32..1.0, 1..200),
            response in prop::collection::vec(-0.5f32..0.5, 1..60),
            peak in any::<prop::sample::Index>(),
        ) {
            let mut response = response;
            let direct = peak.index(response.len());
            response[direct] = 1.0;
            let convolved: Vec<f32> = (direct..direct + samples.len())
                .map(|n| {
                    response
                        .iter()
                        .enumerate()
                        .filter(|(k, _)| (0..samples.len()).contains(&n.wrapping_sub(*k)))
                        .map(|(k, h)| h * samples[n - k])
                        .sum()
                })
                .collect();
            let power = |samples: &[f32]| samples.iter().map(|x| x * x).sum::<f32>();
            prop_assume!(power(&convolved) > 1e-2);
            let gain = (power(&samples) / power(&convolved)).sqrt();
            let heard = reverberate(&samples, &response);
            prop_assert_eq!(heard.len(), samples.len());
            for (heard, expected) in heard.iter().zip(&convolved) {
                prop_assert!((heard - gain * expected).abs() < 1e-3, "{heard} for {}", gain * expected);
            }
        }
    }

    #[test]
    fn a_unit_impulse_changes_nothing() {
        let samples = [0.1, -0.4, 0.3];
        for response in [vec![], vec![1.0], vec![0.0, 0.0, 0.7, 0.0]] {
            let heard = reverberate(&samples, &response);
            assert!(heard.iter().zip(samples).all(|(a, b)| (a - b).abs() < 1e-6), "{heard:?}");
        }
    }
}
