//! The dense f32 product on one thread: `gemm`'s kernels, in the instructions of a [`Level`]. The crate itself would
//! look at the CPU alone, and what smaller ones compute could not be tested on this one.

use bregman_base::simd::Level;
use gemm_common::Parallelism;
use gemm_common::gemm::gemm_basic_generic;
use gemm_common::microkernel::{HMicroKernelFn, MicroKernelFn};
use gemm_common::simd::{MixedSimd, Scalar};
use gemm_f32::microkernel::scalar::f32 as scalar;

/// A matrix in memory and how far apart its rows and its columns are.
pub(super) struct Operand {
    pub(super) data: *const f32,
    pub(super) row: usize,
    pub(super) column: usize,
}

/// `target (m × n) ← a (m × k) · b (k × n)`, or that added to the target, whose columns are contiguous and `column`
/// apart.
pub(super) struct Gemm {
    pub(super) size: [usize; 3],
    pub(super) a: Operand,
    pub(super) b: Operand,
    pub(super) target: *mut f32,
    pub(super) column: usize,
    pub(super) add: bool,
}

impl Gemm {
    /// Computes it.
    ///
    /// # Safety
    /// The level [is usable](Level::is_usable). All elements of the three matrices may be read, those of the target
    /// written, and no other task uses these meanwhile.
    pub(super) unsafe fn run(self, level: Level) {
        // SAFETY: by this function's contract. The number of lanes is that of the kernels.
        unsafe {
            match level {
                Level::Scalar => {
                    const HEIGHT: usize = scalar::MR_DIV_N;
                    self.with::<_, 1, HEIGHT, _, _, _, _>(Scalar, &scalar::UKR, &scalar::H_UKR);
                }
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => {
                    use gemm_f32::microkernel::fma::f32 as fma;
                    const HEIGHT: usize = 8 * fma::MR_DIV_N;
                    let simd = gemm_common::simd::V3::try_new().expect("a usable level");
                    self.with::<_, 8, HEIGHT, _, _, _, _>(simd, &fma::UKR, &fma::H_UKR);
                }
                _ => self.widest(),
            }
        }
    }

    /// With the widest instructions of the CPU.
    unsafe fn widest(self) {
        let Self { size: [m, n, k], a, b, .. } = self;
        // SAFETY: as for `run`.
        unsafe {
            gemm_f32::gemm::f32::get_gemm_fn()(
                m,
                n,
                k,
                self.target,
                self.column as isize,
                1,
                self.add,
                a.data,
                a.column as isize,
                a.row as isize,
                b.data,
                b.column as isize,
                b.row as isize,
                1.0,
                1.0,
                false,
                false,
                false,
                Parallelism::None,
            );
        }
    }

    /// With these kernels, for tiles of up to `HEIGHT` × `WIDTH` values in vectors of `LANES`.
    unsafe fn with<
        S: MixedSimd<f32, f32, f32, f32>,
        const LANES: usize,
        const HEIGHT: usize,
        const WIDTH: usize,
        const VECTORS: usize,
        const ROWS: usize,
        const COLUMNS: usize,
    >(
        self,
        simd: S,
        kernels: &[[MicroKernelFn<f32>; WIDTH]; VECTORS],
        dots: &[[HMicroKernelFn<f32>; COLUMNS]; ROWS],
    ) {
        let Self { size: [m, n, k], a, b, .. } = self;
        // SAFETY: as for `run`.
        unsafe {
            gemm_basic_generic::<S, f32, LANES, HEIGHT, WIDTH, VECTORS, ROWS, COLUMNS>(
                simd,
                m,
                n,
                k,
                self.target,
                self.column as isize,
                1,
                self.add,
                a.data,
                a.column as isize,
                a.row as isize,
                b.data,
                b.column as isize,
                b.row as isize,
                1.0,
                1.0,
                false,
                false,
                false,
                |a, b, c| a * b + c,
                kernels,
                dots,
                false,
                Parallelism::None,
            );
        }
    }
}
