//! Methods against each other: the mean error rate of some runs, and the difference of two means.
//!
//! Two things are left to chance: which speakers the test has, and which seed a run began with. Each replicate draws
//! both with replacement: the speakers once for all runs, as [`Bootstrap`](super::Bootstrap) did, so that a difference
//! between two methods is one on the same trials; the seeds of each method on their own. Three seeds are few: an
//! interval says what these speakers and these runs allow to say, no more.

use serde::{Deserialize, Serialize};

use super::bootstrap::quantiles;
use super::evaluate::EvaluationReport;
use crate::Rng;

/// A value and its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Of the trials as they are.
    pub value: f64,
    /// 95 % of the replicates are in it.
    pub interval: [f64; 2],
}

impl Estimate {
    /// Whether 0 is outside the interval: of a difference, that it has a sign.
    pub fn is_decided(&self) -> bool {
        self.interval[0] > 0.0 || self.interval[1] < 0.0
    }
}

/// Runs of one method on one trial list, which differ in their seed.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample<'a> {
    runs: Vec<&'a EvaluationReport>,
}

impl<'a> Sample<'a> {
    /// `None` without runs, without replicates, or if they were not evaluated on the same trials.
    pub fn new(runs: impl IntoIterator<Item = &'a EvaluationReport>) -> Option<Self> {
        let runs: Vec<&EvaluationReport> = runs.into_iter().collect();
        let first = runs.first()?;
        (!replicates(first).is_empty() && runs.iter().all(|run| same_trials(first, run))).then_some(Self { runs })
    }

    /// The mean equal error rate.
    pub fn mean(&self) -> Option<Estimate> {
        let rng = |replicate: usize| Rng::keyed(&[replicate as u64]);
        let replicates = (0..self.replicates()).map(|at| self.drawn(at, &mut rng(at)));
        Some(Estimate { value: self.value(), interval: quantiles(replicates.collect())? })
    }

    /// The mean equal error rate minus that of `other`; `None` if its trials are others.
    pub fn minus(&self, other: &Self) -> Option<Estimate> {
        if !same_trials(self.runs[0], other.runs[0]) {
            return None;
        }
        let replicate = |at: usize| {
            let mut rng = Rng::keyed(&[at as u64]);
            self.drawn(at, &mut rng) - other.drawn(at, &mut rng)
        };
        let interval = quantiles((0..self.replicates()).map(replicate).collect())?;
        Some(Estimate { value: self.value() - other.value(), interval })
    }

    fn value(&self) -> f64 {
        self.runs.iter().map(|run| run.rates.eer).sum::<f64>() / self.runs.len() as f64
    }

    fn replicates(&self) -> usize {
        replicates(self.runs[0]).len()
    }

    /// The mean over as many runs as there are, drawn with replacement, with the speakers of replicate `at`.
    fn drawn(&self, at: usize, rng: &mut Rng) -> f64 {
        let runs = self.runs.len();
        (0..runs).map(|_| replicates(self.runs[rng.below(runs)])[at]).sum::<f64>() / runs as f64
    }
}

fn replicates(report: &EvaluationReport) -> &[f64] {
    report.rates.intervals.as_ref().map_or(&[], |intervals| &intervals.eer_replicates)
}

