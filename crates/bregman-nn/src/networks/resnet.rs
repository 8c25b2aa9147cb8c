//! ResNet of basic blocks, forward and backward; [`ResNetConfig`] describes its layers.

use bregman_network::{Architecture, Deviation, Graph, ResNetConfig, ResNetLayers};
use bregman_tensor::{Backend, Shape, Tensor, View};

use crate::{BasicBlock, Builder, Context, ConvLayer, ConvNorm, InputGradient, Network, Result, TemporalStatistics};

/// The network.
///
/// # Shapes
/// x `[1, batch, features, time]` → `[embedding, batch]`.
pub struct ResNet<B: Backend> {
    architecture: Architecture,
    stem: ConvNorm<B>,
    blocks: Vec<BasicBlock<B>>,
    pool: TemporalStatistics<B>,
    linear: ConvLayer,
    output: Tensor<B>,
}

impl<B: Backend> ResNet<B> {
    /// A freshly initialised network for features of so many bins.
    pub fn new(builder: &mut Builder<B>, config: &ResNetConfig, features: usize) -> Result<Self> {
        let ResNetLayers { stem, blocks, linear, .. } = config.describe(features);
        Ok(Self {
            architecture: Architecture::new(features, *config),
            stem: ConvNorm::new(builder, &stem)?,
            blocks: blocks.iter().map(|block| BasicBlock::new(builder, block)).collect::<Result<_>>()?,
            pool: TemporalStatistics::new(builder, Deviation::Raised)?,
            linear: ConvLayer::new(builder, &linear)?,
            output: Tensor::empty(builder.backend)?,
        })
    }
}

impl<B: Backend> Network<B> for ResNet<B> {
    fn features(&self) -> usize {
        self.architecture.features
    }

    fn outputs(&self) -> usize {
        self.architecture.embedding()
    }

    fn input_shape(&self, batch: usize, frames: usize) -> Shape {
        Shape { channels: 1, batch, height: self.architecture.features, width: frames }
    }

    fn graph(&self) -> Option<Graph> {
        Some(self.architecture.graph())
    }

    fn forward(&mut self, ctx: &mut Context<B>, x: &Tensor<B>) -> Result<()> {
        self.stem.forward(ctx, x.view(), None)?;
        for i in 0..self.blocks.len() {
            let (before, rest) = self.blocks.split_at_mut(i);
            let input = before.last().map_or(self.stem.output(), BasicBlock::output);
            rest[0].forward(ctx, input.view())?;
        }
        let last = self.blocks.last().expect("a ResNet has blocks").output();
        self.pool.forward(ctx, last.view())?;
        self.linear.forward(ctx, self.pool.output().view(), &mut self.output)
    }

    fn output(&self) -> View<'_, B> {
        self.output.view()
    }

    fn backward(&mut self, ctx: &mut Context<B>, x: &Tensor<B>, doutput: View<B>) -> Result<()> {
        let mut dpooled = ctx.take(self.pool.output().shape())?;
        self.linear.backward(ctx, self.pool.output().view(), doutput, dpooled.view_mut())?;
        let last = self.blocks.last().expect("a ResNet has blocks").output();
        let mut d = ctx.take(last.shape())?;
        self.pool.backward(ctx, last.view(), dpooled.view(), &mut d)?;
        ctx.give(dpooled);
        for i in (0..self.blocks.len()).rev() {
            let (before, rest) = self.blocks.split_at_mut(i);
            let input = before.last().map_or(self.stem.output(), BasicBlock::output);
            let mut dx = ctx.take(input.shape())?;
            rest[0].backward(ctx, input.view(), &mut d, &mut dx)?;
            ctx.give(std::mem::replace(&mut d, dx));
        }
        self.stem.backward(ctx, x.view(), &mut d, None, InputGradient::Unused)?;
        ctx.give(d);
        Ok(())
    }
}
