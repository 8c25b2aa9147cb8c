//! A layer of our own, written against the backend.

use bregman::{Param, Role};
use bregman_nn::{Builder, Context, ParamId, Result};
use bregman_tensor::{Activation, Backend, Conv, OutputStart, Tensor, View};

/// `y = x + W · relu(x)` at every frame.
///
/// # Shapes
/// x, y `[channels, batch, 1, time]`, W `[channels, channels, 1]`.
pub(crate) struct Mixing<B: Backend> {
    weight: ParamId,
    positive: Tensor<B>,
    output: Tensor<B>,
}

impl<B: Backend> Mixing<B> {
    /// `name.weight`, which the optimizer may make sparse, as its role says.
    pub(crate) fn new(builder: &mut Builder<B>, name: &str, channels: usize) -> Result<Self> {
        let param = Param::new(format!("{name}.weight"), [channels, channels, 1], Role::ConvWeight);
        Ok(Self {
            weight: builder.weight(param, &[channels], 1, 1.0 / (channels as f32).sqrt())?,
            positive: Tensor::empty(builder.backend)?,
            output: Tensor::empty(builder.backend)?,
        })
    }

    /// Fills [`Mixing::output`].
    pub(crate) fn forward(&mut self, ctx: &Context<B>, x: View<B>) -> Result<()> {
        let backend = &ctx.backend;
        self.positive.resize(backend, x.shape)?;
        backend.copy(x, self.positive.view_mut())?;
        backend.activate(Activation::Relu, self.positive.view_mut())?;
        self.output.resize(backend, x.shape)?;
        backend.copy(x, self.output.view_mut())?;
        let weight = ctx.params.get(self.weight).weight(0);
        backend.conv_forward(
            &Conv::POINTWISE,
            self.positive.view(),
            weight,
            OutputStart::Keep,
            self.output.view_mut(),
        )?;
        Ok(())
    }

    /// What the last forward pass made.
    pub(crate) fn output(&self) -> &Tensor<B> {
        &self.output
    }

    /// `dW = dy · relu(x)ᵀ`; `d` holds dy and becomes `dx = dy + relu′(x) · Wᵀ dy`.
    pub(crate) fn backward(&mut self, ctx: &mut Context<B>, d: &mut Tensor<B>) -> Result<()> {
        let mut through = ctx.take(d.shape())?;
        let (backend, parameter) = (&ctx.backend, ctx.params.get_mut(self.weight));
        let (positive, weight) = (self.positive.view(), parameter.weight(0));
        backend.conv_backward_input(&Conv::POINTWISE, weight, d.view(), false, through.view_mut())?;
        backend.activate_backward(Activation::Relu, positive, through.view_mut())?;
        let block = parameter.block(0);
        backend.conv_backward_weight(&Conv::POINTWISE, positive, d.view(), block, &mut parameter.grad)?;
        backend.accumulate(through.view(), d.view_mut())?;
        ctx.give(through);
        Ok(())
    }
}
