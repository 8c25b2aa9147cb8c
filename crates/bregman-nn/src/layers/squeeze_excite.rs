//! Squeeze-excitation (Hu, Shen and Sun, CVPR 2018).

use bregman_network::LayerSpec;
use bregman_tensor::{Activation, Backend, Shape, Tensor, View, ViewMut};

use crate::{Builder, Context, ConvLayer, Result};

/// Squeeze-excitation with the residual around it: `y = residual + sigmoid(W₂ relu(W₁ mean(x) + b₁) + b₂) · x`.
///
/// # Shapes
/// x, residual, y `[channels, batch, 1, time]`; the gate `[channels, batch]`.
pub struct SqueezeExcite<B: Backend> {
    squeeze: ConvLayer,
    excite: ConvLayer,
    mean: Tensor<B>,
    hidden: Tensor<B>,
    gate: Tensor<B>,
}

impl<B: Backend> SqueezeExcite<B> {
    /// W₁ and W₂.
    pub fn new(builder: &mut Builder<B>, squeeze: &LayerSpec, excite: &LayerSpec) -> Result<Self> {
        Ok(Self {
            squeeze: ConvLayer::new(builder, squeeze)?,
            excite: ConvLayer::new(builder, excite)?,
            mean: Tensor::empty(builder.backend)?,
            hidden: Tensor::empty(builder.backend)?,
            gate: Tensor::empty(builder.backend)?,
        })
    }

    /// Fills `y`.
    pub fn forward(&mut self, ctx: &mut Context<B>, x: View<B>, residual: View<B>, y: ViewMut<B>) -> Result<()> {
        self.mean.resize(&ctx.backend, Shape::vector(x.shape.channels, x.shape.batch))?;
        ctx.backend.mean_forward(x, self.mean.view_mut())?;
        self.squeeze.forward(ctx, self.mean.view(), &mut self.hidden)?;
        ctx.backend.activate(Activation::Relu, self.hidden.view_mut())?;
        self.excite.forward(ctx, self.hidden.view(), &mut self.gate)?;
        ctx.backend.activate(Activation::Sigmoid, self.gate.view_mut())?;
        Ok(ctx.backend.gate_forward(x, self.gate.view(), residual, y)?)
    }

    /// Gradient to x; the residual's is dy itself.
    pub fn backward(&mut self, ctx: &mut Context<B>, x: View<B>, dy: View<B>, dx: ViewMut<B>) -> Result<()> {
        let mut dgate = ctx.take(self.gate.shape())?;
        ctx.backend.gate_backward_gate(x, dy, dgate.view_mut())?;
        ctx.backend.activate_backward(Activation::Sigmoid, self.gate.view(), dgate.view_mut())?;
        let mut dhidden = ctx.take(self.hidden.shape())?;
        self.excite.backward(ctx, self.hidden.view(), dgate.view(), dhidden.view_mut())?;
        ctx.backend.activate_backward(Activation::Relu, self.hidden.view(), dhidden.view_mut())?;
        let mut dmean = dgate; // of the same shape, and used up
        self.squeeze.backward(ctx, self.mean.view(), dhidden.view(), dmean.view_mut())?;
        ctx.backend.gate_backward_input(self.gate.view(), dmean.view(), dy, dx)?;
        ctx.give(dhidden);
        ctx.give(dmean);
        Ok(())
    }
}
