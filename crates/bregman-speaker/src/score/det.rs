//! Detection error trade-off: misses against false alarms over all thresholds, the equal error rate and the detection
//! cost.
//!
//! A threshold accepts scores *above* it. No threshold can separate trials with the same score, so the
//! curve has one point per distinct score and is linear between points: the result does not depend on the order of the
//! trials. For scores without ties this is what WeSpeaker computes; with ties its results depend on an unstable sort,
//! and ours lies between its best and its worst case.
//!
//! Only the targets are sorted. The miss rate changes only at target scores, so all that matters about a
//! non-target is between which target scores it lies: 3.5 M non-targets become counts in the gaps of 18 k targets.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

const BLOCK: usize = 1 << 16;

/// The curve of scored trials.
#[derive(Debug, Clone)]
pub struct Det {
    /// Distinct target scores, ascending.
    levels: Vec<f64>,
    counts: Counts,
    crossing: Crossing,
    threshold: f64,
}

/// One operating point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DetPoint {
    /// Fraction of targets rejected.
    pub miss: f64,
    /// Fraction of non-targets accepted.
    pub false_alarm: f64,
}

/// Trials, counted or weighted, by where their scores lie among the distinct target scores.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Counts {
    /// Targets at each level.
    pub(super) targets: Vec<u32>,
    /// Non-targets below the first level, at it, between it and the second, at the second, …, above the last.
    pub(super) others: Vec<u32>,
}

/// Where the curve crosses miss = false alarm.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crossing {
    /// The equal error rate.
    pub(super) rate: f64,
    /// The slot of [`Counts::others`] where they cross.
    slot: usize,
}

impl Counts {
    /// Targets and non-targets.
    pub(super) fn totals(&self) -> [u64; 2] {
        [&self.targets, &self.others].map(|counts| counts.iter().map(|&count| u64::from(count)).sum())
    }

    /// The points of the curve just below each level and at it.
    fn points(&self) -> impl Iterator<Item = [DetPoint; 2]> {
        let [targets, others] = self.totals();
        let point = move |missed: u64, rejected: u64| DetPoint {
            miss: missed as f64 / targets as f64,
            false_alarm: (others - rejected) as f64 / others as f64,
        };
        let (pairs, _) = self.others.as_chunks::<2>();
        self.targets.iter().zip(pairs).scan((0, 0), move |(missed, rejected), (&count, &[between, tied])| {
            *rejected += u64::from(between);
            let below = point(*missed, *rejected);
            *missed += u64::from(count);
            *rejected += u64::from(tied);
            Some([below, point(*missed, *rejected)])
        })
    }

    /// Needs at least one target and one non-target.
    pub(super) fn crossing(&self) -> Crossing {
        let cross = |(level, [below, at]): (usize, [DetPoint; 2])| {
            let (gap_below, gap_at) = (below.false_alarm - below.miss, at.miss - at.false_alarm);
            if gap_below <= 0.0 {
                // Between two levels the miss rate is constant, and the false alarm rate has fallen to it.
                Some(Crossing { rate: below.miss, slot: 2 * level })
            } else {
                let share = gap_at / (gap_at + gap_below);
                (gap_at >= 0.0)
                    .then(|| Crossing { rate: at.miss + share * (below.miss - at.miss), slot: 2 * level + 1 })
            }
        };
        self.points().enumerate().find_map(cross).expect("at the last level all targets are missed")
    }

    /// The lowest P·miss + (1 − P)·false alarm, divided by the cost of the better of "accept all" and "reject all".
    pub(super) fn min_dcf(&self, p_target: f64) -> f64 {
        let cost = |point: DetPoint| p_target * point.miss + (1.0 - p_target) * point.false_alarm;
        let trivial = p_target.min(1.0 - p_target);
        // Of all thresholds with the same misses, the one just below the next target has the fewest false alarms.
        self.points().map(|[below, _]| cost(below)).fold(trivial, f64::min) / trivial
    }
}

/// The slot of [`Counts::others`] in which `score` lies.
#[inline]
pub(super) fn slot(levels: &[f64], score: f64) -> usize {
    let level = levels.partition_point(|&level| level < score);
    2 * level + usize::from(levels.get(level) == Some(&score))
}

