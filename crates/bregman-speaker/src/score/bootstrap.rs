//! Confidence intervals by resampling speakers.
//!
//! Trials that share a speaker are not independent, so resampling trials gives intervals far too narrow. Here speakers
//! are drawn with replacement (Bolle, Ratha & Pankanti, CVIU 2004, subsets bootstrap; Poh & Bengio 2007). A speaker
//! drawn w times brings w copies: each target trial counts w times, a non-target trial between speakers drawn w and v
//! times counts w·v times. The interval is the 2.5 % and 97.5 % quantile over the replicates.
//!
//! Speakers are inferred from the trials: the two sides of a target trial are the same speaker. So no speaker names
//! are needed.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::det::{Counts, Det, slot};
use crate::{Error, Result, Rng, Trial};

/// Replicates computed together in one pass over the trials.
const LANES: usize = 16;
/// The fraction of replicates outside of the interval, on either side.
const TAIL: f64 = 0.025;

/// How to resample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bootstrap {
    /// Number of replicates; rounded up to a multiple of 16.
    pub replicates: usize,
    /// The same seed gives the same intervals, for any number of threads.
    pub seed: u64,
}

/// 95 % confidence intervals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Intervals {
    /// Of the equal error rate.
    pub eer: [f64; 2],
    /// Of the minimum detection cost, for each requested P_target.
    pub min_dcf: Vec<[f64; 2]>,
    /// The equal error rate of each replicate that has trials of both kinds. Evaluations on the same trials with the
    /// same seed draw the same speakers: replicate by replicate they can be compared, see [`Sample`](super::Sample).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub eer_replicates: Vec<f64>,
}

impl Bootstrap {
    /// A million replicates, a thousand times the usual number, give the ends of an interval to three digits.
    const MOST: usize = 1_000_000;

    /// Refuses more replicates than memory and patience have room for.
    pub(super) fn check(&self) -> Result<()> {
        if self.replicates > Self::MOST {
            let value = self.replicates.to_string();
            return Err(Error::Setting { field: "bootstrap", value, expected: "at most 1000000 replicates" });
        }
        Ok(())
    }

    /// Intervals of the EER and of minDCF at each of `p_targets`; none with fewer than two speakers or no replicates.
    ///
    /// `det` is the curve of `scores`; `speakers` are those of [`speakers_of_trials`].
    pub fn intervals(
        &self,
        det: &Det,
        scores: &[f64],
        trials: &[Trial],
        speakers: &[[u32; 2]],
        p_targets: &[f64],
    ) -> Option<Intervals> {
        let count = speakers.iter().flatten().max().map_or(0, |&last| last as usize + 1);
        if count < 2 || self.replicates == 0 {
            return None;
        }
        let slots: Vec<usize> = scores.par_iter().map(|&score| slot(det.levels(), score)).collect();
        let of_class = |class| (0..trials.len()).filter(move |&at| trials[at].target == class);
        let targets = Sorted::new(det.levels().len(), of_class(true).map(|at| (slots[at] / 2, speakers[at])));
        let others = Sorted::new(2 * det.levels().len() + 1, of_class(false).map(|at| (slots[at], speakers[at])));
        let passes: Vec<usize> = (0..self.replicates.div_ceil(LANES)).collect();
        let measure = |counts: &Counts| -> Option<Vec<f64>> {
            let possible = counts.totals().iter().all(|&total| total > 0);
            possible.then(|| {
                std::iter::once(counts.crossing().rate).chain(p_targets.iter().map(|&p| counts.min_dcf(p))).collect()
            })
        };
        let replicate = |&pass: &usize| {
            let weights = self.draw(pass, count);
            let targets = targets.weigh(|[speaker, _]| weights[speaker as usize]);
            let others = others.weigh(|[a, b]| {
                let (a, b) = (&weights[a as usize], &weights[b as usize]);
                std::array::from_fn(|lane| a[lane] * b[lane])
            });
            targets
                .into_iter()
                .zip(others)
                .map(|(targets, others)| Counts { targets, others })
                .filter_map(|counts| measure(&counts))
                .collect::<Vec<_>>()
        };
        let measured: Vec<Vec<f64>> = passes.par_iter().flat_map_iter(replicate).collect();
        let eer_replicates = measured.iter().map(|row| row[0]).collect();
        let mut intervals =
            (0..=p_targets.len()).map(|column| quantiles(measured.iter().map(|row| row[column]).collect()));
        Some(Intervals { eer: intervals.next()??, min_dcf: intervals.collect::<Option<_>>()?, eer_replicates })
    }

