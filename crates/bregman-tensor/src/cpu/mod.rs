//! The CPU backend: `gemm` inside our own `rayon` tasks, SIMD picked at run time.
//!
//! Memory layout of an activation: `[channels, batch, height, width]`. A 1×1 convolution of the whole batch is then one
//! matrix product, the values a batch norm averages lie side by side, and splitting or joining channels is only a
//! matter of offsets.

mod arrays;
mod collectives;
mod conv;
mod filterbank;
mod gemm;
mod joint_norm;
pub mod kernels;
mod loss;
mod math;
mod matmul;
mod memory;
mod norm;
mod patches;
mod pointwise;
mod pooling;
mod reflection;
mod routes;
mod segments;
mod weights;

pub use arrays::CpuArrays;
pub use bregman_base::Buffer;
pub use matmul::dot_products;
pub use weights::{Copies, WeightPolicy};

use std::sync::Mutex;

use bregman::{HostArrays, Param};
#[cfg(target_arch = "x86_64")]
use bregman_base::simd::Level;

#[cfg(target_arch = "x86_64")]
use kernels::bf16::Kernel;
use routes::WeightGradients;

use crate::{Device, Precision, Ranks, Result, View, ViewMut};

/// This machine's processor; work is spread over the current `rayon` pool.
#[derive(Debug, Default)]
pub struct Cpu {
    precision: Precision,
    weights: WeightPolicy,
    gradients: Mutex<WeightGradients>,
    ranks: Ranks,
    messages: Mutex<Vec<Vec<f32>>>,
    joint_norms: bool,
    divides_optimizer: bool,
    late: bool,
}

impl Cpu {
    /// The CPU in f32.
    pub fn new() -> Self {
        Self::default()
    }

    /// The CPU in this precision; f32 for tf32.
    pub fn with_precision(precision: Precision) -> Self {
        let precision = if precision == Precision::Bf16 { precision } else { Precision::F32 };
        Self { precision, ..Self::default() }
    }

    /// Multiplies with sparse or dense weights always, whatever is faster: to compare the two.
    pub fn with_weights(self, weights: WeightPolicy) -> Self {
        Self { weights, ..self }
    }

    /// Makes the trainer read results one step late, as on a GPU; for tests that this changes no result.
    pub fn read_late(self) -> Self {
        Self { late: true, ..self }
    }

    /// As one of several ranks.
    pub fn with_ranks(self, ranks: Ranks) -> Self {
        Self { ranks, ..self }
    }
}

impl<'a> View<'a, Cpu> {
    /// The channels seen, one after another.
    fn slice(&self) -> &'a [f32] {
        let start = self.first * self.shape.plane();
        &self.data[start..start + self.shape.len()]
    }
}

impl<'a> ViewMut<'a, Cpu> {
    /// The channels seen, one after another.
    fn slice(self) -> &'a mut [f32] {
        let start = self.first * self.shape.plane();
        &mut self.data[start..start + self.shape.len()]
    }
}

/// The arrays of an optimizer stay where they are, or are divided among the ranks.
impl Device for Cpu {
    type Arrays = CpuArrays;

    const PRECISION: Precision = Precision::F32;

    fn precision(&self) -> Precision {
        self.precision
    }

    fn runs_ahead(&self) -> bool {
        self.late
    }

    /// Threads of the current pool and the instructions used: `cpu (2 threads, AVX-512 + AMX)`.
    fn description(&self) -> String {
        let threads = rayon::current_num_threads();
        let plural = if threads == 1 { "" } else { "s" };
        format!("cpu ({threads} thread{plural}, {})", instructions())
    }

    fn place(&self, arrays: HostArrays, params: &[Param]) -> Result<CpuArrays> {
        Ok(match self.divides_optimizer {
            true => CpuArrays::part(arrays, params, &self.ranks),
            false => CpuArrays::whole(arrays),
        })
    }
}

#[cfg(target_arch = "x86_64")]
fn instructions() -> &'static str {
    match (Level::best(), Kernel::best()) {
        (_, Kernel::Amx) => "AVX-512 + AMX",
        (Level::Avx512Bf16, _) => "AVX-512 + BF16",
        (Level::Avx512, _) => "AVX-512",
        (Level::Avx2, _) => "AVX2",
        (Level::Scalar, _) => "SSE2",
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn instructions() -> &'static str {
    std::env::consts::ARCH
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use bregman_base::simd;

    use super::*;

    #[test]
    fn limited_instructions_leave_bf16_products_and_amx_unused() {
        assert_eq!(Kernel::best() == Kernel::Portable, Level::best() < Level::Avx512Bf16);
        assert!(!simd::is_limited() || Kernel::best() != Kernel::Amx);
    }
}
