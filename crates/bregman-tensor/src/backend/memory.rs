//! Memory on a device, and copies between it and the host.

use crate::{Block, Result, Shape, View, ViewMut};

/// What a buffer is for, so that a backend can choose its number format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Weights, gradients of weights, statistics, duals: always f32.
    Exact,
    /// Activations with one position, such as embeddings and gates, and their gradients.
    Vector,
    /// Activations with many positions and their gradients: f32, or narrower where the backend computes in mixed
    /// precision.
    Map,
}

impl Storage {
    /// How an activation of this shape is stored.
    pub fn of(shape: Shape) -> Self {
        if shape.positions() == 1 { Self::Vector } else { Self::Map }
    }
}

/// Arrays on a device.
pub trait DeviceMemory: Sized + Send + Sync + 'static {
    /// An array on the device.
    type Buffer: Send + Sync;
    /// What the device derives from a weight to multiply faster: its non-zeros compressed, a bf16 copy, nothing.
    type Copies: Default + Send + Sync;
    /// Values on their way to the host.
    type Late: Send;

    /// A zeroed array.
    fn alloc(&self, len: usize, storage: Storage) -> Result<Self::Buffer>;
    /// Memory that one value takes.
    fn bytes_per_value(&self, storage: Storage) -> usize;
    /// Copies f32 values to the first `from.len()` places of an exact buffer.
    fn upload(&self, from: &[f32], to: &mut Self::Buffer) -> Result<()>;
    /// Copies the first `to.len()` values of an exact buffer back.
    fn download(&self, from: &Self::Buffer, to: &mut [f32]) -> Result<()>;
    /// Begins to copy the first `len` values of an exact buffer back, as they are after all work so far: for
    /// [`DeviceMemory::arrived`], which waits for them alone and not for work that came later.
    fn read_later(&self, from: &Self::Buffer, len: usize) -> Result<Self::Late>;
    /// The values that were asked for, after waiting for them.
    fn arrived(&self, late: Self::Late) -> Result<Vec<f32>>;
    /// Fills an activation from values in `[batch, channels, height, width]` order.
    fn write(&self, from: &[f32], to: ViewMut<Self>) -> Result<()>;
    /// Fills an activation from frames: values in `[batch, width, features]` order, where a feature is a channel of a
    /// signal or a height of a one-channel map.
    fn write_frames(&self, from: &[f32], to: ViewMut<Self>) -> Result<()>;
    /// As [`DeviceMemory::write_frames`], on a copy stream where the device has one: the copy overlaps with work
    /// launched earlier, which must not use `to`. Work launched later waits for it.
    fn write_frames_ahead(&self, from: &[f32], to: ViewMut<Self>) -> Result<()> {
        self.write_frames(from, to)
    }
    /// Reads an activation into `[batch, channels, height, width]` order.
    fn read(&self, from: View<Self>, to: &mut [f32]) -> Result<()>;
    /// Brings the copies of a weight up to date; to be called after every change of its values or its mask, see
    /// [`Weight`](super::Weight).
    fn refresh(
        &self,
        value: &Self::Buffer,
        mask: Option<&Self::Buffer>,
        block: Block,
        copies: &mut Self::Copies,
    ) -> Result<()>;
    /// As [`DeviceMemory::refresh`] after a change in which the mask stayed, or without a mask every zero: what is
    /// known of their places may stay.
    fn refresh_support(
        &self,
        value: &Self::Buffer,
        mask: Option<&Self::Buffer>,
        block: Block,
        copies: &mut Self::Copies,
    ) -> Result<()> {
        self.refresh(value, mask, block, copies)
    }
}
