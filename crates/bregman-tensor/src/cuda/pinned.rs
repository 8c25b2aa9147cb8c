//! Pinned (page-locked) memory on the host: copies between it and the GPU go on while the host does something else.

use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{result, sys};

use super::driver::{allocation, driver};
use super::gpu::Gpu;
use super::{DeviceBuffer, Event};
use crate::Result;

/// Values on the host and what they are on the GPU, copied from one to the other without waiting.
pub(super) struct Mirrored<T> {
    host: *mut T,
    len: usize,
    pub(super) device: DeviceBuffer,
    /// When the last copy is done; until then the host's side is left alone.
    copied: Event,
    values: PhantomData<T>,
}

// SAFETY: the memory belongs to this value alone.
unsafe impl<T: Send> Send for Mirrored<T> {}
// SAFETY: as above; it is read through `&self` only after waiting for the copies.
unsafe impl<T: Sync> Sync for Mirrored<T> {}

impl<T: Pod> Mirrored<T> {
    /// Zeros on the GPU.
    pub(super) fn new(gpu: &Arc<Gpu>, len: usize) -> Result<Self> {
        let bytes = len.max(1) * size_of::<T>();
        let device = DeviceBuffer::zeros(gpu, bytes)?;
        let copied = Event::new(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
        // SAFETY: the context is current; the memory is released in `drop`.
        let host: *mut T = unsafe { result::malloc_host(bytes, 0) }.map_err(allocation(bytes))?.cast();
        // SAFETY: it is this large, and a `Pod` may be all zeros.
        unsafe { host.write_bytes(0, len) };
        Ok(Self { host, len, device, copied, values: PhantomData })
    }

    /// Copies these values to the GPU, in order with other work.
    pub(super) fn upload(&mut self, gpu: &Gpu, values: impl ExactSizeIterator<Item = T>) -> Result<()> {
        assert_eq!(values.len(), self.len, "mirrored values");
        gpu.bind()?;
        self.copied.wait()?;
        // SAFETY: the memory is ours and this large, and no copy uses it now that the event is over.
        let host = unsafe { std::slice::from_raw_parts_mut(self.host, self.len) };
        host.iter_mut().zip(values).for_each(|(to, value)| *to = value);
        // SAFETY: both sides are this large; the host's side is left alone until the event is over.
        unsafe { result::memcpy_htod_async(self.device.pointer(), host, gpu.stream()) }.map_err(driver)?;
        self.copied.record(gpu.stream())
    }

    /// Begins to copy the GPU's values to the host, in order with other work.
    pub(super) fn begin_download(&self, gpu: &Gpu) -> Result<()> {
        gpu.bind()?;
        self.copied.wait()?;
        // SAFETY: as in `upload`; `downloaded`, the only reader, waits for the event.
        let host = unsafe { std::slice::from_raw_parts_mut(self.host, self.len) };
        // SAFETY: as in `upload`.
        unsafe { result::memcpy_dtoh_async(host, self.device.pointer(), gpu.stream()) }.map_err(driver)?;
        self.copied.record(gpu.stream())
    }

    /// What was copied to the host last, after waiting for it.
    pub(super) fn downloaded(&self) -> Result<&[T]> {
        self.copied.wait()?;
        // SAFETY: the memory is ours and this large, initialised in `new`, and no copy writes it any more.
        Ok(unsafe { std::slice::from_raw_parts(self.host, self.len) })
    }
}

impl<T> Drop for Mirrored<T> {
    fn drop(&mut self) {
        let _ = self.copied.wait(); // errors on the way out have nobody to go to
        // SAFETY: made in `new`, released once, after the last copy.
        let _ = unsafe { result::free_host(self.host.cast()) };
    }
}

/// Values on their way from the GPU to the host.
pub struct LateValues {
    host: *mut f32,
    capacity: usize,
    len: usize,
    /// When they are there.
    copied: Event,
}

// SAFETY: the memory belongs to this value alone.
unsafe impl Send for LateValues {}

impl LateValues {
    /// Room for this many.
    pub(super) fn new(gpu: &Gpu, capacity: usize) -> Result<Self> {
        gpu.bind()?;
        let copied = Event::new(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
        let bytes = capacity.max(1) * 4;
        // SAFETY: the context is current; the memory is released in `drop`.
        let host: *mut f32 = unsafe { result::malloc_host(bytes, 0) }.map_err(allocation(bytes))?.cast();
        // SAFETY: it is this large.
        unsafe { host.write_bytes(0, capacity) };
        Ok(Self { host, capacity, len: 0, copied })
    }

    pub(super) fn fits(&self, len: usize) -> bool {
        self.capacity >= len
    }

    /// Begins the copy, after all work so far.
    ///
    /// # Safety
    /// `len` values must be there on the GPU until they have arrived.
    pub(super) unsafe fn begin(&mut self, gpu: &Gpu, from: u64, len: usize) -> Result<()> {
        assert!(self.fits(len), "room for late values");
        gpu.bind()?;
        self.copied.wait()?;
        self.len = len;
        // SAFETY: the memory is ours and large enough, and no copy writes it now that the event is over.
        let host = unsafe { std::slice::from_raw_parts_mut(self.host, len) };
        // SAFETY: `wait`, the only reader, waits for the event; the rest is the caller's promise.
        unsafe { result::memcpy_dtoh_async(host, from, gpu.stream()) }.map_err(driver)?;
        self.copied.record(gpu.stream())
    }

    /// The values, after waiting for them.
    pub(super) fn wait(&self) -> Result<Vec<f32>> {
        self.copied.wait()?;
        // SAFETY: the memory is ours, initialised in `new`, and no copy writes it any more.
        Ok(unsafe { std::slice::from_raw_parts(self.host, self.len) }.to_vec())
    }
}

impl Drop for LateValues {
    fn drop(&mut self) {
        let _ = self.copied.wait(); // errors on the way out have nobody to go to
        // SAFETY: made in `new`, released once, after the last copy.
        let _ = unsafe { result::free_host(self.host.cast()) };
    }
}