/// As far as a report can tell: as many trials of each kind, speakers and replicates, nothing left out.
fn same_trials(a: &EvaluationReport, b: &EvaluationReport) -> bool {
    let counts = |report: &EvaluationReport| {
        (report.trials, report.targets, report.speakers, report.left_out, replicates(report).len())
    };
    counts(a) == counts(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::{Bootstrap, Det, Histogram, Intervals, Rates, Scoring, speakers_of_trials};
    use crate::{Rng, Trial};

    /// 30 speakers of 4 utterances, all pairs. What makes a speaker or a trial hard is the same for all networks, which
    /// differ in a little noise and in how far they hold speakers apart.
    fn evaluated(seed: u64, distance: f64) -> EvaluationReport {
        let (mut world, mut own) = (Rng::keyed(&[1]), Rng::keyed(&[2, seed]));
        let offsets: Vec<f64> = (0..30).map(|_| world.normal()).collect();
        let trials: Vec<Trial> = (0..120u32)
            .flat_map(|a| (0..a).map(move |b| Trial { enroll: a, test: b, target: a / 4 == b / 4 }))
            .collect();
        let mut score = |trial: &Trial| {
            let shared = offsets[trial.enroll as usize / 4] + offsets[trial.test as usize / 4];
            shared + world.normal() + 0.1 * own.normal() + if trial.target { distance } else { 0.0 }
        };
        let scores: Vec<f64> = trials.iter().map(&mut score).collect();
        let labels: Vec<bool> = trials.iter().map(|trial| trial.target).collect();
        let models: Vec<Vec<usize>> = (0..120).map(|utterance| vec![utterance]).collect();
        let (det, speakers) = (Det::new(&scores, &labels).unwrap(), speakers_of_trials(&models, &trials));
        let intervals = Bootstrap { replicates: 400, seed: 1 }.intervals(&det, &scores, &trials, &speakers, &[0.01]);
        EvaluationReport {
            rates: Rates {
                eer: det.eer(),
                min_dcf: 0.0,
                min_dcf_p05: 0.0,
                threshold: 0.0,
                intervals,
                det: vec![],
                histogram: Histogram::new(&scores, &labels, 10),
            },
            scoring: Scoring::Cosine,
            cosine: None,
            trials: trials.len(),
            targets: labels.iter().filter(|&&target| target).count(),
            left_out: 0,
            speakers: 30,
            utterances: 120,
            computed: 120,
            cohort_speakers: None,
            top_n: None,
            unreadable: vec![],
        }
    }

    fn width([low, high]: [f64; 2]) -> f64 {
        high - low
    }

    #[test]
    fn a_difference_on_the_same_trials_is_known_better_than_either_rate() {
        let good: Vec<EvaluationReport> = (1..4).map(|seed| evaluated(seed, 4.0)).collect();
        let bad: Vec<EvaluationReport> = (4..7).map(|seed| evaluated(seed, 3.0)).collect();
        let (good, bad) = (Sample::new(&good).unwrap(), Sample::new(&bad).unwrap());
        let (mean, difference) = (bad.mean().unwrap(), bad.minus(&good).unwrap());
        assert!(mean.interval[0] < mean.value && mean.value < mean.interval[1], "{mean:?}");
        assert!((difference.value - (mean.value - good.mean().unwrap().value)).abs() < 1e-12);
        assert!(difference.is_decided() && difference.interval[0] > 0.0, "{difference:?}");
        assert!(width(difference.interval) < 0.7 * width(mean.interval), "{difference:?} {mean:?}");
        let nothing = good.minus(&good).unwrap();
        assert!(nothing.value == 0.0 && !nothing.is_decided(), "{nothing:?}");
    }

    #[test]
    fn seeds_that_differ_widen_the_interval() {
        let alike: Vec<EvaluationReport> = (1..4).map(|seed| evaluated(seed, 3.0)).collect();
        let apart: Vec<EvaluationReport> = [1.0, 3.0, 5.0].map(|distance| evaluated(1, distance)).into();
        let mean = |runs: &[EvaluationReport]| Sample::new(runs).unwrap().mean().unwrap();
        assert!(width(mean(&apart).interval) > 1.3 * width(mean(&alike).interval));
    }

    #[test]
    fn other_trials_are_not_compared() {
        let mut other = evaluated(2, 3.0);
        let one = evaluated(1, 3.0);
        other.trials -= 1;
        assert_eq!(Sample::new([&one, &other]), None);
        assert_eq!(Sample::new([&one]).unwrap().minus(&Sample::new([&other]).unwrap()), None);
        let unresampled = EvaluationReport { rates: Rates { intervals: None, ..one.rates.clone() }, ..one.clone() };
        assert_eq!((Sample::new([&unresampled]), Sample::new([])), (None, None));
        let none = Intervals { eer: [0.0; 2], min_dcf: vec![], eer_replicates: vec![] };
        assert!(!serde_json::to_string(&none).unwrap().contains("replicates"));
    }
}
