//! Memory on the GPU, and copies between it and the host.

use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::device::{Device, driver};
use crate::{Error, Result};

/// A stretch of GPU memory, freed when dropped.
pub struct Buffer {
    device: Arc<Device>,
    pointer: sys::CUdeviceptr,
    bytes: usize,
}

impl Buffer {
    /// Zeroed memory. An empty buffer holds none.
    pub(super) fn zeros(device: &Arc<Device>, bytes: usize) -> Result<Self> {
        device.bind()?;
        let mut pointer = 0;
        if bytes > 0 {
            // SAFETY: the context is current; the new memory is ours until `drop`.
            unsafe {
                pointer = result::malloc_sync(bytes).map_err(driver)?;
                result::memset_d8_async(pointer, 0, bytes, device.stream()).map_err(driver)?;
            }
        }
        Ok(Self { device: device.clone(), pointer, bytes })
    }

    pub(super) fn pointer(&self) -> u64 {
        self.pointer
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies `from` to the start, after all work so far.
    pub(super) fn upload<T: bytemuck::Pod>(&mut self, from: &[T]) -> Result<()> {
        let (expected, got) = (self.bytes / size_of::<T>(), from.len());
        if got > expected {
            return Err(Error::Length { what: "upload", expected, got });
        }
        if got == 0 {
            return Ok(());
        }
        self.device.bind()?;
        // SAFETY: the buffer is large enough. From pageable memory the driver has read `from` when this returns.
        unsafe { result::memcpy_htod_async(self.pointer, from, self.device.stream()) }.map_err(driver)
    }

    /// Copies the start to `to`, and waits.
    pub(super) fn download<T: bytemuck::Pod>(&self, to: &mut [T]) -> Result<()> {
        let (expected, got) = (self.bytes / size_of::<T>(), to.len());
        if got > expected {
            return Err(Error::Length { what: "download", expected, got });
        }
        if got == 0 {
            return Ok(());
        }
        self.device.bind()?;
        // SAFETY: the buffer is large enough, and we wait before `to` is used.
        unsafe { result::memcpy_dtoh_async(to, self.pointer, self.device.stream()) }.map_err(driver)?;
        self.device.wait()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.bytes > 0 && self.device.bind().is_ok() {
            // SAFETY: allocated in `zeros`, freed once; the driver waits for work that still uses it. A failure here has been reported
            // by the work that caused it.
            let _ = unsafe { result::free_sync(self.pointer) };
        }
    }
}

/// A buffer that grows to what is asked of it; its contents do not survive.
pub(super) struct Scratch(Option<Buffer>);

impl Scratch {
    pub(super) const fn new() -> Self {
        Self(None)
    }

    pub(super) fn at_least(&mut self, device: &Arc<Device>, bytes: usize) -> Result<&mut Buffer> {
        if self.0.as_ref().is_none_or(|buffer| buffer.bytes() < bytes) {
            self.0 = None; // free the old one first
            self.0 = Some(Buffer::zeros(device, bytes)?);
        }
        Ok(self.0.as_mut().expect("was just filled"))
    }
}
