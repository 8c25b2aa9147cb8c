//! Matrix products by cuBLASLt. Its choice of algorithm is asked for once per shape and kept.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::cublaslt::{result, sys};
use cudarc::driver::sys::CUstream;

use super::Format;
use super::gpu::Gpu;
use super::memory::DeviceBuffer;
use crate::{Error, Result};

/// What cuBLASLt may use to split long sums.
const WORKSPACE: usize = 64 << 20;

/// A column-major matrix: `rows × columns` once it is transposed as asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Operand {
    pub(super) pointer: u64,
    pub(super) leading: usize,
    pub(super) transposed: bool,
}

/// `d = a · b`, `+ d` or `+ bias` (one value per row of d).
pub(super) struct GemmProduct {
    /// Rows of d, columns of d, length of the sums.
    pub(super) size: [usize; 3],
    pub(super) a: Operand,
    pub(super) b: Operand,
    pub(super) operands: Format,
    pub(super) d: u64,
    pub(super) leading: usize,
    pub(super) result: Format,
    pub(super) add: bool,
    /// In the format of the result.
    pub(super) bias: Option<u64>,
}

/// All that cuBLASLt's choice depends on: shapes, formats and how well the pointers are aligned.
#[derive(PartialEq, Eq, Hash)]
struct GemmKey {
    size: [usize; 3],
    leading: [usize; 3],
    transposed: [bool; 2],
    formats: [Format; 2],
    add: bool,
    bias: bool,
    alignments: [u32; 3],
}

struct GemmPlan {
    description: Description,
    layouts: [Layout; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
}

/// One of cuBLASLt's descriptors, destroyed when dropped.
macro_rules! descriptor {
    ($name:ident, $handle:ident, $destroy:ident) => {
        struct $name(sys::$handle);

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: created with the value, destroyed once. An error on the way out has nobody to go to.
                let _ = unsafe { result::$destroy(self.0) };
            }
        }
    };
}
descriptor!(Description, cublasLtMatmulDesc_t, destroy_matmul_desc);
descriptor!(Layout, cublasLtMatrixLayout_t, destroy_matrix_layout);
descriptor!(Preference, cublasLtMatmulPreference_t, destroy_matmul_pref);

/// cuBLASLt with its workspace.
pub(super) struct Gemm {
    handle: sys::cublasLtHandle_t,
    workspace: DeviceBuffer,
    plans: Mutex<HashMap<GemmKey, GemmPlan>>,
    /// f32 operands may be rounded to 10 bits of mantissa.
    tf32: bool,
}

// SAFETY: the handle may be used from any thread, one at a time: the lock on the plans is held during every call.
unsafe impl Send for Gemm {}
// SAFETY: as above.
unsafe impl Sync for Gemm {}

fn blas(error: result::CublasError) -> Error {
    Error::Device(format!("cuBLASLt: {error}"))
}

fn data_type(format: Format) -> sys::cudaDataType {
    match format {
        Format::F32 => sys::cudaDataType::CUDA_R_32F,
        Format::Bf16 => sys::cudaDataType::CUDA_R_16BF,
    }
}

impl Gemm {
    pub(super) fn new(device: &Arc<Gpu>, tf32: bool) -> Result<Self> {
        let workspace = DeviceBuffer::zeros(device, WORKSPACE)?;
        Ok(Self { handle: result::create_handle().map_err(blas)?, workspace, plans: Mutex::default(), tf32 })
    }

