//! Random numbers that never change with a version: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
//!
//! Written here, not taken from a crate, because initial weights, masks, corpora and the order of an epoch must be the
//! same for a seed on every machine and for ever.
//!
//! * [`RandomStream`] counts: its i-th number is a hash of (seed, name, i). Nothing has to be stored or replayed,
//!   tensors can be filled in any order and on any number of threads, and adding a parameter to a network does not
//!   change the numbers of the others.
//! * [`Rng`] goes on from number to number. [`Rng::keyed`] names it by what is drawn, so that the numbers of cut 17 of
//!   epoch 3 do not depend on which thread asks first.

use crate::hash::fnv;

/// 2⁶⁴ / golden ratio: the step from state to state.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of SplitMix64.
fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The upper 53 bits as a number in [0, 1).
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// Random numbers by counting, named by a seed and a text.
///
/// ```
/// let weights = bregman_base::RandomStream::new(7, "layer1.weight");
/// assert_eq!(weights.uniform(3), weights.uniform(3));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct RandomStream(u64);

impl RandomStream {
    /// The stream of this seed and name.
    pub fn new(seed: u64, name: &str) -> Self {
        // the hash spreads the name, the mixer separates the seeds
        Self(mix(seed).wrapping_add(fnv(name)))
    }

    /// The `i`-th number, uniform in [0, 1).
    pub fn uniform(self, i: u64) -> f64 {
        unit(mix(self.0.wrapping_add(i.wrapping_mul(STEP))))
    }
}

/// Random numbers one after another.
///
/// ```
/// let mut rng = bregman_base::Rng::keyed(&[3, 17]); // epoch 3, cut 17
/// assert!((0.0..1.0).contains(&rng.unit()));
/// ```
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The numbers named by `key`; different keys give unrelated ones.
    pub fn keyed(key: &[u64]) -> Self {
        Self(key.iter().fold(STEP, |state, &part| mix(state.wrapping_add(STEP) ^ mix(part.wrapping_add(STEP)))))
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        unit(self.bits())
    }

    /// Uniform in [low, high).
    pub fn range(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Uniform in [−bound, bound), in single precision.
    pub fn symmetric(&mut self, bound: f32) -> f32 {
        let unit = (self.bits() >> 40) as f32 / (1u64 << 24) as f32;
        (2.0 * unit - 1.0) * bound
    }

    /// Standard normal (Box–Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Uniform in 0..bound (`bound` > 0), by multiplication of the high word: bias below 2⁻³² for bounds below 2³².
    pub fn below(&mut self, bound: usize) -> usize {
        debug_assert!(bound > 0);
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// Fisher–Yates shuffle in place.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws per test: fewer where each takes a thousand times longer.
    const DRAWS: u32 = if cfg!(miri) { 100 } else { 100_000 };

    /// Mean and mean square.
    fn moments(draw: impl FnMut(u32) -> f64) -> [f64; 2] {
        let draws: Vec<f64> = (0..DRAWS).map(draw).collect();
        [draws.iter().sum::<f64>(), draws.iter().map(|x| x * x).sum()].map(|sum| sum / f64::from(DRAWS))
    }

    #[track_caller]
    fn assert_near(found: [f64; 2], expected: [f64; 2]) {
        let tolerance = 6.0 / f64::from(DRAWS).sqrt();
        for (found, expected) in found.into_iter().zip(expected) {
            assert!((found - expected).abs() < tolerance, "{found} not {expected}");
        }
    }

    #[test]
    fn numbers_never_change_between_versions() {
        let mut rng = Rng::keyed(&[1, 2, 3]);
        assert_eq!([rng.bits(), rng.bits()], [0xed24_dcf6_6f47_d12b, 0x61f6_2f7c_133d_d319]);
        let mut items = [0, 1, 2, 3, 4, 5, 6, 7];
        Rng::keyed(&[4]).shuffle(&mut items);
        assert_eq!(items, [3, 5, 1, 2, 4, 0, 7, 6]);
        // the published test vector of SplitMix64
        let mut rng = Rng::new(1_234_567);
        assert_eq!([rng.bits(), rng.bits()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
        assert_eq!(RandomStream::new(7, "w").uniform(3), 0.23061010707891383);
        assert_eq!(Rng::new(7).symmetric(2.0), -0.440_681_22);
    }

    #[test]
    fn streams_are_uniform_and_differ_by_seed_and_name() {
        let stream = RandomStream::new(7, "w");
        assert_near(moments(|i| stream.uniform(u64::from(i))), [0.5, 1.0 / 3.0]);
        assert_ne!(stream.uniform(0), RandomStream::new(8, "w").uniform(0));
        assert_ne!(stream.uniform(0), RandomStream::new(7, "v").uniform(0));
    }

    #[test]
    fn keys_give_unrelated_numbers() {
        let keys: [&[u64]; 6] = [&[], &[0], &[0, 0], &[1], &[1, 0], &[0, 1]];
        let mut values: Vec<u64> = keys.iter().map(|key| Rng::keyed(key).bits()).collect();
        values.sort_unstable();
        values.dedup();
        assert_eq!(values.len(), keys.len());
    }

    #[test]
    fn every_distribution_has_its_moments_and_range() {
        let mut rng = Rng::keyed(&[7]);
        assert_near(moments(|_| rng.unit()), [0.5, 1.0 / 3.0]);
        assert_near(moments(|_| rng.normal()), [0.0, 1.0]);
        assert_near(moments(|_| rng.range(-1.0, 1.0)), [0.0, 1.0 / 3.0]);
        assert_near(moments(|_| rng.below(2) as f64), [0.5, 0.5]);
        assert_near(moments(|_| f64::from(rng.symmetric(1.0))), [0.0, 1.0 / 3.0]);
        assert!((0..DRAWS).all(|_| (-2.0..2.0).contains(&rng.symmetric(2.0))));
    }

    #[test]
    fn shuffle_is_a_permutation_that_moves_things() {
        let mut items: Vec<usize> = (0..1000).collect();
        Rng::keyed(&[3]).shuffle(&mut items);
        let fixed = items.iter().enumerate().filter(|(i, v)| i == *v).count();
        assert!(fixed < 10, "{fixed} of 1000 stayed");
        items.sort_unstable();
        assert!(items.iter().enumerate().all(|(i, v)| i == *v));
    }
}
