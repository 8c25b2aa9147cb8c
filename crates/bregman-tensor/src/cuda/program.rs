//! Our kernels as one program, compiled for a GPU at run time.

use std::ffi::{CStr, CString};
use std::fmt::Display;

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
    include_str!("kernels/reflection.cu"),
    include_str!("kernels/segments.cu"),
    include_str!("kernels/conv.cu"),
    include_str!("kernels/tensor.cu"),
    include_str!("kernels/narrow.cu"),
    include_str!("kernels/stem.cu"),
    include_str!("kernels/loss.cu"),
    include_str!("kernels/features.cu"),
    include_str!("kernels/multi.cu"),
    include_str!("kernels/support.cu"),
    include_str!("kernels/step.cu"),
    include_str!("kernels/duals.cu"),
);

fn source() -> String {
    [PRELUDE, &layout::declarations(), KERNELS].concat()
}

/// The machine code of all kernels for `arch`, compiled or as it was kept.
pub(super) fn image(arch: &str) -> Result<Vec<u8>> {
    let source = source();
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
    let program = Program::new(source)?;
    program.compile(arch)?;
    program.machine_code()
}

/// A program of the compiler, released however its compilation ends.
struct Program(nvrtc::sys::nvrtcProgram);

impl Program {
    fn new(source: &str) -> Result<Self> {
        let source = CString::new(source).expect("kernels have no NUL");
        nvrtc::result::create_program(&source, None).map(Self).map_err(refused)
    }

    fn compile(&self, arch: &str) -> Result<()> {
        let options: Vec<String> =
            [format!("--gpu-architecture={arch}")].into_iter().chain(OPTIONS.map(str::to_owned)).collect();
        // SAFETY: the program is alive, and so is the log, which ends with a NUL.
        unsafe {
            nvrtc::result::compile_program(self.0, &options).map_err(|error| {
                match nvrtc::result::get_program_log(self.0) {
                    Ok(log) => refused(CStr::from_ptr(log.as_ptr()).to_string_lossy()),
                    Err(_) => refused(error),
                }
            })
        }
    }

    fn machine_code(&self) -> Result<Vec<u8>> {
        let mut size = 0;
        // SAFETY: the program is alive, and the buffer has the size that the compiler asks for.
        unsafe {
            nvrtc::sys::nvrtcGetCUBINSize(self.0, &mut size).result().map_err(refused)?;
            let mut image = vec![0u8; size];
            nvrtc::sys::nvrtcGetCUBIN(self.0, image.as_mut_ptr().cast()).result().map_err(refused)?;
            Ok(image)
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: created in `new`, destroyed once. An error on the way out has nobody to go to.
        let _ = unsafe { nvrtc::result::destroy_program(self.0) };
    }
}

fn refused(what: impl Display) -> Error {
    Error::Device(format!("compiling the CUDA kernels: {what}"))
}

/// These need the compiler's library but no GPU: CUDA's, or that of `pip install nvidia-cuda-nvrtc` on the
/// `LD_LIBRARY_PATH`, as `tools/check/cuda` does.
#[cfg(test)]
mod tests {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    /// The compiler, for one test at a time: the last one measures memory. `None` where NVRTC is not installed.
    fn compiler() -> Option<MutexGuard<'static, ()>> {
        static ONE: Mutex<()> = Mutex::new(());
        // SAFETY: loading the library runs its initialisers, which have no preconditions.
        if unsafe { nvrtc::sys::is_culib_present() } {
            return Some(ONE.lock().unwrap_or_else(PoisonError::into_inner));
        }
        bregman_skip::skip("nvrtc", "libnvrtc.so.13 could not be loaded");
        None
    }

    #[test]
    fn all_kernels_compile_for_every_generation_they_support() {
        if let Some(_alone) = compiler() {
            for arch in ["sm_80", "sm_90", "sm_100", "sm_120"] {
                assert!(!compile(&source(), arch).unwrap().is_empty(), "{arch}");
            }
        }
    }

    #[test]
    fn a_kernel_that_does_not_compile_is_an_error_with_the_compilers_words() {
        if let Some(_alone) = compiler() {
            let error = compile("__global__ void broken() { undeclared = 1; }", "sm_90").unwrap_err();
            assert!(!error.means_no_gpu() && error.to_string().contains("\"undeclared\" is undefined"), "{error}");
        }
    }

    /// 40 programs of 16 MiB: kept, they would take 640 MiB or more.
    #[cfg(target_os = "linux")]
    #[test]
    fn programs_that_do_not_compile_leave_no_memory_behind() {
        let in_use = || {
            let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
            pages.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        if let Some(_alone) = compiler() {
            let broken = format!("// {}\nundeclared;", "x".repeat(16 << 20));
            let refuse = |times: usize| (0..times).for_each(|_| assert!(compile(&broken, "sm_90").is_err()));
            refuse(5); // what the compiler keeps for itself
            let before = in_use();
            refuse(40);
            let more = in_use().saturating_sub(before) >> 20;
            assert!(more < 320, "{more} MiB more than before");
        }
    }
}
