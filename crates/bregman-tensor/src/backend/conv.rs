//! Convolutions and linear layers, forward and backward.

use super::DeviceMemory;
use crate::{Block, Conv, Result, View, ViewMut};

/// A weight as a kernel reads it: the f32 values and whatever the backend derived from them in
/// [`DeviceMemory::refresh`].
pub struct Weight<'a, B: DeviceMemory> {
    /// Row-major values of the whole matrix.
    pub value: &'a B::Buffer,
    /// Where this is not zero, values may be other than zero; without a mask, where they are.
    pub mask: Option<&'a B::Buffer>,
    /// The columns meant.
    pub block: Block,
    /// Compressed or converted copies of this block.
    pub copies: &'a B::Copies,
}

impl<'a, B: DeviceMemory> Weight<'a, B> {
    /// Where this is not zero, passes on the support have gradients.
    pub fn support(&self) -> &'a B::Buffer {
        self.mask.unwrap_or(self.value)
    }
}

impl<B: DeviceMemory> Clone for Weight<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: DeviceMemory> Copy for Weight<'_, B> {}

/// What the output of a convolution holds before the products are added.
pub enum OutputStart<'a, B: DeviceMemory> {
    /// Nothing: the output is overwritten.
    Zero,
    /// One value per output channel.
    Bias(&'a B::Buffer),
    /// What is there already.
    Keep,
}

/// Convolutions with weights in f32, or in what [`DeviceMemory::refresh`] made of them.
pub trait Convolution: DeviceMemory {
    /// `y = start + w ∗ x`
    fn conv_forward(
        &self,
        conv: &Conv,
        x: View<Self>,
        w: Weight<Self>,
        start: OutputStart<Self>,
        y: ViewMut<Self>,
    ) -> Result<()>;
    /// `dx = wᵀ ∗ dy`, or adds that.
    fn conv_backward_input(
        &self,
        conv: &Conv,
        w: Weight<Self>,
        dy: View<Self>,
        add: bool,
        dx: ViewMut<Self>,
    ) -> Result<()>;
    /// `dw = dy ∗ x` in the columns of `block`, for zero weights too: they wake up by it.
    fn conv_backward_weight(
        &self,
        conv: &Conv,
        x: View<Self>,
        dy: View<Self>,
        block: Block,
        dw: &mut Self::Buffer,
    ) -> Result<()>;
    /// As [`Convolution::conv_backward_weight`] for the weights that are not zero alone: `dw` is 0 where `w` is.
    fn conv_backward_support(
        &self,
        conv: &Conv,
        x: View<Self>,
        dy: View<Self>,
        w: Weight<Self>,
        dw: &mut Self::Buffer,
    ) -> Result<()>;
    /// `db[c] = Σ dy[c, …]`
    fn conv_backward_bias(&self, dy: View<Self>, db: &mut Self::Buffer) -> Result<()>;
}
