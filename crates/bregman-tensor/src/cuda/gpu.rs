//! One GPU: its context, its two streams, and our kernels compiled for it.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{self, CUdevice_attribute, CUfunction, CUfunction_attribute};
use cudarc::driver::{CudaContext, CudaStream, result};

use super::driver::{driver, probe};
use super::launch::Launch;
use super::{Format, program};
use crate::Result;

/// Bytes of shared memory that a block has without asking.
const USUAL_SHARED_MEMORY: u32 = 48 << 10;

/// No handle of a stream; 0 is the default stream.
const OWN: u64 = u64::MAX;

/// A GPU that is ready to work. Everything runs in order on the compute stream, but for batches that are uploaded ahead
/// on the copy stream.
pub(super) struct Gpu {
    pub(super) context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    copies: Arc<CudaStream>,
    /// A stream of somebody else in place of the compute stream, see [`Gpu::follow`]; `OWN` where there is none.
    followed: AtomicU64,
    /// Counts allocations and frees: a captured graph holds addresses, and is valid as long as this stays the same.
    generation: AtomicU64,
    module: sys::CUmodule,
    functions: Mutex<HashMap<(&'static str, Option<KernelVariant>), CUfunction>>,
    /// Multiprocessors.
    pub(super) processors: u32,
    /// Bytes of shared memory that a block may have.
    pub(super) shared_memory: u32,
    /// What it calls itself.
    pub(super) name: String,
}

// SAFETY: the driver's handles may be used from any thread; the table of functions is behind a lock.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

/// Which of the two streams.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    /// Kernels, and copies in order with them.
    Compute,
    /// Uploads that overlap with earlier kernels; later kernels wait for them.
    Copy,
}

/// Which of a kernel's four variants: number format, and channels per thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct KernelVariant {
    pub(super) format: Format,
    /// Eight channels per thread, for views whose channels come in eights; else one.
    pub(super) wide: bool,
}

impl KernelVariant {
    pub(super) fn lanes(self) -> u32 {
        if self.wide { 8 } else { 1 }
    }

    fn suffix(self) -> &'static str {
        match (self.format, self.wide) {
            (Format::F32, false) => "_f1",
            (Format::F32, true) => "_f8",
            (Format::Bf16, false) => "_b1",
            (Format::Bf16, true) => "_b8",
        }
    }
}

impl Gpu {
    /// Opens GPU number `ordinal` and compiles the kernels for it (seconds, the first time).
    pub(super) fn open(ordinal: usize) -> Result<Self> {
        probe(ordinal)?;
        let context = CudaContext::new(ordinal).map_err(driver)?;
        let stream = context.new_stream().map_err(driver)?;
        let copies = context.new_stream().map_err(driver)?;
        let attribute = |which| context.attribute(which).map_err(driver);
        let processors = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32;
        let shared_memory =
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as u32;
        let major = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let name = context.name().map_err(driver)?;
        let arch = format!("sm_{major}{minor}");
        let image = program::image(&arch)?;
        // SAFETY: the image is a complete program of the compiler for this GPU, and the context is current on this
        // thread.
        let module = unsafe { result::module::load_data(image.as_ptr().cast()) }.map_err(driver)?;
        let (followed, generation, functions) = (AtomicU64::new(OWN), AtomicU64::new(0), Mutex::default());
        Ok(Self { context, stream, copies, followed, generation, module, functions, processors, shared_memory, name })
    }

    pub(super) fn stream(&self) -> sys::CUstream {
        match self.followed.load(Ordering::Relaxed) {
            OWN => self.stream.cu_stream(),
            followed => followed as sys::CUstream,
        }
    }

    /// Makes this stream of the primary context the compute stream.
    ///
    /// # Safety
    /// It must be alive in all later calls, until another one is followed.
    pub(super) unsafe fn follow(&self, stream: u64) {
        self.followed.store(stream, Ordering::Relaxed);
    }

    pub(super) fn copy_stream(&self) -> sys::CUstream {
        self.copies.cu_stream()
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    pub(super) fn count_allocation(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes the GPU's context current on this thread.
    pub(super) fn bind(&self) -> Result<()> {
        self.context.bind_to_thread().map_err(driver)
    }

    /// Waits until all work so far is done.
    pub(super) fn wait(&self) -> Result<()> {
        // SAFETY: the stream is ours, or alive by the promise of who made us follow it.
        unsafe { result::stream::synchronize(self.stream()) }.map_err(driver)
    }

    /// Lets later work of the compute stream wait for what the copy stream has to do so far.
    pub(super) fn wait_for_copies(&self) -> Result<()> {
        self.wait_for(&self.copies)
    }

    /// Lets later work of the compute stream wait for what the other stream has to do so far.
    pub(super) fn wait_for(&self, other: &CudaStream) -> Result<()> {
        self.stream.join(other).map_err(driver)
    }

    /// Lets later work of the other stream wait for what the compute stream has to do so far.
    pub(super) fn goes_before(&self, other: &CudaStream) -> Result<()> {
        other.join(&self.stream).map_err(driver)
    }

    /// The kernel, allowed as much shared memory as its first launch asks for: one that needs more than is usual always
    /// needs the same.
    pub(super) fn function(
        &self,
        name: &'static str,
        variant: Option<KernelVariant>,
        shared: u32,
    ) -> Result<CUfunction> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&function) = functions.get(&(name, variant)) {
            return Ok(function);
        }
        let full = CString::new(format!("{name}{}", variant.map_or("", KernelVariant::suffix))).expect(
            "kernel names have no \
                NUL",
        );
        // SAFETY: the module lives as long as the device.
        let function = unsafe { result::module::get_function(self.module, full) }.map_err(driver)?;
        if shared > USUAL_SHARED_MEMORY {
            use CUfunction_attribute::{
                CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as LIMIT,
                CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT as PERCENT,
            };
            for (attribute, value) in [(LIMIT, shared as i32), (PERCENT, 100)] {
                // SAFETY: as above.
                unsafe { result::function::set_function_attribute(function, attribute, value) }.map_err(driver)?;
            }
        }
        functions.insert((name, variant), function);
        Ok(function)
    }

    /// Begins a launch of a kernel without variants.
    pub(super) fn kernel(&self, name: &'static str) -> Launch<'_> {
        Launch::new(self, name, None)
    }

    /// Begins a launch of the kernel's variant.
    pub(super) fn variant(&self, name: &'static str, variant: KernelVariant) -> Launch<'_> {
        Launch::new(self, name, Some(variant))
    }
}
