//! What the kernels must compute, said in the plainest way, and random operands. For tests only.

use bregman_base::Rng;

use super::columns::Columns;

/// Random operands.
pub(crate) struct Random(Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    /// Uniform in [0, 1).
    pub(crate) fn unit(&mut self) -> f32 {
        0.5 * (1.0 + self.0.symmetric(1.0))
    }

    /// `len` values in [-1, 1), none zero but for the given share of exact zeros.
    pub(crate) fn values(&mut self, len: usize, zeros: f32) -> Vec<f32> {
        (0..len)
            .map(|_| {
                if self.unit() < zeros {
                    0.0
                } else {
                    self.unit().max(1e-3) * if self.unit() < 0.5 { 1.0 } else { -1.0 }
                }
            })
            .collect()
    }
}

/// `y[item][row][t] = Σ_k w(row, k) · x[item][k, t]` in f64, together with `Σ |w·x|`, the scale of rounding errors.
pub(crate) fn product(rows: usize, weight: impl Fn(usize, usize) -> f32, x: &impl Columns) -> Vec<(f64, f64)> {
    let mut result = Vec::new();
    let mut line = vec![0.0; x.len()];
    for item in 0..x.items() {
        let mut sums = vec![(0.0, 0.0); rows * x.len()];
        for k in 0..x.rows() {
            x.fill(item, k, 0, &mut line);
            for row in 0..rows {
                let w = f64::from(weight(row, k));
                for (sum, &value) in sums[row * x.len()..].iter_mut().zip(&line) {
                    let term = w * f64::from(value);
                    *sum = (sum.0 + term, sum.1 + term.abs());
                }
            }
        }
        result.append(&mut sums);
    }
    result
}

/// Fails where a value is further from the exact one than `tolerance` of the sum of magnitudes.
#[track_caller]
pub(crate) fn assert_close(ours: &[f32], exact: &[(f64, f64)], tolerance: f64) {
    assert_eq!(ours.len(), exact.len());
    for (at, (&our, &(value, scale))) in ours.iter().zip(exact).enumerate() {
        let error = (f64::from(our) - value).abs();
        assert!(
            error <= tolerance * scale,
            "element {at}: {our} instead of {value}, error {error:e} of a sum of {scale}"
        );
    }
}
