//! Exact order statistics over many tensors in O(n), without copying or sorting them.
//!
//! Non-negative floats are ordered like the integers of their bits. So the k-th largest of n keys is found digit by
//! digit: count the keys per value of their highest bits, see which value holds the k-th, look only at the keys with
//! that prefix for the next bits. Three passes over memory settle all 31 bits. Only counts are exchanged, so the keys
//! may lie anywhere (in many tensors, on a GPU), and integer counts do not depend on the order in which threads add
//! them.

use std::convert::Infallible;

/// The part of a key that one pass counts by: keys whose bits above `shift + width` equal `prefix` go to the bin of
/// their next `width` bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digit {
    /// The bits already settled.
    pub prefix: u32,
    /// How many bits lie below this digit.
    pub shift: u32,
    /// How many bits this digit has.
    pub width: u32,
}

impl Digit {
    /// The bin of a non-negative key, if it has the prefix.
    #[inline(always)]
    pub fn bin(self, key: f32) -> Option<usize> {
        let bits = key.to_bits();
        (bits >> (self.shift + self.width) == self.prefix).then_some((bits >> self.shift & (self.bins() - 1)) as usize)
    }

    fn bins(self) -> u32 {
        1 << self.width
    }
}

/// The smallest λ such that keys of a total weight of at most `keep` are larger than λ.
///
/// `count` adds, for every key with the prefix of the digit, the key's weight to its bin. The result is 0 when all keys
/// together weigh no more than `keep`.
///
/// ```
/// use bregman::select::smallest_threshold;
/// let keys = [0.5f32, 2.0, 1.0, 3.0];
/// let lambda = smallest_threshold(2, |digit, bins| {
///     keys.iter().filter_map(|&key| digit.bin(key)).for_each(|bin| bins[bin] += 1);
/// });
/// assert_eq!(lambda, 1.0); // 2 and 3 are larger
/// ```
pub fn smallest_threshold(keep: u64, mut count: impl FnMut(Digit, &mut [u64])) -> f32 {
    let Ok(threshold) = try_smallest_threshold(keep, |digit, bins| {
        count(digit, bins);
        Ok::<_, Infallible>(())
    });
    threshold
}

/// [`smallest_threshold`] of keys whose counting can fail.
///
/// # Errors
/// The first of `count`.
pub fn try_smallest_threshold<E>(
    keep: u64,
    mut count: impl FnMut(Digit, &mut [u64]) -> Result<(), E>,
) -> Result<f32, E> {
    let mut above = 0; // weight of the keys larger than everything with the prefix
    let mut prefix = 0;
    for (shift, width) in [(20, 11), (10, 10), (0, 10)] {
        let digit = Digit { prefix, shift, width };
        let mut bins = vec![0; digit.bins() as usize];
        count(digit, &mut bins)?;
        let holds_it = (0..bins.len()).rev().find(|&bin| {
            let passes = above + bins[bin] > keep;
            above += if passes { 0 } else { bins[bin] };
            passes
        });
        match holds_it {
            Some(bin) => prefix = prefix << width | bin as u32,
            None => return Ok(0.0),
        }
    }
    Ok(f32::from_bits(prefix))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn select(keys: &[f32], keep: u64) -> f32 {
        smallest_threshold(keep, |digit, bins| keys.iter().filter_map(|&k| digit.bin(k)).for_each(|bin| bins[bin] += 1))
    }

    proptest! {
        #[test]
        fn the_selected_threshold_is_the_order_statistic(
            mut keys in prop::collection::vec(
                prop_oneof![0.0f32..1e-30, 0.0f32..2.0, Just(0.5f32), 0.0f32..f32::MAX],
                1..200,
            ),
            keep in 0usize..220,
        ) {
            let found = select(&keys, keep as u64);
            keys.sort_by(|a, b| b.total_cmp(a));
            prop_assert_eq!(found, keys.get(keep).copied().unwrap_or(0.0));
        }
    }

    #[test]
    fn ties_at_the_threshold_keep_fewer_never_more() {
        assert_eq!(select(&[1.0, 1.0, 1.0, 2.0], 2), 1.0);
    }
}
