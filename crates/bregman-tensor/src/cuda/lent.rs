//! Optimizer steps on GPU memory that somebody else owns, such as the tensors of PyTorch.

use std::sync::Arc;

use super::gpu::Gpu;
use super::{DeviceArrays, DeviceBuffer};
use crate::Result;

/// A GPU in its primary context, which every library of a process shares that uses CUDA's runtime: their addresses are
/// valid here.
pub struct StepDevice(Arc<Gpu>);

impl StepDevice {
    /// Opens GPU number `ordinal`.
    ///
    /// # Errors
    /// As [`Cuda::open`](super::Cuda::open).
    pub fn open(ordinal: usize) -> Result<Self> {
        Ok(Self(Arc::new(Gpu::open(ordinal)?)))
    }

    /// Memory of `floats` values at an address, as a buffer that does not free it.
    ///
    /// # Safety
    /// It must stay allocated, in the order of the stream that is followed, in every step that the buffer is used in.
    /// The address must be a multiple of 16.
    pub unsafe fn lend(&self, address: u64, floats: usize) -> DeviceBuffer {
        DeviceBuffer::lent(&self.0, address, 4 * floats)
    }

    /// The arrays of an optimizer (dual, first and second moment of every tensor) where they are; those that the rule
    /// does not keep are empty.
    pub fn arrays(&self, tensors: Vec<[DeviceBuffer; 3]>) -> DeviceArrays {
        DeviceArrays::over(&self.0, tensors)
    }

    /// Puts all later work into this stream, in order with what its owner puts there.
    ///
    /// # Safety
    /// `stream` must be a stream of this GPU's primary context, or 0 for its default stream, and stay alive until
    /// another one is followed.
    pub unsafe fn follow(&self, stream: u64) {
        // SAFETY: the caller's promise.
        unsafe { self.0.follow(stream) }
    }
}
