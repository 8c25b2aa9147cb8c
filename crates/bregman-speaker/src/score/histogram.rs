//! The distribution of the scores of targets and non-targets.

use serde::{Deserialize, Serialize};

/// Trials counted in bins of equal width, from the lowest score to the highest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Where the first bin begins.
    pub low: f64,
    /// Where the last bin ends; scores of this value are in it.
    pub high: f64,
    /// Target trials in each bin.
    pub targets: Vec<u64>,
    /// Non-target trials in each bin.
    pub others: Vec<u64>,
}

impl Histogram {
    /// Counts finite `scores` in `bins` bins; `targets` marks the target trials.
    pub fn new(scores: &[f64], targets: &[bool], bins: usize) -> Self {
        assert_eq!(scores.len(), targets.len(), "one label per score");
        let low = scores.iter().copied().fold(f64::INFINITY, f64::min);
        let high = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut histogram = Self { low, high, targets: vec![0; bins], others: vec![0; bins] };
        let width = (high - low) / bins as f64;
        for (&score, &target) in scores.iter().zip(targets) {
            let bin = if width > 0.0 { (((score - low) / width) as usize).min(bins - 1) } else { 0 };
            if target { histogram.targets[bin] += 1 } else { histogram.others[bin] += 1 }
        }
        histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trial_is_counted_once_in_its_class() {
        let scores = [-1.0, -0.5, 0.0, 0.49, 1.0, 1.0];
        let histogram = Histogram::new(&scores, &[false, false, true, false, true, true], 4);
        assert_eq!((histogram.low, histogram.high), (-1.0, 1.0));
        assert_eq!((histogram.others, histogram.targets), (vec![1, 1, 1, 0], vec![0, 0, 1, 2]));
    }

    #[test]
    fn equal_scores_share_the_first_bin() {
        assert_eq!(Histogram::new(&[0.5, 0.5], &[true, false], 3).targets, [1, 0, 0]);
    }
}
