//! The diarization error rate: how much of the speech is given to the wrong speaker, or to nobody, or is none.
//!
//! ```text
//! DER = (missed + false alarm + confusion) / speech of the reference
//! ```
//!
//! Where n speakers talk and m were found, max(n − m, 0) are missed, max(m − n, 0) are false alarms, and of the
//! min(n, m) those are confused whose name is not the mapped one. Names are mapped one to one so that the most speech is
//! right. With a collar, that many seconds on both sides of every boundary of the reference do not count (NIST's
//! scoring: 0.25 s).

use serde::Serialize;

use super::assignment::assign;
use super::turn::{Turn, speakers_of};

/// How far a diarization is from a reference; all in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct DiarizationErrors {
    /// Speech of the reference that counts.
    pub speech: f64,
    /// Speech that was not found.
    pub missed: f64,
    /// Speech that is none.
    pub false_alarm: f64,
    /// Speech of another speaker.
    pub confusion: f64,
}

impl DiarizationErrors {
    /// Compares `found` with `reference`, names aside. Nothing within `collar` seconds of a boundary of the reference
    /// counts.
    pub fn between(reference: &[Turn], found: &[Turn], collar: f64) -> Self {
        let (truth, ours) = (Speakers::new(reference), Speakers::new(found));
        let edges = reference.iter().flat_map(|turn| [turn.start, turn.end]);
        let blurred: Vec<[f64; 2]> =
            edges.map(|edge| [edge - collar, edge + collar]).filter(|_| collar > 0.0).collect();
        let turns = reference.iter().chain(found).flat_map(|turn| [turn.start, turn.end]);
        let mut times: Vec<f64> = turns.chain(blurred.iter().flatten().copied()).collect();
        times.sort_by(f64::total_cmp);
        times.dedup();

        // between two times nothing changes
        let mut pieces = Vec::new();
        for pair in times.windows(2) {
            let middle = (pair[0] + pair[1]) / 2.0;
            if !blurred.iter().any(|[from, to]| (from..to).contains(&&middle)) {
                pieces.push((pair[1] - pair[0], truth.at(middle), ours.at(middle)));
            }
        }
        let mut together = vec![vec![0.0; ours.names.len()]; truth.names.len()];
        for (seconds, truth, ours) in &pieces {
            for &name in truth {
                ours.iter().for_each(|&found| together[name][found] += seconds);
            }
        }
        let mapped = assign(&together);
        let mut errors = Self::default();
        for (seconds, truth, ours) in &pieces {
            let right = truth.iter().filter(|&&name| mapped[name].is_some_and(|found| ours.contains(&found))).count();
            errors.speech += seconds * truth.len() as f64;
            errors.missed += seconds * truth.len().saturating_sub(ours.len()) as f64;
            errors.false_alarm += seconds * ours.len().saturating_sub(truth.len()) as f64;
            errors.confusion += seconds * (truth.len().min(ours.len()) - right) as f64;
        }
        errors
    }

    /// All errors over all speech; above 1 if there are more false alarms than speech.
    pub fn rate(&self) -> f64 {
        let wrong = self.missed + self.false_alarm + self.confusion;
        if self.speech > 0.0 { wrong / self.speech } else { f64::from(u8::from(wrong > 0.0)) }
    }
}

/// The errors of several recordings together.
impl std::iter::Sum for DiarizationErrors {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            speech: sum.speech + one.speech,
            missed: sum.missed + one.missed,
            false_alarm: sum.false_alarm + one.false_alarm,
            confusion: sum.confusion + one.confusion,
        })
    }
}

/// Turns with numbers for names.
struct Speakers<'a> {
    names: Vec<&'a str>,
    /// By start.
    turns: Vec<(f64, f64, usize)>,
    longest: f64,
}

impl<'a> Speakers<'a> {
    fn new(turns: &'a [Turn]) -> Self {
        let names = speakers_of(turns);
        let number = |turn: &Turn| names.binary_search(&&*turn.speaker).unwrap_or_default();
        let mut turns: Vec<_> = turns.iter().map(|turn| (turn.start, turn.end, number(turn))).collect();
        turns.sort_by(|a, b| a.0.total_cmp(&b.0));
        let longest = turns.iter().map(|turn| turn.1 - turn.0).fold(0.0, f64::max);
        Self { names, turns, longest }
    }

