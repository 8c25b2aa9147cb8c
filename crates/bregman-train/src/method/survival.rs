//! How many of the weights that one exchange of masks grows survive the next: few where weights have too few steps to
//! grow before they are compared with others.

use serde::{Deserialize, Serialize};

/// The places of the weights that the last exchange grew, tensor by tensor; saved with the run.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct GrownWeights(pub(crate) Vec<Vec<u32>>);

/// Of weights grown by exchanges of masks, how many were kept by the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Survival {
    /// Weights grown.
    pub grown: u64,
    /// Those of them that were kept.
    pub kept: u64,
}

impl Survival {
    /// The share of them that was kept; `None` where none was grown.
    pub fn share(self) -> Option<f64> {
        (self.grown > 0).then(|| self.kept as f64 / self.grown as f64)
    }

    pub(crate) fn add(&mut self, other: Self) {
        (self.grown, self.kept) = (self.grown + other.grown, self.kept + other.kept);
    }
}

impl GrownWeights {
    /// Those of a tensor.
    pub(crate) fn of(&self, tensor: usize) -> &[u32] {
        self.0.get(tensor).map_or(&[], Vec::as_slice)
    }

    /// An exchange: which weights the masks allowed before and allow after it, where an empty mask allows all. Returns
    /// what became of those that the last one had grown. Where a mask is lifted, nothing counts as grown.
    pub(crate) fn exchange(&mut self, before: &[Vec<bool>], after: &[Vec<bool>]) -> Survival {
        let last = std::mem::take(&mut self.0);
        let kept = |(places, after): (&Vec<u32>, &Vec<bool>)| match after.is_empty() {
            true => places.len(),
            false => places.iter().filter(|&&at| after.get(at as usize) == Some(&true)).count(),
        };
        let survival = Survival {
            grown: last.iter().map(|places| places.len() as u64).sum(),
            kept: last.iter().zip(after).map(kept).sum::<usize>() as u64,
        };
        let grown = |(before, after): (&Vec<bool>, &Vec<bool>)| -> Vec<u32> {
            let pairs = (0..).zip(before.iter().zip(after));
            pairs.filter(|(_, (was, is))| **is && !**was).map(|(at, _)| at).collect()
        };
        self.0 = before.iter().zip(after).map(grown).collect();
        survival
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_that_an_exchange_grew_are_counted_at_the_next() {
        let mask = |kept: &[usize]| vec![(0..6).map(|at| kept.contains(&at)).collect::<Vec<bool>>()];
        let mut weights = GrownWeights::default();
        let counts = |survival: Survival| (survival.grown, survival.kept);
        assert_eq!(counts(weights.exchange(&mask(&[0, 1, 2]), &mask(&[0, 3, 4]))), (0, 0), "nothing was grown before");
        assert_eq!(weights.0, [[3, 4]]);
        assert_eq!(counts(weights.exchange(&mask(&[0, 3, 4]), &mask(&[0, 4, 5]))), (2, 1));
        assert_eq!(counts(weights.exchange(&mask(&[0, 4, 5]), &[vec![]])), (1, 1), "all are allowed");
        assert_eq!(counts(weights.exchange(&[vec![]], &mask(&[1]))), (0, 0), "a mask that is lifted grows nothing");
        assert_eq!(Survival { grown: 4, kept: 1 }.share(), Some(0.25));
        assert_eq!(Survival::default().share(), None);
    }
}
