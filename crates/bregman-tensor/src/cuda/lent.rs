//! Optimizer steps on GPU memory that somebody else owns, such as the tensors of PyTorch.

use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::driver::driver;
use super::gpu::Gpu;
use super::{DeviceArrays, DeviceBuffer};
use crate::Result;

/// A GPU in its primary context, which every library of a process shares that uses CUDA's runtime: their addresses are
/// valid here.
pub struct StepDevice {
    device: Arc<Gpu>,
    /// When the work of another stream is done.
    given: sys::CUevent,
}

// SAFETY: events may be used from any thread.
unsafe impl Send for StepDevice {}
// SAFETY: as above.
unsafe impl Sync for StepDevice {}

impl StepDevice {
    /// Opens GPU number `ordinal`.
    ///
    /// # Errors
    /// As [`Cuda::open`](super::Cuda::open).
    pub fn open(ordinal: usize) -> Result<Self> {
        let device = Arc::new(Gpu::open(ordinal)?);
        let given = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).map_err(driver)?;
        Ok(Self { device, given })
    }

    /// Memory of `floats` values at an address, as a buffer that does not free it.
    ///
    /// # Safety
    /// It must stay allocated, and nobody else may use it, from [`StepDevice::begin_after`] to [`StepDevice::finish`]
    /// of every step that the buffer is used in. The address must be a multiple of 16.
    pub unsafe fn lend(&self, address: u64, floats: usize) -> DeviceBuffer {
        DeviceBuffer::lent(&self.device, address, 4 * floats)
    }

    /// The arrays of an optimizer (dual, first and second moment of every tensor) where they are; those that the rule
    /// does not keep are empty.
    pub fn arrays(&self, tensors: Vec<[DeviceBuffer; 3]>) -> DeviceArrays {
        DeviceArrays::over(&self.device, tensors)
    }

    /// Lets later work wait for all that a stream of this context was given so far.
    ///
    /// # Errors
    /// A lost device.
    ///
    /// # Safety
    /// `stream` must be a stream of this GPU's primary context, or 0 for its default stream.
    pub unsafe fn begin_after(&self, stream: u64) -> Result<()> {
        self.device.bind()?;
        // SAFETY: the event is ours, the stream alive by the caller's promise.
        unsafe {
            result::event::record(self.given, stream as sys::CUstream).map_err(driver)?;
            result::stream::wait_event(self.device.stream(), self.given, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)
                .map_err(driver)
        }
    }

    /// Waits until all work so far is done.
    ///
    /// # Errors
    /// Whatever went wrong in that work.
    pub fn finish(&self) -> Result<()> {
        self.device.wait()
    }
}

impl Drop for StepDevice {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: created in `open`, destroyed once. An error on the way out has nobody to go to.
            let _ = unsafe { result::event::destroy(self.given) };
        }
    }
}
