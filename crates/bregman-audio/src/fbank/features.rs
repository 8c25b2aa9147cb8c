//! Log-mel features, and operations on all of them.

/// Log-mel features, row-major [frames × bins].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Features {
    /// Number of frames.
    pub frames: usize,
    /// Mel bins per frame.
    pub bins: usize,
    /// The values, frame after frame.
    pub data: Vec<f32>,
}

impl Features {
    /// Subtracts each bin's mean over time.
    pub fn subtract_mean(&mut self) {
        if self.data.is_empty() {
            return;
        }
        let mut mean = vec![0f64; self.bins];
        for row in self.data.chunks_exact(self.bins) {
            row.iter().zip(&mut mean).for_each(|(&x, sum)| *sum += f64::from(x));
        }
        let mean: Vec<f32> = mean.iter().map(|sum| (sum / self.frames as f64) as f32).collect();
        for row in self.data.chunks_exact_mut(self.bins) {
            row.iter_mut().zip(&mean).for_each(|(x, mean)| *x -= mean);
        }
    }

    /// The largest value; −∞ if there is none.
    pub fn max(&self) -> f32 {
        max(&self.data)
    }

    /// Raises everything below `floor` to it.
    pub fn raise_to(&mut self, floor: f32) {
        raise_to(&mut self.data, floor);
    }
}

pub(super) fn max(values: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    // Sixteen running maxima, so that the loop vectorises.
    let (head, tail) = values.as_chunks::<16>();
    let maxima = head
        .iter()
        .fold([f32::NEG_INFINITY; 16], |maxima, values| std::array::from_fn(|i| larger(maxima[i], values[i])));
    maxima.iter().chain(tail).copied().fold(f32::NEG_INFINITY, larger)
}

pub(super) fn raise_to(values: &mut [f32], floor: f32) {
    values.iter_mut().for_each(|x| *x = if *x < floor { floor } else { *x });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn mean_subtraction_leaves_every_bin_with_mean_zero(
            frames in 1usize..50,
            bins in 1usize..20,
            offset in -50f32..50.0,
        ) {
            let data = (0..frames * bins).map(|i| offset + ((i * 7919) % 1009) as f32 / 100.0).collect();
            let mut features = Features { frames, bins, data };
            features.subtract_mean();
            for bin in 0..bins {
                let sum: f64 = features.data.iter().skip(bin).step_by(bins).map(|&x| f64::from(x)).sum();
                prop_assert!((sum / frames as f64).abs() < 1e-5);
            }
        }

        #[test]
        fn maximum_is_the_largest_value(values in prop::collection::vec(-1e6f32..1e6, 0..100)) {
            prop_assert_eq!(max(&values), values.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        }
    }
}
