//! Windows over speech, and from the speaker of each window to turns.

use std::ops::Range;

use super::turn::Turn;

/// A window to embed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Window {
    /// Its samples.
    pub(super) samples: Range<usize>,
    /// The stretch of speech that it lies in.
    pub(super) region: usize,
}

/// Windows of `length` samples every `hop` over each region, the last one flush with the end; a shorter region is one
/// window.
pub(super) fn windows(regions: &[Range<usize>], length: usize, hop: usize) -> Vec<Window> {
    let mut windows = Vec::new();
    for (region, Range { start, end }) in regions.iter().cloned().enumerate() {
        let last = end.saturating_sub(length).max(start);
        let starts = (start..last).step_by(hop.max(1)).chain([last]);
        windows.extend(starts.map(|from| Window { samples: from..(from + length).min(end), region }));
    }
    windows
}

/// The turns of labelled windows: each region is divided halfway between the middles of neighbouring windows, and
/// neighbouring parts of one speaker are one turn.
pub(super) fn turns(regions: &[Range<usize>], windows: &[Window], labels: &[usize], rate: u32) -> Vec<Turn> {
    let seconds = |samples: usize| samples as f64 / f64::from(rate);
    let middle = |window: &Window| (window.samples.start + window.samples.end) / 2;
    let mut turns: Vec<Turn> = Vec::new();
    for (at, (window, label)) in windows.iter().zip(labels).enumerate() {
        let beside = |other: Option<&Window>| other.filter(|other| other.region == window.region).map(middle);
        let region = &regions[window.region];
        let from = beside(at.checked_sub(1).map(|before| &windows[before]));
        let start = from.map_or(region.start, |before| (before + middle(window)) / 2);
        let end = beside(windows.get(at + 1)).map_or(region.end, |after| (after + middle(window)) / 2);
        let (start, end, speaker) = (seconds(start), seconds(end), super::name(*label));
        match turns.last_mut() {
            Some(last) if last.end == start && last.speaker == speaker => last.end = end,
            _ => turns.push(Turn { start, end, speaker }),
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_every_region_and_turns_divide_it() {
        let regions = [100..200, 300..330, 400..475];
        let windows = windows(&regions, 40, 20);
        let ranges: Vec<_> = windows.iter().map(|window| window.samples.clone()).collect();
        assert_eq!(ranges, [100..140, 120..160, 140..180, 160..200, 300..330, 400..440, 420..460, 435..475]);
        let turns = turns(&regions, &windows, &[0, 0, 1, 1, 1, 0, 1, 1], 1);
        let found: Vec<_> = turns.iter().map(|turn| (turn.start, turn.end, &*turn.speaker)).collect();
        let (a, b) = ("speaker1", "speaker2");
        assert_eq!(
            found,
            [(100.0, 150.0, a), (150.0, 200.0, b), (300.0, 330.0, b), (400.0, 430.0, a), (430.0, 475.0, b)]
        );
    }
}
