//! Where in a recording somebody speaks, found by level.
//!
//! ```text
//! level of 10 ms ─▶ smoothed ─▶ above the floor of the seconds around? ─▶ short pauses filled, clicks dropped
//! ```
//!
//! Speech rises and falls by more than 10 dB within a syllable, noise does not: what counts is how far a frame lies
//! above the quiet frames of the seconds around it. So a loud and a quiet speaker, or two microphones with different
//! noise, need no common threshold. Music and clatter are taken for speech.

use std::ops::Range;

use crate::level::moments;

/// Frames per second.
const FRAMES: usize = 100;
/// Frames over which the level is smoothed, on either side.
const SMOOTH: usize = 2;
/// The floor is that of so many frames on either side.
const AROUND: usize = 4 * FRAMES;
/// Share of frames below the floor, and below the level of loud speech.
const FLOOR: f64 = 0.1;
const LOUD: f64 = 0.95;
/// Less than this between floor and loud frames is noise, in dB.
const LEAST_SPREAD: usize = 6;
/// How far above the floor speech begins, as a share of the spread, and at least and at most in dB.
const RISE: f64 = 0.2;
const RISE_BETWEEN: [f64; 2] = [3.0, 15.0];
/// Levels are counted in dB above this.
const LOWEST: f64 = -75.0;
/// Pauses up to this belong to a turn: between words and at stops.
const LONGEST_PAUSE: usize = 8 * FRAMES / 10;
/// Anything shorter is a click.
const SHORTEST: usize = FRAMES / 10;
/// Added on both sides: words begin and end softly.
const MARGIN: usize = FRAMES / 10;

/// The stretches of speech in a recording, in samples, in order and apart from each other.
///
/// ```
/// let tone = |i: usize| 0.2 * (i as f32 * 0.3).sin() * (i as f32 * 0.001).sin();
/// let samples: Vec<f32> = (0..64_000).map(|i| if (16_000..48_000).contains(&i) { tone(i) } else { 0.0 }).collect();
/// let speech = bregman_audio::speech_regions(&samples, 16_000);
/// assert_eq!(speech.len(), 1);
/// assert!(speech[0].start.abs_diff(16_000) < 2_400 && speech[0].end.abs_diff(48_000) < 2_400);
/// ```
pub fn speech_regions(samples: &[f32], rate: u32) -> Vec<Range<usize>> {
    let hop = (rate as usize / FRAMES).max(1);
    let levels = levels(samples, hop);
    let mut regions = runs(&above_floor(&levels));
    close_pauses(&mut regions, LONGEST_PAUSE);
    regions.retain(|region| region.len() >= SHORTEST);
    for region in &mut regions {
        *region = region.start.saturating_sub(MARGIN)..region.end + MARGIN;
    }
    close_pauses(&mut regions, 0);
    regions.iter().map(|frames| frames.start * hop..(frames.end * hop).min(samples.len())).collect()
}

/// The level of every frame, in whole dB above [`LOWEST`].
fn levels(samples: &[f32], hop: usize) -> Vec<u8> {
    let powers: Vec<f64> = samples.chunks(hop).map(|frame| moments(frame).1).collect();
    let smoothed = |at: usize| {
        let around = &powers[at.saturating_sub(SMOOTH)..(at + SMOOTH + 1).min(powers.len())];
        10.0 * (around.iter().sum::<f64>() / around.len() as f64).log10() - LOWEST
    };
    (0..powers.len()).map(|at| smoothed(at) as u8).collect() // a cast of −∞ is 0
}

/// Whether each frame is louder than the quiet frames of the seconds around it.
fn above_floor(levels: &[u8]) -> Vec<bool> {
    let mut counts = [0usize; 256];
    let quantile = |counts: &[usize; 256], frames: usize, share: f64| {
        let wanted = (share * frames as f64) as usize;
        let mut seen = 0;
        counts.iter().position(|&count| {
            seen += count;
            seen > wanted
        })
    };
    let mut around = 0..0;
    let mut is_speech = |(at, &level): (usize, &u8)| {
        let wanted = at.saturating_sub(AROUND)..(at + AROUND).min(levels.len());
        levels[around.end..wanted.end].iter().for_each(|&level| counts[usize::from(level)] += 1);
        levels[around.start..wanted.start].iter().for_each(|&level| counts[usize::from(level)] -= 1);
        around = wanted;
        let [floor, loud] = [FLOOR, LOUD].map(|share| quantile(&counts, around.len(), share).unwrap_or(0));
        let rise = (RISE * (loud - floor) as f64).clamp(RISE_BETWEEN[0], RISE_BETWEEN[1]);
        loud - floor >= LEAST_SPREAD && f64::from(level) > floor as f64 + rise
    };
    levels.iter().enumerate().map(&mut is_speech).collect()
}

