//! One GPU: its context and stream, our kernels compiled for it, and how to launch them.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{self, CUdevice_attribute, CUfunction, CUfunction_attribute};
use cudarc::driver::{CudaContext, CudaStream, DriverError, result};
use cudarc::nvrtc;

use super::cache::Cache;
use super::{Format, layout};
use crate::{Error, Result};

/// What all kernels share.
const PRELUDE: &str = include_str!("kernels/prelude.cu");

/// All kernels are one program.
const KERNELS: &str = concat!(
    include_str!("kernels/pointwise.cu"),
    include_str!("kernels/norm.cu"),
    include_str!("kernels/pooling.cu"),
    include_str!("kernels/conv.cu"),
    include_str!("kernels/tensor.cu"),
    include_str!("kernels/narrow.cu"),
    include_str!("kernels/stem.cu"),
    include_str!("kernels/loss.cu"),
    include_str!("kernels/features.cu"),
    include_str!("kernels/multi.cu"),
    include_str!("kernels/step.cu"),
    include_str!("kernels/duals.cu"),
);

/// Bytes of shared memory that a block has without asking.
const USUAL_SHARED_MEMORY: u32 = 48 << 10;

/// A GPU that is ready to work. Everything runs in order on the compute stream, but for batches that are uploaded ahead
/// on the copy stream.
pub(super) struct Device {
    pub(super) context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    copies: Arc<CudaStream>,
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
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

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

/// What an error of the driver means.
pub(super) fn driver(error: DriverError) -> Error {
    use sys::CUresult as Code;
    match error.0 {
        Code::CUDA_ERROR_OUT_OF_MEMORY => out_of_memory(None),
        code @ (Code::CUDA_ERROR_LAUNCH_FAILED
        | Code::CUDA_ERROR_ECC_UNCORRECTABLE
        | Code::CUDA_ERROR_DEVICE_UNAVAILABLE
        | Code::CUDA_ERROR_UNKNOWN) => Error::Lost { reason: format!("{code:?}") },
        code => {
            let text = error.error_string().ok().and_then(|text| text.to_str().ok()).unwrap_or("unknown error");
            Error::Device(format!("CUDA: {text} ({code:?})"))
        }
    }
}

/// As [`driver`], of an allocation of this many bytes.
pub(super) fn allocation(bytes: usize) -> impl FnOnce(DriverError) -> Error {
    move |error| match driver(error) {
        Error::OutOfMemory { .. } => out_of_memory(Some(bytes)),
        other => other,
    }
}

fn out_of_memory(asked: Option<usize>) -> Error {
    Error::OutOfMemory { asked, free: result::mem_get_info().ok().map(|(free, _)| free) }
}

/// The lowest compute capability that our kernels run on: they use bf16 instructions.
const CAPABILITY: [i32; 2] = [8, 0];

/// Whether GPU number `ordinal` can be used; nothing stays open.
pub(crate) fn probe(ordinal: usize) -> Result<()> {
    libraries()?;
    let present = match result::init().and_then(|()| result::device::get_count()) {
        Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => 0,
        Err(DriverError(sys::CUresult::CUDA_ERROR_STUB_LIBRARY)) => return Err(Error::NoDriver),
        count => count.map_err(driver)? as usize,
    };
    if ordinal >= present {
        return Err(Error::NoGpu { ordinal, present });
    }
    let gpu = result::device::get(ordinal as i32).map_err(driver)?;
    let attribute = |which| {
        // SAFETY: the driver just gave us this device.
        unsafe { result::device::get_attribute(gpu, which) }.map_err(driver)
    };
    let found = [
        attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    ];
    if found < CAPABILITY {
        let name = result::device::get_name(gpu).map_err(driver)?;
        return Err(Error::GpuTooOld { name, found, needed: CAPABILITY });
    }
    driver_version().map_or(Ok(()), |found| check_driver(found, compiler_version()[0]))
}

/// The newest CUDA that the driver supports, if known.
fn driver_version() -> Option<[i32; 2]> {
    let mut version = 0;
    // SAFETY: the library is loaded, and the number is ours.
    let asked = unsafe { sys::cuDriverGetVersion(&mut version) };
    asked.result().ok().map(|()| [version / 1000, version % 1000 / 10])
}

/// A driver runs the libraries of its own major version of CUDA and of older ones.
fn check_driver(found: [i32; 2], major: i32) -> Result<()> {
    if found[0] < major { Err(Error::DriverTooOld { found, needed: [major, 0] }) } else { Ok(()) }
}

impl Device {
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
        let source = [PRELUDE, &layout::declarations(), KERNELS].concat();
        let image =
            Cache::of_user().program((&source, &arch, OPTIONS, compiler_version()), || compile(&source, &arch))?;
        // SAFETY: the image is a complete program of the compiler for this GPU, and the context is current on this
        // thread.
        let module = unsafe { result::module::load_data(image.as_ptr().cast()) }.map_err(driver)?;
        let (generation, functions) = (AtomicU64::new(0), Mutex::default());
        Ok(Self { context, stream, copies, generation, module, functions, processors, shared_memory, name })
    }

