//! The driver: whether a GPU can be used, and what its errors mean.

use cudarc::driver::sys::{self, CUdevice_attribute};
use cudarc::driver::{DriverError, result};
use cudarc::nvrtc;

use super::program::compiler_version;
use crate::{Error, Result};

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

/// The newest CUDA that the driver supports, if it tells.
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
