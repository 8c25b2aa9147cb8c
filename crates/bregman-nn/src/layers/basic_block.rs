//! The block of ResNet18 and ResNet34 (He et al., CVPR 2016).

use bregman_network::BasicBlockLayers;
use bregman_tensor::{Backend, Tensor, View};

use crate::{Builder, Context, ConvNorm, InputGradient, Result};

/// `y = relu(bn₂(conv₂(relu(bn₁(conv₁(x))))) + shortcut(x))`; the shortcut is a strided 1×1 convolution with BN where
/// the shape changes.
///
/// # Shapes
/// x `[inputs, batch, height, time]` → y `[outputs, batch, height / stride, time / stride]`, rounded up; the stride may
/// be along one axis only.
pub struct BasicBlock<B: Backend> {
    first: ConvNorm<B>,
    second: ConvNorm<B>,
    shortcut: Option<ConvNorm<B>>,
}

impl<B: Backend> BasicBlock<B> {
    /// A freshly initialised block.
    pub fn new(builder: &mut Builder<B>, specs: &BasicBlockLayers) -> Result<Self> {
        Ok(Self {
            first: ConvNorm::new(builder, &specs.first)?,
            second: ConvNorm::new(builder, &specs.second)?,
            shortcut: specs.shortcut.as_ref().map(|spec| ConvNorm::new(builder, spec)).transpose()?,
        })
    }

    /// What the last forward pass made.
    pub fn output(&self) -> &Tensor<B> {
        self.second.output()
    }

    /// Fills [`BasicBlock::output`].
    pub fn forward(&mut self, ctx: &mut Context<B>, x: View<B>) -> Result<()> {
        self.first.forward(ctx, x, None)?;
        let residual = match &mut self.shortcut {
            Some(shortcut) => {
                shortcut.forward(ctx, x, None)?;
                shortcut.output().view()
            }
            None => x,
        };
        self.second.forward(ctx, self.first.output().view(), Some(residual))
    }

    /// `d` holds dy; it is used up.
    pub fn backward(&mut self, ctx: &mut Context<B>, x: View<B>, d: &mut Tensor<B>, dx: &mut Tensor<B>) -> Result<()> {
        let mut dmiddle = ctx.take(d.shape())?;
        let middle = self.first.output().view();
        match &mut self.shortcut {
            Some(shortcut) => {
                let mut dresidual = ctx.take(d.shape())?;
                self.second.backward(ctx, middle, d, Some(&mut dresidual), InputGradient::Into(dmiddle.view_mut()))?;
                self.first.backward(ctx, x, &mut dmiddle, None, InputGradient::Into(dx.view_mut()))?;
                // the shortcut reads one position in four: its gradient is the one that is quickly added
                shortcut.backward(ctx, x, &mut dresidual, None, InputGradient::Onto(dx.view_mut()))?;
                ctx.give(dresidual);
            }
            None => {
                self.second.backward(ctx, middle, d, Some(dx), InputGradient::Into(dmiddle.view_mut()))?;
                self.first.backward(ctx, x, &mut dmiddle, None, InputGradient::Onto(dx.view_mut()))?;
            }
        }
        ctx.give(dmiddle);
        Ok(())
    }
}