    /// Who speaks at `time`; a speaker's own overlapping turns count once.
    fn at(&self, time: f64) -> Vec<usize> {
        let begun = self.turns.partition_point(|turn| turn.0 <= time);
        let near = self.turns[..begun].iter().rev().take_while(|turn| turn.0 >= time - self.longest);
        let mut who: Vec<usize> = near.filter(|turn| turn.1 > time).map(|turn| turn.2).collect();
        who.sort_unstable();
        who.dedup();
        who
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn turn(start: f64, end: f64, speaker: &str) -> Turn {
        Turn { start, end, speaker: speaker.to_owned() }
    }

    fn errors(reference: &[Turn], found: &[Turn], collar: f64) -> [f64; 4] {
        let errors = DiarizationErrors::between(reference, found, collar);
        [errors.speech, errors.missed, errors.false_alarm, errors.confusion].map(|x| (x * 1e6).round() / 1e6)
    }

    #[test]
    fn each_kind_of_error_is_counted() {
        let truth = [turn(0.0, 10.0, "a"), turn(10.0, 16.0, "b")];
        assert_eq!(errors(&truth, &[], 0.0), [16.0, 16.0, 0.0, 0.0]);
        assert_eq!(errors(&truth, &[turn(0.0, 16.0, "x")], 0.0), [16.0, 0.0, 0.0, 6.0]);
        assert_eq!(errors(&truth, &[turn(0.0, 9.0, "x"), turn(9.0, 18.0, "y")], 0.0), [16.0, 0.0, 2.0, 1.0]);
        // b and a third speaker in the middle of a's turn
        let found = [turn(0.0, 4.0, "y"), turn(4.0, 5.0, "z"), turn(6.0, 10.0, "y"), turn(10.0, 16.0, "x")];
        assert_eq!(errors(&truth, &found, 0.0), [16.0, 1.0, 0.0, 1.0]);
        assert_eq!(DiarizationErrors::between(&truth, &found, 0.0).rate(), 2.0 / 16.0);
        assert_eq!(DiarizationErrors::between(&[], &[], 0.0).rate(), 0.0);
        assert_eq!(DiarizationErrors::between(&[], &found, 0.0).rate(), 1.0);
    }

    #[test]
    fn two_at_a_time_count_twice() {
        let truth = [turn(0.0, 4.0, "a"), turn(3.0, 6.0, "b")];
        assert_eq!(errors(&truth, &truth, 0.0), [7.0, 0.0, 0.0, 0.0]);
        assert_eq!(errors(&truth, &[turn(0.0, 3.0, "x"), turn(3.0, 6.0, "y")], 0.0), [7.0, 1.0, 0.0, 0.0]);
        assert_eq!(
            errors(&[turn(0.0, 4.0, "a"), turn(2.0, 5.0, "a")], &[turn(0.0, 5.0, "x")], 0.0),
            [5.0, 0.0, 0.0, 0.0]
        );
    }

    #[test]
    fn the_collar_forgives_what_lies_at_boundaries() {
        let truth = [turn(1.0, 5.0, "a"), turn(5.0, 9.0, "b")];
        let found = [turn(0.8, 5.2, "x"), turn(5.2, 9.1, "y")];
        assert_eq!(errors(&truth, &found, 0.0), [8.0, 0.0, 0.3, 0.2]);
        assert_eq!(errors(&truth, &found, 0.25), [7.0, 0.0, 0.0, 0.0]);
    }

    fn turns() -> impl Strategy<Value = Vec<Turn>> {
        let one = (0..400u32, 1..60u32, 0..5u8);
        let turn = |(start, length, who): (u32, u32, u8)| {
            let at = |tenths: u32| f64::from(tenths) / 10.0;
            turn(at(start), at(start + length), ["a", "b", "c", "d", "e"][usize::from(who)])
        };
        prop::collection::vec(one.prop_map(turn), 0..14)
    }

    /// Other names, one to one, and another order.
    fn renamed(turns: &[Turn], shift: usize) -> Vec<Turn> {
        let name = |speaker: &str| ["v", "w", "x", "y", "z"][(usize::from(speaker.as_bytes()[0] - b'a') + shift) % 5];
        turns.iter().rev().map(|turn| self::turn(turn.start, turn.end, name(&turn.speaker))).collect()
    }

    proptest! {
        #[test]
        fn a_diarization_has_no_errors_against_itself_by_any_names(
            truth in turns(), shift in 0..5usize, collar in prop::sample::select(vec![0.0, 0.25]),
        ) {
            let errors = DiarizationErrors::between(&truth, &renamed(&truth, shift), collar);
            prop_assert_eq!((errors.missed, errors.false_alarm, errors.confusion), (0.0, 0.0, 0.0));
        }

        #[test]
        fn names_and_order_do_not_matter(truth in turns(), found in turns(), shift in 0..5usize) {
            let plain = errors(&truth, &found, 0.25);
            prop_assert_eq!(plain, errors(&renamed(&truth, shift), &found, 0.25));
            prop_assert_eq!(plain, errors(&truth, &renamed(&found, shift), 0.25));
        }

        #[test]
        fn every_error_is_within_its_bounds(truth in turns(), found in turns()) {
            let errors = DiarizationErrors::between(&truth, &found, 0.0);
            let total = DiarizationErrors::between(&found, &[], 0.0).speech;
            let DiarizationErrors { speech, missed, false_alarm, confusion } = errors;
            prop_assert!(missed >= 0.0 && false_alarm >= 0.0 && confusion >= 0.0);
            prop_assert!(missed + confusion <= speech + 1e-9 && false_alarm + confusion <= total + 1e-9);
            // what is not missed was found, as this speaker or another one
            prop_assert!((speech - missed - (total - false_alarm)).abs() < 1e-9);
            // the other way round, missed speech and false alarms change places
            let back = DiarizationErrors::between(&found, &truth, 0.0);
            prop_assert!((back.missed - false_alarm).abs() < 1e-9 && (back.confusion - confusion).abs() < 1e-9);
        }
    }
}
