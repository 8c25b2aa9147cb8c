//! What a network is to the code that trains it.

pub(crate) mod ecapa;
pub(crate) mod mlp;
pub(crate) mod resnet;

use std::ops::RangeInclusive;

use bregman_tensor::{Backend, Shape, Tensor, View};

use crate::{Context, Result};

/// From a batch of features to one vector per item.
pub trait Network<B: Backend>: Send {
    /// Feature values per frame.
    fn features(&self) -> usize;
    /// Values of the output vector.
    fn outputs(&self) -> usize;
    /// How `batch` items of `frames` × features are laid out as an activation.
    fn input_shape(&self, batch: usize, frames: usize) -> Shape;
    /// How many frames an item may have.
    fn frames(&self) -> RangeInclusive<usize> {
        1..=usize::MAX
    }
    /// Keeps what the backward pass needs, and the output.
    fn forward(&mut self, ctx: &mut Context<B>, x: &Tensor<B>) -> Result<()>;
    /// `[outputs, batch]` of the last forward pass.
    fn output(&self) -> View<'_, B>;
    /// Gradients of all parameters from that of the output, for the last forward pass, which was a training one.
    fn backward(&mut self, ctx: &mut Context<B>, x: &Tensor<B>, doutput: View<B>) -> Result<()>;
}
