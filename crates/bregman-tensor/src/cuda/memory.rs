//! Memory on the GPU, and copies between it and the host.

use std::sync::Arc;

use cudarc::driver::{result, sys};
use rayon::prelude::*;

use super::driver::{allocation, driver};
use super::event::Event;
use super::gpu::Gpu;
use crate::{Error, Result};

/// A stretch of GPU memory, freed when dropped unless it is lent.
pub struct DeviceBuffer {
    device: Arc<Gpu>,
    pointer: sys::CUdeviceptr,
    bytes: usize,
    lent: bool,
}

impl DeviceBuffer {
    /// Zeroed memory. An empty buffer holds none.
    pub(super) fn zeros(device: &Arc<Gpu>, bytes: usize) -> Result<Self> {
        device.bind()?;
        if bytes == 0 {
            return Ok(Self { device: device.clone(), pointer: 0, bytes, lent: false });
        }
        device.count_allocation();
        // SAFETY: the context is current; the new memory is ours until `drop`, also where zeroing it fails.
        let pointer = unsafe { result::malloc_sync(bytes) }.map_err(allocation(bytes))?;
        let buffer = Self { device: device.clone(), pointer, bytes, lent: false };
        // SAFETY: the memory is this large.
        unsafe { result::memset_d8_async(pointer, 0, bytes, device.stream()) }.map_err(driver)?;
        device.wait()?; // either stream may use it from now on
        Ok(buffer)
    }

    /// Memory of somebody else.
    pub(super) fn lent(device: &Arc<Gpu>, pointer: u64, bytes: usize) -> Self {
        Self { device: device.clone(), pointer, bytes, lent: true }
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

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if self.bytes > 0 && !self.lent && self.device.bind().is_ok() {
            self.device.count_allocation();
            // SAFETY: allocated in `zeros`, freed once; the driver waits for work that still uses it. A failure here
            // has been reported by the work that caused it.
            let _ = unsafe { result::free_sync(self.pointer) };
        }
    }
}

/// Pinned (page-locked) memory on the host: the GPU reads it at the full speed of the bus, and the host does not wait.
pub(super) struct Staging {
    pointer: *mut f32,
    capacity: usize,
    /// When the last copy from here is done.
    copied: Event,
}

// SAFETY: the memory belongs to this value alone; events may be used from any thread.
unsafe impl Send for Staging {}

/// Values that one task copies.
const CHUNK: usize = 1 << 16;

impl Staging {
    /// For `capacity` values.
    pub(super) fn new(device: &Gpu, capacity: usize) -> Result<Self> {
        device.bind()?;
        let copied = Event::new(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
        // SAFETY: the context is current; the memory is released in `drop`.
        let pointer = unsafe { result::malloc_host(capacity * 4, 0) }.map_err(allocation(capacity * 4))?.cast();
        Ok(Self { pointer, capacity, copied })
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Copies `from` to `to`, after all work so far of the stream; returns when `from` has been read.
    pub(super) fn upload(
        &mut self,
        device: &Gpu,
        stream: sys::CUstream,
        from: &[f32],
        to: &mut DeviceBuffer,
    ) -> Result<()> {
        assert!(from.len() <= self.capacity && from.len() * 4 <= to.bytes, "staging");
        device.bind()?;
        self.copied.wait()?;
        // SAFETY: the memory is ours, large enough, and no copy reads from it any more now that the event is over.
        let host = unsafe { std::slice::from_raw_parts_mut(self.pointer, from.len()) };
        host.par_chunks_mut(CHUNK).zip(from.par_chunks(CHUNK)).for_each(|(to, from)| to.copy_from_slice(from));
        // SAFETY: `to` is large enough; `host` is left alone until the event is over.
        unsafe { result::memcpy_htod_async(to.pointer, host, stream) }.map_err(driver)?;
        self.copied.record(stream)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = self.copied.wait(); // errors on the way out have nobody to go to
        // SAFETY: made in `new`, released once, after the last copy.
        let _ = unsafe { result::free_host(self.pointer.cast()) };
    }
}

impl Scratch {
    /// The buffer filled from the host through pinned memory, which is kept in `staging`.
    pub(super) fn filled(
        &mut self,
        device: &Arc<Gpu>,
        stream: sys::CUstream,
        staging: &mut Option<Staging>,
        from: &[f32],
    ) -> Result<&mut DeviceBuffer> {
        if staging.as_ref().is_none_or(|staging| staging.capacity() < from.len()) {
            *staging = None; // free the old one first
            *staging = Some(Staging::new(device, from.len())?);
        }
        let buffer = self.at_least(device, from.len() * 4)?;
        staging.as_mut().expect("was just made").upload(device, stream, from, buffer)?;
        Ok(buffer)
    }
}

/// A buffer that grows to what is asked of it; its contents do not survive.
pub(super) struct Scratch(Option<DeviceBuffer>);

impl Scratch {
    pub(super) const fn new() -> Self {
        Self(None)
    }

    pub(super) fn at_least(&mut self, device: &Arc<Gpu>, bytes: usize) -> Result<&mut DeviceBuffer> {
        if self.0.as_ref().is_none_or(|buffer| buffer.bytes() < bytes) {
            self.0 = None; // free the old one first
            self.0 = Some(DeviceBuffer::zeros(device, bytes)?);
        }
        Ok(self.0.as_mut().expect("was just filled"))
    }
}
