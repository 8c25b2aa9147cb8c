//! Our kernels as one program, compiled for a GPU at run time.

use std::ffi::{CStr, CString};

use cudarc::nvrtc;

use super::cache::Cache;
use super::layout;
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

/// The machine code of all kernels for `arch`, compiled or as it was kept.
pub(super) fn image(arch: &str) -> Result<Vec<u8>> {
    let source = [PRELUDE, &layout::declarations(), KERNELS].concat();
    Cache::of_user().program((&source, arch, OPTIONS, compiler_version()), || compile(&source, arch))
}

/// The compiler's options.
const OPTIONS: [&str; 1] = ["--std=c++17"];

/// Major and minor version of NVRTC; 0 if it does not tell.
pub(super) fn compiler_version() -> [i32; 2] {
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
