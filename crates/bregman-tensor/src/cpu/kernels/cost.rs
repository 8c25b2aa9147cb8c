//! Dense or sparse? An estimate of both costs, per layer and step.
//!
//! In units of one dense f32 multiply-add, for W[rows × columns] · X[columns × len], columns = channels × taps:
//! ```text
//! sparse       s · nonzeros · len        + m · (rows + columns) · len     s = 2.2 in f32, 1.3 with X rounded to bf16
//! dense        d · rows · columns · len  + 8 · columns · len              d = 1 in f32; in bf16 0.52 with AVX-512,
//!                                                                         0.16 with AMX
//! 3 × 3 dense  w · rows · columns · len  + t · (rows + channels) · len    w = 0.55 in f32; in bf16 0.27 with AVX-512,
//!                                                                         0.08 with AMX; t = 45, 42
//! ```
//! A non-zero costs more than a dense multiply-add because X comes from the second-level cache instead of registers;
//! every kernel reads X once into its own layout, and the sparse one writes Y without having done much else: m = 8 for
//! each value. The nine shifted copies of a 3 × 3 layer cost 12, and more on small maps, whose rows are short. How wide
//! a map is, a weight does not know; but networks double the channels where they halve the maps, so 12 grows with the
//! channels beyond 64. Dense 3 × 3 layers run on [`winograd`], in f32 only backward: there the cost is the mean of both
//! directions.
//!
//! The constants are shipped, not measured at start-up: they are ratios of two kernels on the same core, which change
//! little between CPUs of a kind and not at all with the number of threads, and a measurement on a busy machine could
//! make two runs with the same seed take different paths. Source: `bench/run kernels` and the layers of ResNet34 on AMD
//! Zen 4, which also show where the choice was wrong; AMX from the ratio of 1441 to 231 GFLOP/s that PyTorch reaches on
//! it (DESIGN.md).

use super::bf16::Kernel;
use super::winograd;

/// The product of a weight matrix with `nonzeros` entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// Rows of W.
    pub rows: usize,
    /// Columns of W: input channels × taps.
    pub columns: usize,
    /// Taps of each kernel.
    pub taps: usize,
    /// Entries of W that are not zero.
    pub nonzeros: usize,
}

/// How the dense alternative multiplies; the sparse one rounds X to bf16 if this does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dense {
    /// Single precision.
    F32,
    /// bf16 operands with this kernel.
    Bf16(Kernel),
}

/// Copying one value of X, or writing one of Y.
const MOVE: f64 = 8.0;
/// The same under one of nine taps, in layers of up to [`WIDE`] channels.
const MOVE_SHIFTED: f64 = 12.0;
const WIDE: f64 = 64.0;

impl Product {
    /// Cost per column of X with compressed weights.
    pub fn sparse_cost(&self, dense: Dense) -> f64 {
        let multiply_add = if dense == Dense::F32 { 2.2 } else { 1.3 };
        let channels = (self.columns / self.taps) as f64;
        let move_value = if self.taps == 9 { MOVE_SHIFTED * (channels / WIDE).max(1.0) } else { MOVE };
        multiply_add * self.nonzeros as f64 + move_value * (self.rows + self.columns) as f64
    }

    /// Cost per column of X with all weights.
    pub fn dense_cost(&self, dense: Dense) -> f64 {
        let Self { rows, columns, taps, .. } = *self;
        let multiply_add = match dense {
            Dense::F32 | Dense::Bf16(Kernel::Portable) => 1.0,
            Dense::Bf16(Kernel::Avx512) => 0.52,
            Dense::Bf16(Kernel::Amx) => 0.16,
            #[cfg(test)]
            Dense::Bf16(Kernel::Emulated) => 100.0,
        };
        let plain = multiply_add * (rows * columns) as f64 + MOVE * columns as f64;
        if !winograd::suits_taps(taps, rows, columns / taps) {
            return plain;
        }
        let (multiply_add, transform) = match dense {
            Dense::F32 | Dense::Bf16(Kernel::Portable) => (0.55, 45.0),
            Dense::Bf16(Kernel::Avx512) => (0.27, 42.0),
            Dense::Bf16(Kernel::Amx) => (0.08, 42.0),
            #[cfg(test)]
            Dense::Bf16(Kernel::Emulated) => (50.0, 45.0),
        };
        let winograd = multiply_add * (rows * columns) as f64 + transform * (rows + columns / taps) as f64;
        if dense == Dense::F32 { 0.5 * (plain + winograd) } else { winograd }
    }

