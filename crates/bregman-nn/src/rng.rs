//! SplitMix64: the seeded generator behind the initial weights. The same seed gives the same network on every machine.

/// A stream of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [−bound, bound).
    pub fn uniform(&mut self, bound: f32) -> f32 {
        let unit = (self.next_u64() >> 40) as f32 / (1u64 << 24) as f32;
        (2.0 * unit - 1.0) * bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_the_stream_and_the_stream_fills_its_range() {
        let draw =
            |seed| (0..10_000).map(|_| 0).scan(Rng::new(seed), |rng, _| Some(rng.uniform(2.0))).collect::<Vec<f32>>();
        let values = draw(7);
        assert_eq!(values, draw(7));
        assert_ne!(values, draw(8));
        assert!(values.iter().all(|v| (-2.0..2.0).contains(v)));
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        let variance = values.iter().map(|v| v * v).sum::<f32>() / values.len() as f32;
        assert!(mean.abs() < 0.05 && (variance - 4.0 / 3.0).abs() < 0.05, "mean {mean}, variance {variance}");
    }
}
