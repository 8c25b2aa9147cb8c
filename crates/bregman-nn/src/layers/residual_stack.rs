//! A convolution and residual blocks after it: the two-dimensional part of ResNet and of CAM++.

use bregman_network::{BasicBlockLayers, LayerSpec};
use bregman_tensor::{Backend, Tensor, View};

use crate::{BasicBlock, Builder, Context, ConvNorm, InputGradient, Result};

/// A stem and the blocks after it, each on the output of the one before.
///
/// # Shapes
/// x `[1, batch, features, time]` → `[channels, batch, features / strides, time / strides]`.
pub struct ResidualStack<B: Backend> {
    stem: ConvNorm<B>,
    blocks: Vec<BasicBlock<B>>,
}

impl<B: Backend> ResidualStack<B> {
    /// Freshly initialised.
    pub fn new(builder: &mut Builder<B>, stem: &LayerSpec, blocks: &[BasicBlockLayers]) -> Result<Self> {
        Ok(Self {
            stem: ConvNorm::new(builder, stem)?,
            blocks: blocks.iter().map(|block| BasicBlock::new(builder, block)).collect::<Result<_>>()?,
        })
    }

    /// Fills [`ResidualStack::output`].
    pub fn forward(&mut self, ctx: &mut Context<B>, x: View<B>) -> Result<()> {
        self.stem.forward(ctx, x, None)?;
        let mut input = self.stem.output();
        for block in &mut self.blocks {
            block.forward(ctx, input.view())?;
            input = block.output();
        }
        Ok(())
    }

    /// That of the last block.
    pub fn output(&self) -> &Tensor<B> {
        self.blocks.last().map_or(self.stem.output(), BasicBlock::output)
    }

    /// Adds the gradients of the parameters; `d` is that of the output. x is data and gets none.
    pub fn backward(&mut self, ctx: &mut Context<B>, x: View<B>, mut d: Tensor<B>) -> Result<()> {
        for i in (0..self.blocks.len()).rev() {
            let (before, rest) = self.blocks.split_at_mut(i);
            let input = before.last().map_or(self.stem.output(), BasicBlock::output);
            let mut dx = ctx.take(input.shape())?;
            rest[0].backward(ctx, input.view(), &mut d, &mut dx)?;
            ctx.give(std::mem::replace(&mut d, dx));
        }
        self.stem.backward(ctx, x, &mut d, None, InputGradient::Unused)?;
        ctx.give(d);
        Ok(())
    }
}