/// The ranges of consecutive `true`.
fn runs(flags: &[bool]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for at in (0..flags.len()).filter(|&at| flags[at]) {
        match runs.last_mut() {
            Some(last) if last.end == at => last.end += 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}

/// Joins ranges with at most `longest` between them.
fn close_pauses(regions: &mut Vec<Range<usize>>, longest: usize) {
    regions.dedup_by(|next, last| {
        let close = next.start <= last.end + longest;
        if close {
            last.end = last.end.max(next.end);
        }
        close
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Noise of this amplitude, the same for the same position.
    fn noise(at: usize, amplitude: f32) -> f32 {
        let hash = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        amplitude * (hash as f32 / (1u64 << 23) as f32 - 1.0)
    }

    /// "Syllables" of 0.2 s in these seconds, over noise.
    fn recording(seconds: usize, turns: &[(Range<usize>, f32)], hiss: f32) -> Vec<f32> {
        let sample = |i: usize| {
            let turn = turns.iter().find(|(turn, _)| turn.contains(&(i / 16_000)));
            let swell = ((i % 3200) as f32 / 3200.0 * std::f32::consts::PI).sin().powi(2);
            turn.map_or(0.0, |(_, gain)| gain * swell * (i as f32 * 0.15).sin()) + noise(i, hiss)
        };
        (0..seconds * 16_000).map(sample).collect()
    }

    fn seconds(regions: &[Range<usize>]) -> Vec<[f64; 2]> {
        regions.iter().map(|region| [region.start, region.end].map(|at| at as f64 / 16e3)).collect()
    }

    #[test]
    fn turns_are_found_at_any_level_and_over_noise() {
        for gain in [1.0, 0.3, 0.1] {
            let turns = [(2..5, 0.5 * gain), (7..10, 0.05 * gain)];
            let found = seconds(&speech_regions(&recording(13, &turns, 0.001 * gain), 16_000));
            assert_eq!(found.len(), 2, "{found:?}");
            for (found, truth) in found.iter().zip([[2.0, 5.0], [7.0, 10.0]]) {
                assert!(found.iter().zip(truth).all(|(found, truth)| (found - truth).abs() < 0.2), "{found:?}");
            }
        }
    }

    #[test]
    fn steady_noise_and_silence_are_no_speech() {
        for hiss in [0.0, 1e-6, 0.001, 0.3] {
            assert_eq!(speech_regions(&recording(8, &[], hiss), 16_000), [], "{hiss}");
        }
        assert_eq!(speech_regions(&[], 16_000), []);
        assert_eq!(speech_regions(&[0.3], 16_000), []);
    }

    #[test]
    fn a_click_is_no_speech_and_a_short_pause_is_no_end() {
        let mut click = recording(6, &[], 0.001);
        click[48_000..48_100].fill(0.9);
        assert_eq!(speech_regions(&click, 16_000), []);
        let mut pause = recording(8, &[(2..6, 0.5)], 0.001);
        (60_000..66_000).for_each(|i| pause[i] = noise(i, 0.001));
        assert_eq!(speech_regions(&pause, 16_000).len(), 1);
    }

    #[test]
    fn regions_are_in_order_apart_and_inside() {
        let samples = recording(20, &[(0..3, 0.5), (5..6, 0.2), (8..9, 0.1), (17..20, 0.3)], 0.001);
        for length in [samples.len(), samples.len() - 77, 24_321, 161] {
            let regions = speech_regions(&samples[..length], 16_000);
            assert!(regions.iter().all(|region| region.start < region.end && region.end <= length));
            assert!(regions.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }
}