    /// How often each speaker is drawn in each replicate of a pass.
    fn draw(&self, pass: usize, speakers: usize) -> Vec<[u32; LANES]> {
        let mut weights = vec![[0; LANES]; speakers];
        (0..LANES).for_each(|lane| {
            let mut rng = Rng::keyed(&[self.seed, (pass * LANES + lane) as u64]);
            (0..speakers).for_each(|_| weights[rng.below(speakers)][lane] += 1);
        });
        weights
    }
}

/// The interval that leaves [`TAIL`] of the values out on either side.
pub(super) fn quantiles(mut values: Vec<f64>) -> Option<[f64; 2]> {
    values.sort_unstable_by(f64::total_cmp);
    let at = |q: f64| values.get((q * values.len().checked_sub(1)? as f64).round() as usize).copied();
    Some([at(TAIL)?, at(1.0 - TAIL)?])
}

/// The speakers of the trials of one class, sorted by the slots of their scores.
struct Sorted {
    /// Where each slot ends.
    ends: Vec<usize>,
    speakers: Vec<[u32; 2]>,
}

impl Sorted {
    /// A counting sort of `(slot, speakers)`.
    fn new(slots: usize, trials: impl Iterator<Item = (usize, [u32; 2])> + Clone) -> Self {
        let mut places = vec![0; slots];
        trials.clone().for_each(|(slot, _)| places[slot] += 1);
        let mut total = 0;
        for place in &mut places {
            (*place, total) = (total, total + *place);
        }
        let mut sorted = vec![[0; 2]; total];
        for (slot, speakers) in trials {
            sorted[places[slot]] = speakers;
            places[slot] += 1; // after the loop each entry is the end of its slot
        }
        Self { ends: places, speakers: sorted }
    }

    /// The sum of the weights in each slot, for each replicate of a pass.
    fn weigh(&self, weight: impl Fn([u32; 2]) -> [u32; LANES]) -> Vec<Vec<u32>> {
        let mut sums = vec![vec![0; self.ends.len()]; LANES];
        let mut start = 0;
        for (slot, &end) in self.ends.iter().enumerate() {
            let mut sum = [0u32; LANES];
            for &pair in &self.speakers[start..end] {
                let weights = weight(pair);
                (0..LANES).for_each(|lane| sum[lane] += weights[lane]);
            }
            sums.iter_mut().zip(sum).for_each(|(lane, sum)| lane[slot] = sum);
            start = end;
        }
        sums
    }
}

