//! Pooling over time that counts all frames alike.

use bregman_network::Deviation;
use bregman_tensor::{Backend, Shape, Spread, Tensor, View};

use super::attentive::spread;
use crate::{Builder, Context, Result};

/// Temporal statistics pooling: mean and standard deviation over time of every channel and frequency.
///
/// # Shapes
/// x `[channels, batch, height, time]` → `[2 · channels · height, batch]`.
pub struct TemporalStatistics<B: Backend> {
    spread: Spread,
    output: Tensor<B>,
}

impl<B: Backend> TemporalStatistics<B> {
    /// It has no parameters.
    pub fn new(builder: &Builder<B>, deviation: Deviation) -> Result<Self> {
        Ok(Self { spread: spread(deviation), output: Tensor::empty(builder.backend)? })
    }

    /// Fills [`TemporalStatistics::output`].
    pub fn forward(&mut self, ctx: &Context<B>, x: View<B>) -> Result<()> {
        self.output.resize(&ctx.backend, Shape::vector(2 * x.shape.channels * x.shape.height, x.shape.batch))?;
        Ok(ctx.backend.moments_forward(x, self.spread, self.output.view_mut())?)
    }

    /// What the last forward pass made.
    pub fn output(&self) -> &Tensor<B> {
        &self.output
    }

    /// Gradient to x.
    pub fn backward(&self, ctx: &Context<B>, x: View<B>, dy: View<B>, dx: &mut Tensor<B>) -> Result<()> {
        Ok(ctx.backend.moments_backward(x, self.output.view(), dy, self.spread, false, dx.view_mut())?)
    }
}