    /// Starts the product.
    ///
    /// # Safety
    /// The matrices must lie inside of live buffers of the stated formats.
    pub(super) unsafe fn run(&self, device: &Gpu, product: &GemmProduct) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.run_on(device, device.stream(), product) }
    }

    /// The same on another stream than the usual one. One stream only per `Gemm`: products share its workspace.
    ///
    /// # Safety
    /// As [`Gemm::run`].
    pub(super) unsafe fn run_on(&self, device: &Gpu, stream: CUstream, product: &GemmProduct) -> Result<()> {
        device.bind()?;
        let aligned = |pointer: u64| 1u32 << pointer.trailing_zeros().min(8);
        let key = GemmKey {
            size: product.size,
            leading: [product.a.leading, product.b.leading, product.leading],
            transposed: [product.a.transposed, product.b.transposed],
            formats: [product.operands, product.result],
            add: product.add,
            bias: product.bias.is_some(),
            alignments: [product.a.pointer, product.b.pointer, product.d].map(aligned),
        };
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = match plans.entry(key) {
            Entry::Occupied(plan) => plan.into_mut(),
            Entry::Vacant(free) => {
                let plan = self.plan(free.key())?;
                free.insert(plan)
            }
        };
        let (alpha, beta) = (1f32, if product.add { 1f32 } else { 0.0 });
        // SAFETY: descriptors are alive as long as `self`; the pointers are the caller's promise.
        unsafe {
            if let Some(bias) = product.bias {
                set(&plan.description, sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias)?;
            }
            result::matmul(
                self.handle,
                plan.description.0,
                (&raw const alpha).cast(),
                (&raw const beta).cast(),
                product.a.pointer as *const _,
                plan.layouts[0].0,
                product.b.pointer as *const _,
                plan.layouts[1].0,
                product.d as *const _,
                plan.layouts[2].0,
                product.d as *mut _,
                plan.layouts[2].0,
                &raw const plan.algorithm,
                self.workspace.pointer() as *mut _,
                WORKSPACE,
                stream.cast(),
            )
        }
        .map_err(blas)
    }

    fn plan(&self, key: &GemmKey) -> Result<GemmPlan> {
        use sys::cublasComputeType_t as Compute;
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        let [m, n, k] = key.size.map(|size| size as u64);
        let compute = if self.tf32 && key.formats[0] == Format::F32 {
            Compute::CUBLAS_COMPUTE_32F_FAST_TF32
        } else {
            Compute::CUBLAS_COMPUTE_32F
        };
        let description = result::create_matmul_desc(compute, sys::cudaDataType::CUDA_R_32F).map_err(blas)?;
        let description = Description(description);
        let operation = i32::from; // cublasOperation_t: 0 as it is, 1 transposed
        set(&description, Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &operation(key.transposed[0]))?;
        set(&description, Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &operation(key.transposed[1]))?;
        if key.bias {
            let epilogue = sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS as i32;
            set(&description, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
        }
        let layout = |format, rows, columns, leading: usize, transposed| {
            let (rows, columns) = if transposed { (columns, rows) } else { (rows, columns) };
            result::create_matrix_layout(data_type(format), rows, columns, leading as i64).map(Layout).map_err(blas)
        };
        let layouts = [
            layout(key.formats[0], m, k, key.leading[0], key.transposed[0])?,
            layout(key.formats[0], k, n, key.leading[1], key.transposed[1])?,
            layout(key.formats[1], m, n, key.leading[2], false)?,
        ];
        let preference = Preference(result::create_matmul_pref().map_err(blas)?);
        use sys::cublasLtMatmulPreferenceAttributes_t as Limit;
        let settings = [
            (Limit::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignments[0]),
            (Limit::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignments[1]),
            (Limit::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignments[2]),
            (Limit::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.alignments[2]),
        ];
        // SAFETY: the descriptors are alive; attributes have the sizes documented for them.
        let chosen = unsafe {
            let bytes = WORKSPACE;
            let workspace = Limit::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
            result::set_matmul_pref_attribute(preference.0, workspace, (&raw const bytes).cast(), size_of::<usize>())
                .map_err(blas)?;
            for (attribute, value) in &settings {
                result::set_matmul_pref_attribute(preference.0, *attribute, (value as *const u32).cast(), 4)
                    .map_err(blas)?;
            }
            let [a, b, d] = [0, 1, 2].map(|which: usize| layouts[which].0);
            result::get_matmul_algo_heuristic(self.handle, description.0, a, b, d, d, preference.0)
        };
        let chosen =
            chosen.map_err(|error| Error::Device(format!("cuBLASLt has no product for {:?}: {error}", key.size)))?;
        Ok(GemmPlan { description, layouts, algorithm: chosen.algo })
    }
}

fn set<T: bytemuck::NoUninit>(
    description: &Description,
    attribute: sys::cublasLtMatmulDescAttributes_t,
    value: &T,
) -> Result<()> {
    // SAFETY: the descriptor is alive, and `value` has the attribute's type.
    unsafe { result::set_matmul_desc_attribute(description.0, attribute, (value as *const T).cast(), size_of::<T>()) }
        .map_err(blas)
}

impl Drop for Gemm {
    fn drop(&mut self) {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).clear();
        // SAFETY: created in `new`, destroyed once, and nothing uses it any more.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}