/// The speakers of each trial's two sides, numbered from 0: sides linked by target trials are one speaker.
///
/// `models` are the utterances of each enrollment model, numbered as in `Trial::test`.
pub fn speakers_of_trials(models: &[Vec<usize>], trials: &[Trial]) -> Vec<[u32; 2]> {
    let utterances = trials
        .iter()
        .map(|trial| trial.test as usize)
        .chain(models.iter().flatten().copied())
        .max()
        .map_or(0, |last| last + 1);
    // Nodes: utterances, then models.
    let mut parent: Vec<usize> = (0..utterances + models.len()).collect();
    fn root(parent: &mut [usize], mut node: usize) -> usize {
        while parent[node] != node {
            parent[node] = parent[parent[node]];
            node = parent[node];
        }
        node
    }
    let mut join = |a: usize, b: usize| {
        let (a, b) = (root(&mut parent, a), root(&mut parent, b));
        parent[a.max(b)] = a.min(b);
    };
    for (model, members) in models.iter().enumerate() {
        members.iter().for_each(|&utterance| join(utterances + model, utterance));
    }
    trials
        .iter()
        .filter(|trial| trial.target)
        .for_each(|trial| join(utterances + trial.enroll as usize, trial.test as usize));

    let mut numbers = vec![u32::MAX; parent.len()];
    let mut next = 0;
    let mut number = |node: usize| {
        let root = root(&mut parent, node);
        if numbers[root] == u32::MAX {
            numbers[root] = next;
            next += 1;
        }
        numbers[root]
    };
    trials.iter().map(|trial| [number(utterances + trial.enroll as usize), number(trial.test as usize)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(enroll: u32, test: u32, target: bool) -> Trial {
        Trial { enroll, test, target }
    }

    /// `speakers` of 4 utterances each, every utterance a model, all pairs of different utterances; scores of a
    /// Gaussian model with an offset per speaker, which correlates the trials of a speaker.
    fn experiment(speakers: u32, seed: u64) -> (Vec<Vec<usize>>, Vec<Trial>, Vec<f64>) {
        let mut rng = Rng::keyed(&[seed]);
        let offsets: Vec<f64> = (0..speakers).map(|_| rng.normal()).collect();
        let pairs = (0..4 * speakers).flat_map(|a| (0..a).map(move |b| (a, b)));
        let trials: Vec<Trial> = pairs.map(|(a, b)| trial(a, b, a / 4 == b / 4)).collect();
        let mut score = |t: &Trial| {
            let shared = offsets[t.enroll as usize / 4] + offsets[t.test as usize / 4];
            shared + rng.normal() + if t.target { 3.0 } else { 0.0 }
        };
        let scores = trials.iter().map(&mut score).collect();
        ((0..4 * speakers as usize).map(|utterance| vec![utterance]).collect(), trials, scores)
    }

    fn interval(
        (models, trials, scores): &(Vec<Vec<usize>>, Vec<Trial>, Vec<f64>),
        replicates: usize,
    ) -> (f64, Intervals) {
        let labels: Vec<bool> = trials.iter().map(|trial| trial.target).collect();
        let det = Det::new(scores, &labels).unwrap();
        let speakers = speakers_of_trials(models, trials);
        let intervals = Bootstrap { replicates, seed: 1 }.intervals(&det, scores, trials, &speakers, &[0.01, 0.05]);
        (det.eer(), intervals.unwrap())
    }

    #[test]
    fn replicates_without_end_are_refused() {
        let refused = Bootstrap { replicates: 100_000_000_000, seed: 1 }.check().unwrap_err().to_string();
        assert_eq!(refused, "bootstrap = 100000000000: expected at most 1000000 replicates");
    }

    #[test]
    fn target_trials_identify_the_speakers() {
        // Models 0 and 1 enroll utterances {0, 1} and {2}; 3 is linked to model 1, 4 to none.
        let trials = [trial(0, 3, false), trial(1, 3, true), trial(0, 4, false), trial(1, 1, false)];
        let speakers = speakers_of_trials(&[vec![0, 1], vec![2]], &trials);
        assert_eq!(speakers, [[0, 1], [1, 1], [0, 2], [1, 0]]);
    }

    #[test]
    fn intervals_hold_the_rate_and_narrow_with_more_speakers() {
        let ((few_eer, few), (many_eer, many)) = (interval(&experiment(8, 1), 400), interval(&experiment(60, 1), 400));
        for (eer, intervals) in [(few_eer, &few), (many_eer, &many)] {
            assert!(intervals.eer[0] <= eer && eer <= intervals.eer[1], "{eer} {intervals:?}");
            assert_eq!(intervals.min_dcf.len(), 2);
        }
        let width = |interval: [f64; 2]| interval[1] - interval[0];
        assert!(width(many.eer) < 0.7 * width(few.eer), "{few:?} {many:?}");
    }

    #[test]
    fn intervals_cover_the_truth_about_as_often_as_they_say() {
        let truth = interval(&experiment(300, 99), 16).0;
        let covered = (0..60).filter(|&seed| {
            let [low, high] = interval(&experiment(24, seed), 208).1.eer;
            low <= truth && truth <= high
        });
        let covered = covered.count();
        assert!((50..=60).contains(&covered), "{covered} of 60");
    }

    #[test]
    fn the_seed_decides_and_the_threads_do_not() {
        let experiment = experiment(12, 5);
        let on = |threads| {
            rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| interval(&experiment, 100))
        };
        assert_eq!(on(1), on(3));
    }

    #[test]
    fn one_speaker_has_no_interval() {
        let trials = [trial(0, 1, true), trial(0, 2, true), trial(0, 2, false)];
        let det = Det::new(&[1.0, 2.0, 0.5], &[true, true, false]).unwrap();
        let speakers = speakers_of_trials(&[vec![0]], &trials);
        assert_eq!(
            Bootstrap { replicates: 100, seed: 1 }.intervals(&det, &[1.0, 2.0, 0.5], &trials, &speakers, &[]),
            None
        );
    }
}
