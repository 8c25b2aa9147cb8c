//! Random numbers by counting: the i-th number of a stream is a hash of `(seed, stream, i)`.
//!
//! Nothing has to be stored or replayed, tensors can be filled in any order and on any number of threads, and adding
//! a parameter to a network does not change the numbers of the others.

/// A stream of random numbers named by a seed and a text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream(u64);

impl Stream {
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        // FNV-1a spreads the name, the mixer separates the seeds.
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Self(mix(seed).wrapping_add(hash))
    }

    /// The `i`-th number, uniform in [0, 1).
    pub(crate) fn uniform(self, i: u64) -> f64 {
        (mix(self.0.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15))) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_uniform_and_differs_by_seed_and_name() {
        let mean = |stream: Stream| (0..10_000).map(|i| stream.uniform(i)).sum::<f64>() / 1e4;
        let below_a_tenth = (0..10_000).filter(|&i| Stream::new(7, "w").uniform(i) < 0.1).count();
        assert!((mean(Stream::new(7, "w")) - 0.5).abs() < 0.01);
        assert!((900..1100).contains(&below_a_tenth), "{below_a_tenth}");
        assert_ne!(Stream::new(7, "w").uniform(0), Stream::new(8, "w").uniform(0));
        assert_ne!(Stream::new(7, "w").uniform(0), Stream::new(7, "v").uniform(0));
    }
}
