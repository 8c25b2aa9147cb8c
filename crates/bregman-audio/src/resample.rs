//! Sampling-rate conversion by `rubato`'s FFT resampler.

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Fft, FixedSync, Resampler};

use crate::{Audio, Error, Result};

/// Least input block of the resampler in samples; its filter is as long, so this sets how steep the filter is.
const BLOCK: usize = 1024;
/// Rates beyond these are a broken header, and their FFT would need unreasonable memory.
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
    // A filter of even length on both sides: otherwise its delay is not a whole number of samples and the output is shifted.
    let unit = 2 * audio.rate as usize / gcd(audio.rate, rate) as usize;
    let block = BLOCK.next_multiple_of(unit);
    let mut resampler = Fft::<f32>::new(audio.rate as usize, rate as usize, block, 1, FixedSync::Both).map_err(broken)?;
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
