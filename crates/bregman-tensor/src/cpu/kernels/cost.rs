//! Dense or sparse? An estimate of both costs, per layer and step.
//!
//! In units of one dense f32 multiply-add, for W[rows × columns] · X[columns × len]:
//! ```text
//! sparse   s · nonzeros · len        + 8 · (rows + columns) · len     s = 2.2 in f32, 1.3 with X rounded to bf16
//! dense    d · rows · columns · len  + 8 · columns · len              d = 1 in f32; in bf16 0.52 with AVX-512, 0.16 with AMX
//! ```
//! A non-zero costs more than a dense multiply-add because X comes from the second-level cache instead of registers; every kernel
//! reads X once into its own layout, and the sparse one writes Y without having done much else.
//!
//! The constants are shipped, not measured at start-up: they are ratios of two kernels on the same core, which change little between
//! CPUs of a kind and not at all with the number of threads, and a measurement on a busy machine could make two runs with the same
//! seed take different paths. Source: `bench/run kernels` on AMD Zen 4, 2 threads, which also shows where the choice was wrong; AMX
//! from the ratio of 1441 to 231 GFLOP/s that PyTorch reaches on it (DESIGN.md).

use super::bf16::Kernel;

/// The product of a weight matrix with `nonzeros` entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// Rows of W.
    pub rows: usize,
    /// Columns of W: input channels × taps.
    pub columns: usize,
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

impl Product {
    /// Cost per column of X with compressed weights.
    pub fn sparse_cost(&self, dense: Dense) -> f64 {
        let multiply_add = if dense == Dense::F32 { 2.2 } else { 1.3 };
        multiply_add * self.nonzeros as f64 + MOVE * (self.rows + self.columns) as f64
    }

    /// Cost per column of X with all weights.
    pub fn dense_cost(&self, dense: Dense) -> f64 {
        let multiply_add = match dense {
            Dense::F32 | Dense::Bf16(Kernel::Portable) => 1.0,
            Dense::Bf16(Kernel::Avx512) => 0.52,
            Dense::Bf16(Kernel::Amx) => 0.16,
            #[cfg(test)]
            Dense::Bf16(Kernel::Emulated) => 100.0,
        };
        multiply_add * (self.rows * self.columns) as f64 + MOVE * self.columns as f64
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
    fn break_even(rows: usize, columns: usize, dense: Dense) -> f64 {
        let most = rows * columns;
        let wins = |&nonzeros: &usize| Product { rows, columns, nonzeros }.prefers_sparse(dense);
        (0..=most).step_by(most / 1000).take_while(wins).count() as f64 / 1000.0
    }

    #[test]
    fn the_faster_the_dense_kernel_the_sparser_the_weights_must_be() {
        for (rows, columns) in [(1024, 1024), (1536, 3072), (128, 384)] {
            let [f32, avx512, amx] = WAYS.map(|dense| break_even(rows, columns, dense));
            assert!(f32 > avx512 && avx512 > amx, "{rows} × {columns}: {f32} {avx512} {amx}");
        }
    }

    #[test]
    fn large_layers_break_even_where_it_was_measured() {
        // between 50 and 75 % zeros in f32 and in bf16 without AMX (bench/kernels); near 88 % where dense products run on AMX
        assert!((0.25..0.5).contains(&break_even(1024, 1024, Dense::F32)));
        assert!((0.25..0.5).contains(&break_even(1024, 1024, Dense::Bf16(Kernel::Avx512))));
        assert!((0.1..0.15).contains(&break_even(1024, 1024, Dense::Bf16(Kernel::Amx))));
    }

    #[test]
    fn moving_data_makes_small_layers_dense_however_few_their_weights() {
        assert!(WAYS.iter().all(|&dense| !Product { rows: 8, columns: 8, nonzeros: 1 }.prefers_sparse(dense)));
    }
}