impl Det {
    /// The curve of `scores`; `targets` marks the target trials.
    pub fn new(scores: &[f64], targets: &[bool]) -> Result<Self> {
        assert_eq!(scores.len(), targets.len(), "one label per score");
        if let Some(at) = scores.iter().position(|score| !score.is_finite()) {
            return Err(Error::NotFinite(format!("the score of trial {}", at + 1)));
        }
        let of_class = |class: bool| {
            scores.iter().zip(targets).filter(move |(_, target)| **target == class).map(|(&score, _)| score)
        };
        let mut levels: Vec<f64> = of_class(true).collect();
        if levels.is_empty() || levels.len() == scores.len() {
            return Err(Error::OneClass(if levels.is_empty() { "target" } else { "non-target" }));
        }
        levels.par_sort_unstable_by(f64::total_cmp);
        let tied: Vec<u32> = levels.chunk_by(|a, b| a == b).map(|tied| tied.len() as u32).collect();
        levels.dedup();
        let counts = Counts { targets: tied, others: count_others(&levels, scores, targets) };
        let crossing = counts.crossing();
        let threshold = if crossing.slot % 2 == 1 {
            levels[crossing.slot / 2]
        } else {
            // The non-target score at which just enough of them are rejected.
            let [all_targets, all_others] = counts.totals();
            let accepted: u64 = counts.targets[crossing.slot / 2..].iter().map(|&count| u64::from(count)).sum();
            let below: u64 = counts.others[..crossing.slot].iter().map(|&count| u64::from(count)).sum();
            let needed = (all_others * accepted).div_ceil(all_targets) - below;
            let mut inside: Vec<f64> = of_class(false).filter(|&score| slot(&levels, score) == crossing.slot).collect();
            *inside.select_nth_unstable_by(needed as usize - 1, f64::total_cmp).1
        };
        Ok(Self { levels, counts, crossing, threshold })
    }

    /// The equal error rate, where miss rate and false alarm rate are equal, in [0, 1].
    pub fn eer(&self) -> f64 {
        self.crossing.rate
    }

    /// A threshold at the equal error rate: scores above it are accepted.
    pub fn threshold(&self) -> f64 {
        self.threshold
    }

    /// The minimum detection cost for `p_target` in (0, 1), with a cost of 1 for both errors, divided by the cost of
    /// the better trivial system.
    pub fn min_dcf(&self, p_target: f64) -> f64 {
        self.counts.min_dcf(p_target)
    }

    /// Targets and non-targets.
    pub fn trials(&self) -> [u64; 2] {
        self.counts.totals()
    }

    /// The curve by rising miss rate, thinned to points that differ by 3 % in one of the rates: a few hundred points
    /// for any number of trials.
    pub fn points(&self) -> Vec<DetPoint> {
        let [targets, others] = self.trials();
        let logs = |point: &DetPoint| {
            [point.miss.max(0.5 / targets as f64).ln(), point.false_alarm.max(0.5 / others as f64).ln()]
        };
        let mut kept = vec![DetPoint { miss: 0.0, false_alarm: 1.0 }];
        for point in self.counts.points().flatten() {
            let (last, new) = (logs(&kept[kept.len() - 1]), logs(&point));
            if last.iter().zip(new).any(|(last, new)| (last - new).abs() > 0.03) {
                kept.push(point);
            }
        }
        kept.push(DetPoint { miss: 1.0, false_alarm: 0.0 });
        kept
    }

    pub(super) fn levels(&self) -> &[f64] {
        &self.levels
    }
}

fn count_others(levels: &[f64], scores: &[f64], targets: &[bool]) -> Vec<u32> {
    let empty = || vec![0; 2 * levels.len() + 1];
    let count = |mut counts: Vec<u32>, (&score, &target): (&f64, &bool)| {
        if !target {
            counts[slot(levels, score)] += 1;
        }
        counts
    };
    let add = |mut a: Vec<u32>, b: Vec<u32>| {
        a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
        a
    };
    scores.par_iter().zip(targets).with_min_len(BLOCK).fold(empty, count).reduce(empty, add)
}