    pub(super) fn stream(&self) -> sys::CUstream {
        self.stream.cu_stream()
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
        self.stream.synchronize().map_err(driver)
    }

    /// Lets later work of the compute stream wait for what the copy stream has to do so far.
    pub(super) fn wait_for_copies(&self) -> Result<()> {
        self.stream.join(&self.copies).map_err(driver)
    }

    /// The kernel, allowed as much shared memory as its first launch asks for: one that needs more than is usual always
    /// needs the same.
    fn function(&self, name: &'static str, variant: Option<KernelVariant>, shared: u32) -> Result<CUfunction> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&function) = functions.get(&(name, variant)) {
            return Ok(function);
        }
        let full = CString::new(format!("{name}{}", variant.map_or("", KernelVariant::suffix)))
            .expect("kernel names have no NUL");
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

/// The libraries without which nothing works.
fn libraries() -> Result<()> {
    // SAFETY: loading a library runs its initialisers, which NVIDIA's do without preconditions.
    let [driver_found, compiler_found, blas_found] =
        unsafe { [sys::is_culib_present(), nvrtc::sys::is_culib_present(), cudarc::cublaslt::sys::is_culib_present()] };
    match (driver_found, compiler_found, blas_found) {
        (false, ..) => Err(Error::NoDriver),
        (_, false, _) => Err(Error::MissingLibrary { library: "libnvrtc.so.13" }),
        (_, _, false) => Err(Error::MissingLibrary { library: "libcublasLt.so.13" }),
        (true, true, true) => Ok(()),
    }
}

/// How they are compiled.
const OPTIONS: [&str; 1] = ["--std=c++17"];

/// Major and minor version of NVRTC; 0 if unknown.
fn compiler_version() -> [i32; 2] {
    let [mut major, mut minor] = [0; 2];
    // SAFETY: the library is loaded, and both numbers are ours.
    let asked = unsafe { nvrtc::sys::nvrtcVersion(&mut major, &mut minor) };
    if asked.result().is_ok() { [major, minor] } else { [0; 2] }
}

/// The kernels of `source` as machine code for `arch`.
fn compile(source: &str, arch: &str) -> Result<Vec<u8>> {
    let fail = |what: String| Error::Device(format!("compiling the CUDA kernels: {what}"));
    let source = CString::new(source).expect("kernels have no NUL");
    let program = nvrtc::result::create_program(&source, None).map_err(|error| fail(error.to_string()))?;
    let options: Vec<String> =
        [format!("--gpu-architecture={arch}")].into_iter().chain(OPTIONS.map(str::to_owned)).collect();
    // SAFETY: `program` is alive until destroyed below, and the buffers have the sizes the compiler asks for.
    unsafe {
        if nvrtc::result::compile_program(program, &options).is_err() {
            let log = nvrtc::result::get_program_log(program).unwrap_or_default();
            let log = CStr::from_ptr(log.as_ptr()).to_string_lossy().into_owned();
            return Err(fail(log));
        }
        let mut size = 0;
        nvrtc::sys::nvrtcGetCUBINSize(program, &mut size).result().map_err(|error| fail(error.to_string()))?;
        let mut image = vec![0u8; size];
        nvrtc::sys::nvrtcGetCUBIN(program, image.as_mut_ptr().cast())
            .result()
            .map_err(|error| fail(error.to_string()))?;
        nvrtc::result::destroy_program(program).map_err(|error| fail(error.to_string()))?;
        Ok(image)
    }
}

/// Most parameters a kernel of ours takes, and the bytes they may fill, in eights.
const PARAMETERS: usize = 20;
const WORDS: usize = 40;

/// A kernel launch being put together.
pub(super) struct Launch<'a> {
    device: &'a Device,
    stream: sys::CUstream,
    name: &'static str,
    variant: Option<KernelVariant>,
    words: [u64; WORDS],
    used: usize,
    offsets: [usize; PARAMETERS],
    count: usize,
}

