//! Context-aware masking (Yu et al., ICASSP 2021, and Wang et al., Interspeech 2023): what a frame's surroundings say
//! about each channel.

use bregman_network::{CampPlusConfig, DenseLayer};
use bregman_tensor::{Activation, Backend, Tensor, View, ViewMut};

use crate::{Builder, Context, ConvLayer, InputGradient, Result};

const SEGMENT: usize = CampPlusConfig::SEGMENT;

/// `y = W x · sigmoid(W₂ relu(W₁ context(x) + b₁) + b₂)`; the context is the mean of all frames plus that of a segment
/// of 100, so the factors are computed once per segment.
///
/// # Shapes
/// x `[inputs, batch, 1, time]` → y `[outputs, batch, 1, time]`; factors `[outputs, batch · segments]`.
pub struct ContextMask<B: Backend> {
    local: ConvLayer,
    squeeze: ConvLayer,
    excite: ConvLayer,
    unmasked: Tensor<B>,
    context: Tensor<B>,
    hidden: Tensor<B>,
    gate: Tensor<B>,
}

impl<B: Backend> ContextMask<B> {
    /// W, W₁ and W₂.
    pub fn new(builder: &mut Builder<B>, specs: &DenseLayer) -> Result<Self> {
        Ok(Self {
            local: ConvLayer::new(builder, &specs.local)?,
            squeeze: ConvLayer::new(builder, &specs.squeeze)?,
            excite: ConvLayer::new(builder, &specs.excite)?,
            unmasked: Tensor::empty(builder.backend)?,
            context: Tensor::empty(builder.backend)?,
            hidden: Tensor::empty(builder.backend)?,
            gate: Tensor::empty(builder.backend)?,
        })
    }

    /// Fills `y`.
    pub fn forward(&mut self, ctx: &mut Context<B>, x: View<B>, y: ViewMut<B>) -> Result<()> {
        self.local.forward(ctx, x, &mut self.unmasked)?;
        self.context.resize(&ctx.backend, x.shape.per_segment(SEGMENT))?;
        ctx.backend.segment_context(x, SEGMENT, self.context.view_mut())?;
        self.squeeze.forward(ctx, self.context.view(), &mut self.hidden)?;
        ctx.backend.activate(Activation::Relu, self.hidden.view_mut())?;
        self.excite.forward(ctx, self.hidden.view(), &mut self.gate)?;
        ctx.backend.activate(Activation::Sigmoid, self.gate.view_mut())?;
        Ok(ctx.backend.segment_gate(self.unmasked.view(), self.gate.view(), SEGMENT, y)?)
    }

    /// Gradient to x.
    pub fn backward(&mut self, ctx: &mut Context<B>, x: View<B>, dy: View<B>, dx: &mut Tensor<B>) -> Result<()> {
        let (mut dgate, mut dunmasked) = (ctx.take(self.gate.shape())?, ctx.take(self.unmasked.shape())?);
        let (unmasked, gate) = (self.unmasked.view(), self.gate.view());
        ctx.backend.segment_gate_backward(unmasked, gate, dy, SEGMENT, dgate.view_mut(), dunmasked.view_mut())?;
        self.local.backward_products(ctx, x, dunmasked.view(), InputGradient::Into(dx.view_mut()))?;
        ctx.give(dunmasked);
        ctx.backend.activate_backward(Activation::Sigmoid, self.gate.view(), dgate.view_mut())?;
        let mut dhidden = ctx.take(self.hidden.shape())?;
        self.excite.backward(ctx, self.hidden.view(), dgate.view(), dhidden.view_mut())?;
        ctx.give(dgate);
        ctx.backend.activate_backward(Activation::Relu, self.hidden.view(), dhidden.view_mut())?;
        let mut dcontext = ctx.take(self.context.shape())?;
        self.squeeze.backward(ctx, self.context.view(), dhidden.view(), dcontext.view_mut())?;
        ctx.give(dhidden);
        ctx.backend.segment_context_backward(dcontext.view(), SEGMENT, dx.view_mut())?;
        ctx.give(dcontext);
        Ok(())
    }
}
