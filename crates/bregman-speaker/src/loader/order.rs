//! In which order an epoch visits the cuts: a function of seed and epoch, nothing else.

use serde::{Deserialize, Serialize};

use crate::Rng;

/// Order of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Every cut once, shuffled over the whole corpus.
    #[default]
    Shuffled,
    /// As many cuts, but every class equally often: rounds over the shuffled classes, each class cycling through its
    /// own shuffled cuts.
    Balanced,
    /// Every cut once, first to last: for validation.
    Sequential,
}

impl Order {
    /// The cuts of an epoch.
    pub(super) fn epoch(self, labels: &[u32], seed: u64, epoch: u64) -> Vec<u32> {
        let mut cuts: Vec<u32> = (0..labels.len() as u32).collect();
        let mut rng = Rng::keyed(&[seed, 7, epoch]);
        match self {
            Self::Sequential => cuts,
            Self::Shuffled => {
                rng.shuffle(&mut cuts);
                cuts
            }
            Self::Balanced => {
                rng.shuffle(&mut cuts);
                let classes = labels.iter().max().map_or(0, |&most| most as usize + 1);
                let mut decks: Vec<(Vec<u32>, usize)> = vec![(Vec::new(), 0); classes];
                cuts.iter().for_each(|&cut| decks[labels[cut as usize] as usize].0.push(cut));
                decks.retain(|(deck, _)| !deck.is_empty());
                let mut order = Vec::with_capacity(cuts.len());
                while order.len() < cuts.len() {
                    rng.shuffle(&mut decks);
                    for (deck, next) in decks.iter_mut().take(cuts.len() - order.len()) {
                        if *next == deck.len() {
                            rng.shuffle(deck);
                            *next = 0;
                        }
                        order.push(deck[*next]);
                        *next += 1;
                    }
                }
                order
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: [u32; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 3, 0];

    #[test]
    fn a_shuffled_epoch_visits_every_cut_once_in_an_order_of_its_own() {
        let epochs: Vec<Vec<u32>> = (0..3).map(|epoch| Order::Shuffled.epoch(&LABELS, 1, epoch)).collect();
        for epoch in &epochs {
            let mut sorted = epoch.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..12).collect::<Vec<u32>>());
        }
        assert!(epochs[0] != epochs[1] && epochs[1] != epochs[2]);
        assert_eq!(epochs[1], Order::Shuffled.epoch(&LABELS, 1, 1));
        assert_ne!(epochs[1], Order::Shuffled.epoch(&LABELS, 2, 1));
    }

    #[test]
    fn a_balanced_epoch_visits_every_class_equally() {
        let order = Order::Balanced.epoch(&LABELS, 1, 0);
        assert_eq!(order.len(), 12);
        for class in [0, 2, 3] {
            assert_eq!(order.iter().filter(|&&cut| LABELS[cut as usize] == class).count(), 4);
        }
        // A class goes through all its cuts before it repeats one.
        let twos: Vec<u32> = order.iter().copied().filter(|cut| [8, 9].contains(cut)).collect();
        assert_ne!(twos[0], twos[1]);
        assert_ne!(twos[2], twos[3]);
    }

    #[test]
    fn an_empty_corpus_has_an_empty_epoch() {
        for order in [Order::Shuffled, Order::Balanced, Order::Sequential] {
            assert!(order.epoch(&[], 0, 0).is_empty());
        }
    }
}