impl<'a> Launch<'a> {
    fn new(device: &'a Device, name: &'static str, variant: Option<KernelVariant>) -> Self {
        Self {
            device,
            stream: device.stream(),
            name,
            variant,
            words: [0; WORDS],
            used: 0,
            offsets: [0; PARAMETERS],
            count: 0,
        }
    }

    /// On another stream than the usual one.
    pub(super) fn on(self, stream: sys::CUstream) -> Self {
        Self { stream, ..self }
    }

    /// The next parameter.
    pub(super) fn arg<T: bytemuck::NoUninit>(mut self, value: T) -> Self {
        let bytes = bytemuck::bytes_of(&value);
        let words = bytes.len().div_ceil(8);
        bytemuck::cast_slice_mut::<u64, u8>(&mut self.words[self.used..self.used + words])[..bytes.len()]
            .copy_from_slice(bytes);
        self.offsets[self.count] = self.used;
        self.used += words;
        self.count += 1;
        self
    }

    /// Starts it; it runs after everything before it.
    ///
    /// # Safety
    /// The parameters must be the kernel's own, in number and type, and its accesses must stay inside of the buffers
    /// they point to.
    pub(super) unsafe fn run(mut self, grid: [u32; 2], block: [u32; 2], shared: u32) -> Result<()> {
        if grid.contains(&0) {
            return Ok(());
        }
        self.device.bind()?;
        let function = self.device.function(self.name, self.variant, shared)?;
        let base = self.words.as_mut_ptr();
        let mut pointers = [std::ptr::null_mut::<c_void>(); PARAMETERS];
        for (pointer, &offset) in pointers.iter_mut().zip(&self.offsets[..self.count]) {
            *pointer = base.wrapping_add(offset).cast();
        }
        let (grid, block) = ((grid[0], grid[1], 1), (block[0], block[1], 1));
        // SAFETY: the function belongs to a loaded module; the rest is the caller's promise.
        unsafe { result::launch_kernel(function, grid, block, shared, self.stream, &mut pointers[..self.count]) }
            .map_err(driver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_device_says_what_to_do() {
        let message = |code| {
            let error = driver(DriverError(code));
            format!("{error}; {}", error.hint().unwrap_or_default())
        };
        assert!(
            message(sys::CUresult::CUDA_ERROR_LAUNCH_FAILED).contains("lost")
                && message(sys::CUresult::CUDA_ERROR_LAUNCH_FAILED).contains("resume")
        );
    }

    #[test]
    fn a_driver_older_than_the_libraries_is_refused() {
        assert!(check_driver([13, 0], 13).is_ok() && check_driver([13, 1], 12).is_ok());
        let error = check_driver([12, 8], 13).unwrap_err();
        assert!(matches!(error, Error::DriverTooOld { found: [12, 8], needed: [13, 0] }));
    }
}
