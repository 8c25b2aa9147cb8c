//! The block of ECAPA-TDNN (Desplanques, Thienpondt and Demuynck, Interspeech 2020), in WeSpeaker's order: conv, ReLU,
//! BN.

use bregman_network::SeRes2Layers;
use bregman_tensor::{Backend, Tensor, View};

use crate::{Builder, Context, ConvNorm, InputGradient, Res2, Result, SqueezeExcite};

/// SE-Res2Block: `y = x + se(f₂(res2(f₀(x))))` with 1×1 convolutions f.
///
/// # Shapes
/// x, y `[channels, batch, 1, time]`.
pub struct SeRes2Block<B: Backend> {
    first: ConvNorm<B>,
    res2: Res2<B>,
    last: ConvNorm<B>,
    se: SqueezeExcite<B>,
    output: Tensor<B>,
}

impl<B: Backend> SeRes2Block<B> {
    /// A freshly initialised block.
    pub fn new(builder: &mut Builder<B>, specs: &SeRes2Layers) -> Result<Self> {
        Ok(Self {
            first: ConvNorm::new(builder, &specs.first)?,
            res2: Res2::new(builder, specs)?,
            last: ConvNorm::new(builder, &specs.last)?,
            se: SqueezeExcite::new(builder, &specs.squeeze, &specs.excite)?,
            output: Tensor::empty(builder.backend)?,
        })
    }

    /// Fills [`SeRes2Block::output`].
    pub fn forward(&mut self, ctx: &mut Context<B>, x: View<B>) -> Result<()> {
        self.first.forward(ctx, x, None)?;
        self.res2.forward(ctx, self.first.output())?;
        self.last.forward(ctx, self.res2.output().view(), None)?;
        self.output.resize(&ctx.backend, x.shape)?;
        self.se.forward(ctx, self.last.output().view(), x, self.output.view_mut())
    }

    /// What the last forward pass made.
    pub fn output(&self) -> &Tensor<B> {
        &self.output
    }

    /// `d` holds dy and becomes dx: the residual's share is there already.
    pub fn backward(&mut self, ctx: &mut Context<B>, x: View<B>, d: &mut Tensor<B>) -> Result<()> {
        let mut inner = ctx.take(x.shape)?;
        let mut other = ctx.take(x.shape)?;
        self.se.backward(ctx, self.last.output().view(), d.view(), inner.view_mut())?;
        self.last.backward(ctx, self.res2.output().view(), &mut inner, None, InputGradient::Into(other.view_mut()))?;
        self.res2.backward(ctx, self.first.output(), &other, &mut inner)?;
        self.first.backward(ctx, x, &mut inner, None, InputGradient::Onto(d.view_mut()))?;
        ctx.give(other);
        ctx.give(inner);
        Ok(())
    }
}
