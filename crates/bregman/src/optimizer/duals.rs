//! What a controller may ask of the duals: counts, never the numbers themselves.
//!
//! Counts are all that selection needs, and they are cheap to bring from wherever the duals are.

use rayon::prelude::*;

use crate::error::Result;
use crate::penalty::Shrinkage;
use crate::select::Digit;

/// Counting access to the duals of the controlled tensors.
///
/// The *key* of a group of weights is the smallest λ that makes it zero: |p|/a for ℓ1, ‖p_g‖/(a√n) for a group of n, a
/// being the λ-scale. Weights are non-zero if and only if their key is larger than λ, to the last bit.
pub trait Duals {
    /// Adds the size of every group of these tensors whose key has the digit's prefix to the bin of its digit.
    ///
    /// # Errors
    /// Duals that cannot be reached: a lost device.
    fn histogram(&self, tensors: &[usize], digit: Digit, bins: &mut [u64]) -> Result<()>;

    /// How many weights of these tensors would be non-zero at `lambda`.
    ///
    /// # Errors
    /// As [`Duals::histogram`].
    fn live_at(&self, tensors: &[usize], lambda: f64) -> Result<u64>;
}

/// Elements one task looks at.
const CHUNK: usize = 1 << 16;

/// What decides whether a group of a tensor's weights is zero: the shape of the group, and the factor λ is multiplied
/// with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DualKey {
    /// What becomes zero together.
    pub shrinkage: Shrinkage,
    /// a·√n.
    pub weight: f64,
}

impl DualKey {
    /// λ times the weight, rounded once. Prox and selection both go through here.
    pub fn threshold(&self, lambda: f64) -> f32 {
        (lambda * self.weight) as f32
    }

    /// The smallest λ (in single precision) whose [`threshold`](Self::threshold) reaches `magnitude`.
    #[inline(always)]
    fn of(&self, magnitude: f32) -> f32 {
        if self.weight == 1.0 || !magnitude.is_finite() {
            return magnitude;
        }
        let reaches = |lambda: f32| self.threshold(f64::from(lambda)) >= magnitude;
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

/// Duals in memory.
pub struct HostDuals<'a> {
    duals: Vec<&'a [f32]>,
    keys: Vec<DualKey>,
}

impl<'a> HostDuals<'a> {
    /// The dual of every tensor, with its key.
    pub fn new(duals: Vec<&'a [f32]>, keys: Vec<DualKey>) -> Self {
        Self { duals, keys }
    }

    /// Whole groups of these tensors' duals, each with its key.
    fn chunks(&self, tensors: &[usize]) -> impl ParallelIterator<Item = (DualKey, &[f32])> {
        tensors.par_iter().flat_map(|&tensor| {
            let key = self.keys[tensor];
            let whole_groups = (CHUNK / key.shrinkage.group_len()).max(1) * key.shrinkage.group_len();
            self.duals[tensor].par_chunks(whole_groups).map(move |p| (key, p))
        })
    }
}

impl Duals for HostDuals<'_> {
    fn histogram(&self, tensors: &[usize], digit: Digit, bins: &mut [u64]) -> Result<()> {
        let add = |mut a: Vec<u64>, b: Vec<u64>| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
            a
        };
        let empty = || vec![0u64; bins.len()];
        let counted = self
            .chunks(tensors)
            .fold(empty, |mut bins, (key, p)| {
                let size = key.shrinkage.group_len() as u64;
                key.shrinkage.magnitudes(p, |magnitude| {
                    if let Some(bin) = digit.bin(key.of(magnitude)) {
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
        let non_zero = |(key, p): (DualKey, &[f32])| {
            let threshold = key.threshold(lambda);
            let mut groups = 0;
            key.shrinkage.magnitudes(p, |magnitude| groups += u64::from(magnitude > threshold));
            groups * key.shrinkage.group_len() as u64
        };
        Ok(self.chunks(tensors).map(non_zero).sum())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_key_is_the_smallest_lambda_that_makes_zero(magnitude in 0.0f32..10.0, weight in 0.05f64..50.0) {
            let of = DualKey { shrinkage: Shrinkage::Soft, weight };
            let key = of.of(magnitude);
            prop_assert!(magnitude <= of.threshold(key.into()), "zero at its key");
            prop_assert!(magnitude == 0.0 || magnitude > of.threshold(key.next_down().into()), "non-zero just below");
        }
    }
}
