//! Whether there is anything in a recording to recognise a voice by.

use crate::level::moments;
use crate::{Error, Result};

/// Less than this says nothing about a voice.
const LEAST_SECONDS: f64 = 0.1;
/// Speech is louder than this, in dB of full scale.
const LEAST_DB: f32 = -75.0;

/// Refuses a recording that no voice can be recognised by: of less than 0.1 s, with a number that is not finite, or
/// without 0.1 s that are louder than −75 dB of full scale (a constant counts as silence). Noise is not told from
/// speech.
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
    let levels: Vec<f32> = samples.chunks(hop).map(decibels).collect();
    let loud = levels.iter().filter(|&&level| level > LEAST_DB).count() * hop;
    if seconds(loud) >= LEAST_SECONDS {
        return Ok(());
    }
    let loudest = levels.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let length = seconds(samples.len());
    Err(Error::NoSpeech {
        found: match loudest {
            f32::NEG_INFINITY => format!("its {length:.1} s are silent"),
            _ => format!(
                "of its {length:.1} s, {:.2} s are louder than {LEAST_DB} dB of full scale, the loudest \
                 {loudest:.0} dB",
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
}
