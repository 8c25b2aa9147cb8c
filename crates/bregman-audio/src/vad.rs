//! Energy-based voice activity detection, for clean recordings with long pauses; off by default.
//!
//! A frame of 10 ms counts as loud if its level is within `range_db` of the recording's loud parts (the 95th
//! percentile of all frames, which clicks do not affect) and above `least_db` of full scale. It is speech if at
//! least half of the frames within `context` of it are loud, which fills short gaps and drops short noises.
//!
//! [`check_speech`] asks whether there is anything to recognise a voice by at all.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::level::{moments, power};
use crate::{Error, Result};

/// Less than this says nothing about a voice.
const LEAST_SECONDS: f64 = 0.1;

/// Settings of the energy detector.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Vad {
    /// How far below the recording's loud parts speech may be, in dB.
    pub range_db: f32,
    /// Speech is louder than this, in dB of full scale.
    pub least_db: f32,
    /// Frames to each side that vote on a frame.
    pub context: usize,
}

impl Default for Vad {
    fn default() -> Self {
        Self { range_db: 35.0, least_db: -75.0, context: 10 }
    }
}

impl Vad {
    /// The ranges of speech, in samples, in order.
    pub fn speech(&self, samples: &[f32], rate: u32) -> Vec<Range<usize>> {
        let hop = (rate as usize / 100).max(1);
        let level = |frame: &[f32]| 10.0 * (power(frame) + 1e-20).log10() as f32;
        let levels: Vec<f32> = samples.chunks(hop).map(level).collect();
        if levels.is_empty() {
            return Vec::new();
        }
        let mut sorted = levels.clone();
        sorted.sort_by(f32::total_cmp);
        let threshold = (sorted[(sorted.len() - 1) * 95 / 100] - self.range_db).max(self.least_db);
        // loud[i] is the number of loud frames before i.
        let loud: Vec<usize> = std::iter::once(0)
            .chain(levels.iter().scan(0, |count, &level| {
                *count += usize::from(level > threshold);
                Some(*count)
            }))
            .collect();
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for frame in 0..levels.len() {
            let (from, to) = (frame.saturating_sub(self.context), (frame + self.context + 1).min(levels.len()));
            if 2 * (loud[to] - loud[from]) < to - from {
                continue;
            }
            let (start, end) = (frame * hop, ((frame + 1) * hop).min(samples.len()));
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        ranges
    }

    /// The speech alone, joined.
    pub fn keep_speech(&self, samples: &[f32], rate: u32) -> Vec<f32> {
        self.speech(samples, rate).into_iter().flat_map(|range| &samples[range]).copied().collect()
    }
}

/// Refuses a recording that no voice can be recognised by: of less than 0.1 s, with a number that is not finite, or
/// without 0.1 s that are louder than −75 dB of full scale (a constant counts as silence). Noise is not told from speech.
///
/// # Errors
/// [`Error::NotFinite`] or [`Error::NoSpeech`], which says what was found.
pub fn check_speech(samples: &[f32], rate: u32) -> Result<()> {
    if let Some(index) = samples.iter().position(|sample| !sample.is_finite()) {
        return Err(Error::NotFinite { index: index as u64 });
    }
    let seconds = |samples: usize| samples as f64 / f64::from(rate);
    if seconds(samples.len()) < LEAST_SECONDS {
        let found = format!("it has {} samples ({:.3} s)", samples.len(), seconds(samples.len()));
        return Err(Error::NoSpeech { found });
    }
    let hop = (rate as usize / 100).max(1);
    let decibels = |frame: &[f32]| 10.0 * moments(frame).1.log10() as f32;
    let least = Vad::default().least_db;
    let levels: Vec<f32> = samples.chunks(hop).map(decibels).collect();
    let loud = levels.iter().filter(|&&level| level > least).count() * hop;
    if seconds(loud) >= LEAST_SECONDS {
        return Ok(());
    }
    let loudest = levels.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let length = seconds(samples.len());
    Err(Error::NoSpeech {
        found: match loudest {
            f32::NEG_INFINITY => format!("its {length:.1} s are silent"),
            _ => format!(
                "of its {length:.1} s, {:.2} s are louder than {least} dB of full scale, the loudest {loudest:.0} dB",
                seconds(loud)
            ),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half a second of quiet noise, a second of tone, a second of quiet noise.
    fn recording(gain: f32) -> Vec<f32> {
        let noise = |i: usize| 1e-4 * (((i * 7919) % 1000) as f32 / 500.0 - 1.0);
        (0..40_000)
            .map(|i| gain * if (8_000..24_000).contains(&i) { 0.3 * (i as f32 * 0.1).sin() } else { noise(i) })
            .collect()
    }

    #[test]
    fn speech_is_found_at_any_level() {
        for gain in [1.0, 0.05] {
            let ranges = Vad::default().speech(&recording(gain), 16_000);
            assert_eq!(ranges.len(), 1, "{ranges:?}");
            assert!(ranges[0].start.abs_diff(8_000) <= 320 && ranges[0].end.abs_diff(24_000) <= 320, "{ranges:?}");
        }
    }

    #[test]
    fn a_click_is_not_speech_and_a_short_gap_is() {
        let mut samples = recording(1.0);
        samples[2_000..2_160].fill(0.9);
        samples[16_000..16_800].fill(0.0);
        let ranges = Vad::default().speech(&samples, 16_000);
        assert!(ranges.len() == 1 && ranges[0].start.abs_diff(8_000) <= 320, "{ranges:?}");
    }

    #[test]
    fn a_recording_without_a_voice_is_refused_by_what_is_in_it() {
        let refused = |samples: &[f32]| check_speech(samples, 16_000).unwrap_err().to_string();
        let found = |samples: &[f32], words: &str| {
            let message = refused(samples);
            assert!(message.starts_with("no speech in it: ") && message.contains(words), "{message}");
        };
        found(&[], "0 samples (0.000 s)");
        found(&[0.5], "1 samples (0.000 s)");
        found(&[0.0; 32_000], "its 2.0 s are silent");
        found(&[0.25; 32_000], "its 2.0 s are silent");
        let mut click = vec![0.0; 32_000];
        click[800..960].fill(0.9);
        (click[800], click[801]) = (-0.9, 0.3);
        found(&click, "0.01 s are louder than -75 dB");
        let hiss: Vec<f32> = (0..32_000).map(|i| if i % 2 == 0 { 3e-5 } else { -3e-5 }).collect();
        found(&hiss, "the loudest -90 dB");
        assert!(refused(&[vec![0.1; 2000], vec![f32::NAN]].concat()).contains("sample 2000 is not a finite number"));
        for gain in [1.0, 0.01] {
            check_speech(&recording(gain), 16_000).unwrap();
        }
    }

    #[test]
    fn silence_and_an_empty_recording_have_no_speech() {
        assert!(Vad::default().speech(&[0.0; 16_000], 16_000).is_empty());
        assert!(Vad::default().speech(&[], 16_000).is_empty());
        assert!(Vad::default().keep_speech(&[0.0; 1_000], 16_000).is_empty());
    }
}
