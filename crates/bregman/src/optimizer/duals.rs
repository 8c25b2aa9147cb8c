//! What a controller may ask of the duals: counts, never the numbers themselves.
//!
//! Counts are all that selection needs, and they are cheap to bring from wherever the duals live.

use rayon::prelude::*;

use super::Optimizer;
use crate::error::Result;
use crate::penalty::Shrinkage;
use crate::select::Digit;

/// Counting access to the duals of the controlled tensors.
///
/// The *key* of a group of weights is the smallest λ that kills it: |p|/a for ℓ1, ‖p_g‖/(a√n) for a group of n, a being
/// the λ-scale. Weights live if and only if their key is larger than λ, to the last bit.
pub trait Duals {
    /// Adds the size of every group of these tensors whose key has the digit's prefix to the bin of its digit.
    ///
    /// # Errors
    /// Duals that cannot be reached: a lost device. Those of an [`Optimizer`] always can.
    fn histogram(&self, tensors: &[usize], digit: Digit, bins: &mut [u64]) -> Result<()>;

    /// How many weights of these tensors would live at `lambda`.
    ///
    /// # Errors
    /// As [`Duals::histogram`].
    fn live_at(&self, tensors: &[usize], lambda: f64) -> Result<u64>;
}

/// Elements one task looks at.
const CHUNK: usize = 1 << 16;

impl Duals for Optimizer {
    fn histogram(&self, tensors: &[usize], digit: Digit, bins: &mut [u64]) -> Result<()> {
        let add = |mut a: Vec<u64>, b: Vec<u64>| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
            a
        };
        let empty = || vec![0u64; bins.len()];
        let counted = self
            .dual_chunks(tensors)
            .fold(empty, |mut bins, chunk| {
                let size = chunk.shrinkage.group_len() as u64;
                chunk.shrinkage.magnitudes(chunk.p, |magnitude| {
                    if let Some(bin) = digit.bin(chunk.key(magnitude)) {
                        bins[bin] += size;
                    }
                });
                bins
            })
            .reduce(empty, add);
        bins.iter_mut().zip(counted).for_each(|(bin, count)| *bin += count);
        Ok(())
    }

    fn live_at(&self, tensors: &[usize], lambda: f64) -> Result<u64> {
        let live = |chunk: DualChunk<'_>| {
            let threshold = threshold(lambda, chunk.weight);
            let mut groups = 0;
            chunk.shrinkage.magnitudes(chunk.p, |magnitude| groups += u64::from(magnitude > threshold));
            groups * chunk.shrinkage.group_len() as u64
        };
        Ok(self.dual_chunks(tensors).map(live).sum())
    }
}

/// The threshold of a tensor: λ times its weight a·√n, rounded once. Prox and selection both go through here.
pub(super) fn threshold(lambda: f64, weight: f64) -> f32 {
    (lambda * weight) as f32
}

struct DualChunk<'a> {
    p: &'a [f32],
    shrinkage: Shrinkage,
    weight: f64,
}

impl DualChunk<'_> {
    /// The smallest λ (in single precision) whose [`threshold`] reaches `magnitude`.
    #[inline(always)]
    fn key(&self, magnitude: f32) -> f32 {
        if self.weight == 1.0 || !magnitude.is_finite() {
            return magnitude;
        }
        let reaches = |lambda: f32| threshold(f64::from(lambda), self.weight) >= magnitude;
        let mut lambda = (f64::from(magnitude) / self.weight) as f32;
        while !reaches(lambda) {
            lambda = lambda.next_up();
        }
        while lambda > 0.0 && reaches(lambda.next_down()) {
            lambda = lambda.next_down();
        }
        lambda
    }
}

impl Optimizer {
    fn dual_chunks<'a>(&'a self, tensors: &'a [usize]) -> impl ParallelIterator<Item = DualChunk<'a>> {
        tensors.par_iter().flat_map(|&tensor| {
            let shrinkage = self.shrinkage[tensor];
            let whole_groups = (CHUNK / shrinkage.group_len()).max(1) * shrinkage.group_len();
            let weight = self.weight(tensor);
            self.state.tensors[tensor].p.par_chunks(whole_groups).map(move |p| DualChunk { p, shrinkage, weight })
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_key_is_the_smallest_lambda_that_kills(magnitude in 0.0f32..10.0, weight in 0.05f64..50.0) {
            let chunk = DualChunk { p: &[], shrinkage: Shrinkage::Soft, weight };
            let key = chunk.key(magnitude);
            prop_assert!(magnitude <= threshold(key.into(), weight), "dead at its key");
            prop_assert!(magnitude == 0.0 || magnitude > threshold(key.next_down().into(), weight), "alive just below");
        }
    }
}
