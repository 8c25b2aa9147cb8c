//! Counter-based randomness: SplitMix64 (Steele, Lea & Flood, OOPSLA 2014), keyed by what is drawn.
//!
//! A stream is named by numbers (`Rng::keyed(&[seed, epoch, position])`), so the value drawn for cut 17 of epoch 3 does
//! not depend on which thread asks first. Written here, not taken from a crate, because a corpus or an epoch order must
//! never change with a version.

/// One stream of random numbers.
#[derive(Debug, Clone)]
pub struct Rng(u64);

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Rng {
    /// The stream named by `key`; different keys give unrelated streams.
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
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in [low, high).
    pub fn range(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
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

    #[test]
    fn streams_are_reproducible_and_differ_by_key() {
        let draw = |key: &[u64]| Rng::keyed(key).bits();
        assert_eq!(draw(&[1, 2]), draw(&[1, 2]));
        let keys: [&[u64]; 6] = [&[], &[0], &[0, 0], &[1], &[1, 0], &[0, 1]];
        let mut values: Vec<u64> = keys.iter().map(|key| draw(key)).collect();
        values.sort_unstable();
        values.dedup();
        assert_eq!(values.len(), keys.len());
    }

    #[test]
    fn streams_never_change_between_versions() {
        let mut rng = Rng::keyed(&[1, 2, 3]);
        assert_eq!([rng.bits(), rng.bits()], [0xed24_dcf6_6f47_d12b, 0x61f6_2f7c_133d_d319]);
        let mut items = [0, 1, 2, 3, 4, 5, 6, 7];
        Rng::keyed(&[4]).shuffle(&mut items);
        assert_eq!(items, [3, 5, 1, 2, 4, 0, 7, 6]);
    }

    #[test]
    fn uniform_and_normal_have_their_moments() {
        let mut rng = Rng::keyed(&[7]);
        let n = 100_000;
        let mean = (0..n).map(|_| rng.unit()).sum::<f64>() / f64::from(n);
        assert!((mean - 0.5).abs() < 5e-3, "{mean}");
        let draws: Vec<f64> = (0..n).map(|_| rng.normal()).collect();
        let mean = draws.iter().sum::<f64>() / f64::from(n);
        let variance = draws.iter().map(|x| x * x).sum::<f64>() / f64::from(n);
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
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
