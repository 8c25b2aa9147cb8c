//! ResNet of basic blocks, forward and backward; [`ResNetConfig`] describes its layers.

use bregman_network::{Architecture, BasicBlockLayers, Graph, ResNetConfig, ResNetLayers};
use bregman_tensor::{Backend, Shape, Tensor, View};

use crate::{Builder, Context, ConvLayer, ConvNorm, InputGradient, Network, Result, TemporalStatistics};

/// `y = relu(bn₂(conv₂(relu(bn₁(conv₁(x))))) + shortcut(x))`; the shortcut is a strided 1×1 convolution with BN where
/// the shape changes.
///
/// # Shapes
/// x `[inputs, batch, height, time]` → y `[outputs, batch, height / stride, time / stride]`, rounded up.
struct BasicBlock<B: Backend> {
    first: ConvNorm<B>,
    second: ConvNorm<B>,
    shortcut: Option<ConvNorm<B>>,
}

impl<B: Backend> BasicBlock<B> {
    fn new(builder: &mut Builder<B>, specs: &BasicBlockLayers) -> Result<Self> {
        Ok(Self {
            first: ConvNorm::new(builder, &specs.first)?,
            second: ConvNorm::new(builder, &specs.second)?,
            shortcut: specs.shortcut.as_ref().map(|spec| ConvNorm::new(builder, spec)).transpose()?,
        })
    }

    fn output(&self) -> &Tensor<B> {
        self.second.output()
    }

    fn forward(&mut self, ctx: &mut Context<B>, x: View<B>) -> Result<()> {
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
    fn backward(&mut self, ctx: &mut Context<B>, x: View<B>, d: &mut Tensor<B>, dx: &mut Tensor<B>) -> Result<()> {
        let mut dmiddle = ctx.take(d.shape())?;
        let middle = self.first.output().view();
        match &mut self.shortcut {
            Some(shortcut) => {
                let mut dresidual = ctx.take(d.shape())?;
                self.second.backward(ctx, middle, d, Some(&mut dresidual), InputGradient::Into(dmiddle.view_mut()))?;
                shortcut.backward(ctx, x, &mut dresidual, None, InputGradient::Into(dx.view_mut()))?;
                ctx.give(dresidual);
            }
            None => self.second.backward(ctx, middle, d, Some(dx), InputGradient::Into(dmiddle.view_mut()))?,
        }
        self.first.backward(ctx, x, &mut dmiddle, None, InputGradient::Onto(dx.view_mut()))?;
        ctx.give(dmiddle);
        Ok(())
    }
}

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
            pool: TemporalStatistics::new(builder)?,
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
