//! Which epoch is the best: by a validation metric, among those close enough to the target sparsity.

use serde::{Deserialize, Serialize};

use crate::config::{Metric, SelectConfig};

/// The best epoch so far.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BestEpoch {
    /// Epoch, from 1.
    pub epoch: u64,
    /// Validation loss.
    pub loss: f64,
    /// Validation accuracy.
    pub accuracy: f64,
    /// s(θ) at its end.
    pub sparsity: f64,
}

/// Keeps the best epoch. Saved with every checkpoint.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EpochSelection {
    /// The best so far; none before an epoch is within the tolerance.
    pub best: Option<BestEpoch>,
    /// Epochs within the tolerance since then.
    pub waited: u64,
    /// The epochs to average, best first.
    pub top: Vec<BestEpoch>,
}

/// How many more non-zero weights than asked for an epoch may have, as a share. At 99 % a point of sparsity would be
/// twice the weights: a mask that is still being thinned out would be chosen because it is denser. The paper's law ends
/// half a point below 99 % in short runs.
const MOST_EXCESS: f64 = 0.6;

impl SelectConfig {
    /// Whether an epoch with this sparsity may be chosen, and counts for the learning rate.
    pub fn admits(&self, sparsity: f64, target: Option<f64>) -> bool {
        target.is_none_or(|target| (target - sparsity).abs() <= self.tolerance.min(MOST_EXCESS * (1.0 - target)))
    }

    /// What is compared, lower is better. Equal accuracies are told apart by their loss.
    pub fn score(&self, candidate: &BestEpoch) -> (f64, f64) {
        match self.metric {
            Metric::Loss => (candidate.loss, 0.0),
            Metric::Accuracy => (-candidate.accuracy, candidate.loss),
        }
    }
}

impl EpochSelection {
    /// An epoch within the tolerance; tells whether it is the best.
    pub fn offer(&mut self, config: &SelectConfig, candidate: BestEpoch) -> bool {
        let better = self.best.is_none_or(|best| config.score(&candidate) < config.score(&best));
        self.waited = if better { 0 } else { self.waited + 1 };
        if better {
            self.best = Some(candidate);
        }
        let place = self.top.partition_point(|other| config.score(other) <= config.score(&candidate));
        self.top.insert(place, candidate);
        self.top.truncate(config.average);
        better
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(epoch: u64, loss: f64, accuracy: f64) -> BestEpoch {
        BestEpoch { epoch, loss, accuracy, sparsity: 0.95 }
    }

    #[test]
    fn only_epochs_near_the_target_are_admitted() {
        let config = SelectConfig::default();
        assert!(config.admits(0.945, Some(0.95)) && config.admits(0.2, None));
        assert!(!config.admits(0.93, Some(0.95)) && !config.admits(0.97, Some(0.95)));
        assert!(config.admits(0.985, Some(0.99)) && !config.admits(0.982, Some(0.99)), "nearly twice the weights");
    }

    #[test]
    fn the_lowest_loss_wins_and_waiting_is_counted() {
        let (config, mut selection) = (SelectConfig::default(), EpochSelection::default());
        let offers = [(1, 0.9, true), (2, 0.8, true), (3, 0.8, false), (4, 0.85, false)];
        offers
            .iter()
            .for_each(|&(n, loss, best)| assert_eq!(selection.offer(&config, epoch(n, loss, 0.5)), best, "{n}"));
        assert_eq!((selection.best.map(|best| best.epoch), selection.waited), (Some(2), 2));
    }

    #[test]
    fn the_epochs_to_average_are_the_best_ones_in_order() {
        let (config, mut selection) =
            (SelectConfig { average: 2, ..SelectConfig::default() }, EpochSelection::default());
        for (n, loss) in [(1, 0.9), (2, 0.5), (3, 0.7), (4, 0.8)] {
            selection.offer(&config, epoch(n, loss, 0.5));
        }
        assert_eq!(selection.top.iter().map(|best| best.epoch).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn equal_accuracies_are_told_apart_by_their_loss() {
        let config = SelectConfig { metric: Metric::Accuracy, ..SelectConfig::default() };
        let mut selection = EpochSelection::default();
        assert!(selection.offer(&config, epoch(1, 0.5, 1.0)));
        assert!(selection.offer(&config, epoch(2, 0.4, 1.0)));
        assert!(!selection.offer(&config, epoch(3, 0.3, 0.9)));
    }
}
