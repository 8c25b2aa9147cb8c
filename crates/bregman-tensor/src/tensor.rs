//! Activations on a device: an owner, and views of some of its channels, so that splitting and concatenating channels
//! copies nothing.

use std::ops::Range;

use crate::{DeviceMemory, Result, Shape, Storage};

/// An owned activation. Its memory is kept when it shrinks, so steady training does not allocate.
pub struct Tensor<B: DeviceMemory> {
    data: B::Buffer,
    shape: Shape,
    capacity: usize,
}

impl<B: DeviceMemory> Tensor<B> {
    /// Nothing yet; [`Tensor::resize`] gives it a shape.
    pub fn empty(backend: &B) -> Result<Self> {
        Ok(Self { data: backend.alloc(0, Storage::Map)?, shape: Shape::default(), capacity: 0 })
    }

    /// Gives it this shape. The values are unspecified afterwards: whoever resizes, writes.
    pub fn resize(&mut self, backend: &B, shape: Shape) -> Result<()> {
        let bytes = Self::bytes(backend, shape);
        if bytes > self.capacity {
            self.data = backend.alloc(shape.len(), Storage::of(shape))?;
            self.capacity = bytes;
        }
        self.shape = shape;
        Ok(())
    }

    /// The shape last given.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Memory that a tensor of this shape takes.
    pub fn bytes(backend: &B, shape: Shape) -> usize {
        shape.len() * backend.bytes_per_value(Storage::of(shape))
    }

    /// How many bytes fit without allocating.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// All channels.
    pub fn view(&self) -> View<'_, B> {
        self.channels(0..self.shape.channels)
    }

    /// All channels, to write.
    pub fn view_mut(&mut self) -> ViewMut<'_, B> {
        self.channels_mut(0..self.shape.channels)
    }

    /// Some channels.
    pub fn channels(&self, range: Range<usize>) -> View<'_, B> {
        assert!(range.end <= self.shape.channels, "channels {range:?} of {:?}", self.shape);
        View {
            data: &self.data,
            first: range.start,
            of: self.shape.channels,
            shape: self.shape.with_channels(range.len()),
        }
    }

    /// Some channels, to write.
    pub fn channels_mut(&mut self, range: Range<usize>) -> ViewMut<'_, B> {
        assert!(range.end <= self.shape.channels, "channels {range:?} of {:?}", self.shape);
        ViewMut {
            data: &mut self.data,
            first: range.start,
            of: self.shape.channels,
            shape: self.shape.with_channels(range.len()),
        }
    }
}

/// Channels `first .. first + shape.channels` of a tensor with `of` channels.
pub struct View<'a, B: DeviceMemory> {
    /// The whole tensor's memory.
    pub data: &'a B::Buffer,
    /// First channel seen.
    pub first: usize,
    /// Channels of the whole tensor.
    pub of: usize,
    /// The shape seen.
    pub shape: Shape,
}

impl<B: DeviceMemory> Clone for View<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: DeviceMemory> Copy for View<'_, B> {}

/// As [`View`], to write.
pub struct ViewMut<'a, B: DeviceMemory> {
    /// The whole tensor's memory.
    pub data: &'a mut B::Buffer,
    /// First channel seen.
    pub first: usize,
    /// Channels of the whole tensor.
    pub of: usize,
    /// The shape seen.
    pub shape: Shape,
}