    /// Cost per column of X of the non-zeros' gradient, with so many lines of X to copy.
    pub fn sampled_cost(&self, lines: usize, dense: Dense) -> f64 {
        let multiply_add = if dense == Dense::F32 { 2.2 } else { 1.3 };
        multiply_add * self.nonzeros as f64 + MOVE * (self.rows + lines) as f64
    }

    /// Whether the gradient of the non-zeros is faster computed on these alone than for all weights.
    pub fn prefers_sampled(&self, lines: usize, dense: Dense) -> bool {
        self.sampled_cost(lines, dense) < self.dense_cost(dense)
    }

    /// Whether compressed weights are the faster way.
    pub fn prefers_sparse(&self, dense: Dense) -> bool {
        self.sparse_cost(dense) < self.dense_cost(dense)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAYS: [Dense; 3] = [Dense::F32, Dense::Bf16(Kernel::Avx512), Dense::Bf16(Kernel::Amx)];

    /// The share of non-zeros below which sparse is chosen.
    fn break_even(rows: usize, columns: usize, taps: usize, dense: Dense) -> f64 {
        let most = rows * columns;
        let wins = |&nonzeros: &usize| Product { rows, columns, taps, nonzeros }.prefers_sparse(dense);
        (0..=most).step_by(most / 1000).take_while(wins).count() as f64 / 1000.0
    }

    #[test]
    fn the_faster_the_dense_kernel_the_sparser_the_weights_must_be() {
        for (rows, columns) in [(1024, 1024), (1536, 3072), (128, 384)] {
            let [f32, avx512, amx] = WAYS.map(|dense| break_even(rows, columns, 1, dense));
            assert!(f32 > avx512 && avx512 > amx, "{rows} × {columns}: {f32} {avx512} {amx}");
        }
    }

    #[test]
    fn large_layers_break_even_where_it_was_measured() {
        // between 50 and 75 % zeros in f32 and in bf16 without AMX (bench/kernels); near 88 % where dense products run
        // on AMX
        assert!((0.25..0.5).contains(&break_even(1024, 1024, 1, Dense::F32)));
        assert!((0.25..0.5).contains(&break_even(1024, 1024, 1, Dense::Bf16(Kernel::Avx512))));
        assert!((0.1..0.15).contains(&break_even(1024, 1024, 1, Dense::Bf16(Kernel::Amx))));
    }

    #[test]
    fn moving_data_makes_small_layers_dense_however_few_their_weights() {
        assert!(WAYS.iter().all(|&dense| !Product { rows: 8, columns: 8, taps: 1, nonzeros: 1 }.prefers_sparse(dense)));
    }

    #[test]
    fn layers_of_nine_taps_break_even_where_it_was_measured() {
        for channels in [32, 64, 128, 256] {
            let [f32, avx512, amx] = WAYS.map(|dense| break_even(channels, 9 * channels, 9, dense));
            assert!(f32 > 0.1, "{channels} channels in f32: sparse wins at 90 % zeros, not at {f32}");
            assert!(
                (0.05..0.2).contains(&avx512),
                "{channels} channels in bf16: sparse wins at 95 % zeros, not at 75 %: {avx512}"
            );
            assert!(amx < 0.05, "{channels} channels on AMX: dense wins at 95 % zeros, not at {amx}");
        }
    }
}
