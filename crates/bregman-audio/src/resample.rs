//! Sampling-rate conversion with `rubato`'s FFT resampler.

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Fft, FixedSync, Resampler};

use crate::{Audio, Error, Result};

/// Smallest input block of the resampler in samples; its filter is as long, so this sets how steep the filter is.
const BLOCK: usize = 1024;
/// Other rates mean a corrupt header, and their FFT would need too much memory.
const RATES: std::ops::RangeInclusive<u32> = 1_000..=768_000;

/// Converts to another rate; `rate` equal to the audio's own is a copy. The length is ⌈samples · rate / old rate⌉.
pub fn resample(audio: &Audio, rate: u32) -> Result<Audio> {
    for value in [audio.rate, rate] {
        if !RATES.contains(&value) {
            return Err(Error::config("sampling rate", value, "between 1000 and 768000 Hz"));
        }
    }
    if audio.rate == rate || audio.samples.is_empty() {
        return Ok(Audio { samples: audio.samples.clone(), rate });
    }
    let frames = audio.samples.len();
    // A filter of even length on both sides: otherwise its delay is not a whole number of samples and the output is
    // shifted.
    let unit = 2 * audio.rate as usize / gcd(audio.rate, rate) as usize;
    let block = BLOCK.next_multiple_of(unit);
    let mut resampler =
        Fft::<f32>::new(audio.rate as usize, rate as usize, block, 1, FixedSync::Both).map_err(broken)?;
    let mut samples = vec![0.0; resampler.process_all_needed_output_len(frames)];
    let capacity = samples.len();
    let input = InterleavedSlice::new(&audio.samples, 1, frames).map_err(broken)?;
    let mut output = InterleavedSlice::new_mut(&mut samples, 1, capacity).map_err(broken)?;
    let (_, written) = resampler.process_all_into_buffer(&input, &mut output, frames, None).map_err(broken)?;
    samples.truncate(written);
    Ok(Audio { samples, rate })
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn broken(error: impl std::fmt::Display) -> Error {
    Error::Decode { reason: format!("resampling failed: {error}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(hz: f64, rate: u32, seconds: f64) -> Vec<f32> {
        (0..(seconds * f64::from(rate)) as usize)
            .map(|i| (std::f64::consts::TAU * hz * i as f64 / f64::from(rate)).sin() as f32)
            .collect()
    }

    /// Away from the ends, where the filter reads zeros outside of the signal.
    fn middle(samples: &[f32]) -> &[f32] {
        &samples[samples.len() / 4..samples.len() * 3 / 4]
    }

    #[test]
    fn a_tone_stays_the_same_tone_in_time_and_amplitude() {
        for rate in [8_000, 11_025, 22_050, 32_000, 44_100, 48_000, 96_000] {
            let resampled = resample(&Audio { samples: tone(1000.0, rate, 1.0), rate }, 16_000).unwrap();
            assert_eq!((resampled.rate, resampled.samples.len()), (16_000, 16_000));
            let expected = tone(1000.0, 16_000, 1.0);
            let worst = middle(&resampled.samples)
                .iter()
                .zip(middle(&expected))
                .map(|(a, b)| (a - b).abs())
                .fold(0.0, f32::max);
            assert!(worst < 1e-3, "{rate}: {worst}");
        }
    }

    #[test]
    fn frequencies_above_the_new_nyquist_are_removed() {
        for hz in [8_500.0, 12_000.0, 20_000.0] {
            let resampled = resample(&Audio { samples: tone(hz, 48_000, 1.0), rate: 48_000 }, 16_000).unwrap();
            let loudest = middle(&resampled.samples).iter().fold(0f32, |loudest, x| loudest.max(x.abs()));
            assert!(loudest < 1e-3, "{hz} Hz: {loudest}");
        }
    }

    #[test]
    fn odd_lengths_and_rates_give_the_stated_length() {
        for (rate, length) in [(44_100, 1), (8_000, 7), (16_001, 333), (767_999, 5_000), (1_000, 10), (16_000, 12)] {
            let resampled = resample(&Audio { samples: vec![0.1; length], rate }, 16_000).unwrap();
            assert_eq!(resampled.samples.len(), (length * 16_000).div_ceil(rate as usize), "{length} at {rate}");
        }
        assert!(resample(&Audio { samples: Vec::new(), rate: 8_000 }, 16_000).unwrap().samples.is_empty());
        assert!(resample(&Audio { samples: vec![0.1], rate: 0 }, 16_000).is_err());
    }
}
