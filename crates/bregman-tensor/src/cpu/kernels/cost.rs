//! Dense or sparse? An estimate of both costs, per layer and step.
//!
//! In units of one dense f32 multiply-add, for W[rows × columns] · X[columns × len], columns = channels × taps:
//! ```text
//! sparse       s · nonzeros · len        + m · (rows + lines) · len       s = 2.2 in f32, 1.3 with X rounded to bf16
//! dense        d · rows · columns · len  + 8 · columns · len              d = 1 in f32; in bf16 0.52 with AVX-512,
//!                                                                         0.16 with AMX
//! 3 × 3 dense  w · rows · columns · len  + t · (rows + channels) · len    w = 0.55 in f32; in bf16 0.27 with AVX-512,
//!                                                                         0.08 with AMX; t = 45, 42
//! gradient of  2.7 · nonzeros · len      + 1.25 m · (rows + lines) · len  lines = channels, with a stride columns
//! the non-zeros
//! ```
//! A non-zero costs more than a dense multiply-add because X comes from the second-level cache instead of registers;
//! every kernel reads X once into its own layout, and the sparse one writes Y without having done much else: m = 8 for
//! each value. In convolutions s = 2.2 always, for their lines are stored as f32. With 3 × 3 taps m = 14 (20 rounded),
//! and more on small maps, whose rows are short. How wide a map is, a weight does not know; but networks double the
//! channels where they halve the maps, so m grows with the channels beyond 45. Dense 3 × 3 layers run on [`winograd`],
//! in f32 only backward: there the cost is the mean of both directions. Its weight gradient gains less from AMX: w is
//! that of AVX-512.
//!
//! The constants are shipped, not measured at start-up: they are ratios of two kernels on the same core, which change
//! little between CPUs of a kind and not at all with the number of threads, and a measurement on a busy machine could
//! make two runs with the same seed take different paths. Source: `bench/run kernels` and the layers of ResNet34 on AMD
//! Zen 4, and for 3 × 3 layers and gradients on an Intel Xeon with AMX; the bench also shows where the choice was
//! wrong.

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
/// The same in layers of 3 × 3 taps and up to [`WIDE`] channels, as it is and rounded to bf16.
const MOVE_PADDED: [f64; 2] = [14.0, 20.0];
const WIDE: f64 = 45.0;
/// The gradient of the non-zeros against the product with them.
const SAMPLED: f64 = 1.25;

impl Product {
    /// Cost per column of X with compressed weights, in a layer without a stride.
    pub fn sparse_cost(&self, dense: Dense) -> f64 {
        self.multiply_add(dense) * self.nonzeros as f64 + self.moves(self.columns / self.taps, dense)
    }

    /// A multiply-add of a non-zero.
    fn multiply_add(&self, dense: Dense) -> f64 {
        if dense == Dense::F32 || self.taps > 1 { 2.2 } else { 1.3 }
    }

    /// Copying lines of X, and writing Y.
    fn moves(&self, lines: usize, dense: Dense) -> f64 {
        let channels = (self.columns / self.taps) as f64;
        let rounded = usize::from(dense != Dense::F32);
        let each = if self.taps == 9 { MOVE_PADDED[rounded] * (channels / WIDE).max(1.0) } else { MOVE };
        each * (self.rows + lines) as f64
    }

    /// Cost per column of X with all weights.
    pub fn dense_cost(&self, dense: Dense) -> f64 {
        let multiply_add = match dense {
            Dense::F32 | Dense::Bf16(Kernel::Portable) => 0.55,
            Dense::Bf16(Kernel::Avx512) => 0.27,
            Dense::Bf16(Kernel::Amx) => 0.08,
            #[cfg(test)]
            Dense::Bf16(Kernel::Emulated) => 50.0,
        };
        match self.winograd_cost(multiply_add, dense) {
            None => self.plain_cost(dense),
            Some(winograd) if dense == Dense::F32 => 0.5 * (self.plain_cost(dense) + winograd),
            Some(winograd) => winograd,
        }
    }

    /// Cost per column of X of the gradient of all weights.
    pub fn gradient_cost(&self, dense: Dense) -> f64 {
        let multiply_add = match dense {
            Dense::F32 | Dense::Bf16(Kernel::Portable) => 0.55,
            Dense::Bf16(Kernel::Avx512 | Kernel::Amx) => 0.27,
            #[cfg(test)]
            Dense::Bf16(Kernel::Emulated) => 50.0,
        };
        self.winograd_cost(multiply_add, dense).unwrap_or_else(|| self.plain_cost(dense))
    }

    fn plain_cost(&self, dense: Dense) -> f64 {
        let multiply_add = match dense {
            Dense::F32 | Dense::Bf16(Kernel::Portable) => 1.0,
            Dense::Bf16(Kernel::Avx512) => 0.52,
            Dense::Bf16(Kernel::Amx) => 0.16,
            #[cfg(test)]
            Dense::Bf16(Kernel::Emulated) => 100.0,
        };
        multiply_add * (self.rows * self.columns) as f64 + MOVE * self.columns as f64
    }

    /// If the layer's dense products are made by [`winograd`].
    fn winograd_cost(&self, multiply_add: f64, dense: Dense) -> Option<f64> {
        let Self { rows, columns, taps, .. } = *self;
        let transform = match dense {
            Dense::Bf16(Kernel::Avx512 | Kernel::Amx) => 42.0,
            _ => 45.0,
        };
        winograd::suits_taps(taps, rows, columns / taps)
            .then(|| multiply_add * (rows * columns) as f64 + transform * (rows + columns / taps) as f64)
    }

    /// Whether compressed weights are the faster way.
    pub fn prefers_sparse(&self, dense: Dense) -> bool {
        self.sparse_cost(dense) < self.dense_cost(dense)
    }

    /// Cost per column of X of the non-zeros' gradient, with so many lines of X to copy.
    pub fn sampled_cost(&self, lines: usize, dense: Dense) -> f64 {
        2.7 * self.nonzeros as f64 + SAMPLED * self.moves(lines, dense)
    }

    /// Whether the gradient of the non-zeros is faster computed on these alone than for all weights.
    pub fn prefers_sampled(&self, lines: usize, dense: Dense) -> bool {
        self.sampled_cost(lines, dense) < self.gradient_cost(dense)
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
            // on an Intel Xeon: 3.7 against 6.8 ms at 95 % zeros with 32 channels, 3.5 against 2.9 ms with 128
            assert_eq!(amx > 0.05, channels <= 64, "{channels} channels on AMX: {amx}");
        }
    }

    #[test]
    fn gradients_of_the_nonzeros_pay_where_it_was_measured() {
        let pays = |size: usize, taps: usize, zeros: f64, dense: Dense| {
            let nonzeros = ((1.0 - zeros) * (size * size * taps) as f64) as usize;
            Product { rows: size, columns: size * taps, taps, nonzeros }.prefers_sampled(size, dense)
        };
        // milliseconds on an Intel Xeon, sampled against dense
        let amx = Dense::Bf16(Kernel::Amx);
        assert!(pays(1024, 1, 0.90, Dense::F32) && !pays(1024, 1, 0.50, Dense::F32)); // 9.3 and 71 against 22
        assert!(pays(1024, 1, 0.95, amx) && !pays(1024, 1, 0.90, amx)); // 5.0 and 9.8 against 6.4
        assert!(pays(128, 9, 0.95, amx)); // 3.4 against 6.6
        assert!(pays(32, 9, 0.95, Dense::F32)); // 5.6 against 17
    }
}
