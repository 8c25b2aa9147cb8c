//! CAM++, forward and backward; [`CampPlusConfig`] describes its layers.

use bregman_network::{Architecture, CampPlusConfig, CampPlusHead, CampPlusLayers, Graph};
use bregman_tensor::{Backend, Relu, Shape, Tensor, View};

use crate::{
    Builder, Context, ConvNorm, DenseBlock, InputGradient, Network, NormLayer, ResidualStack, Result,
    TemporalStatistics,
};

/// The network.
///
/// # Shapes
/// x `[1, batch, features, time]` → `[embedding, batch]`.
pub struct CampPlus<B: Backend> {
    architecture: Architecture,
    head: Head<B>,
    first: ConvNorm<B>,
    blocks: [DenseBlock<B>; 3],
    norm: NormLayer,
    frames: Tensor<B>,
    pool: TemporalStatistics<B>,
    linear: ConvNorm<B>,
}

/// The two-dimensional head: x `[1, batch, features, time]` → `[channels, batch, features / 8, time]`.
struct Head<B: Backend> {
    maps: ResidualStack<B>,
    last: ConvNorm<B>,
}

impl<B: Backend> CampPlus<B> {
    /// A freshly initialised network for features of so many bins.
    pub fn new(builder: &mut Builder<B>, config: &CampPlusConfig, features: usize) -> Result<Self> {
        let CampPlusLayers { head, first, blocks, linear } = config.describe(features);
        let [b1, b2, b3] = &blocks;
        let norm = b3.transit.norm_after().expect("the frames to pool are normalised");
        Ok(Self {
            architecture: Architecture::new(features, *config),
            head: Head::new(builder, &head)?,
            first: ConvNorm::of_rows(builder, &first, features / 8)?,
            blocks: [DenseBlock::new(builder, b1)?, DenseBlock::new(builder, b2)?, DenseBlock::new(builder, b3)?],
            norm: NormLayer::new(builder, norm, b3.transit.outputs, Relu::After)?,
            frames: Tensor::empty(builder.backend)?,
            pool: TemporalStatistics::new(builder, 0.0)?,
            linear: ConvNorm::new(builder, &linear)?,
        })
    }
}

impl<B: Backend> Network<B> for CampPlus<B> {
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
        self.head.forward(ctx, x)?;
        self.first.forward(ctx, self.head.last.output().view(), None)?;
        let [b1, b2, b3] = &mut self.blocks;
        b1.forward(ctx, self.first.output().view())?;
        b2.forward(ctx, b1.output().view())?;
        b3.forward(ctx, b2.output().view())?;
        self.frames.resize(&ctx.backend, b3.output().shape())?;
        self.norm.forward(ctx, b3.output().view(), None, self.frames.view_mut())?;
        self.pool.forward(ctx, self.frames.view())?;
        self.linear.forward(ctx, self.pool.output().view(), None)
    }

    fn output(&self) -> View<'_, B> {
        self.linear.output().view()
    }

    fn backward(&mut self, ctx: &mut Context<B>, x: &Tensor<B>, doutput: View<B>) -> Result<()> {
        let mut dembedding = ctx.take(doutput.shape)?;
        ctx.backend.copy(doutput, dembedding.view_mut())?;
        let mut dpooled = ctx.take(self.pool.output().shape())?;
        let pooled = self.pool.output().view();
        self.linear.backward(ctx, pooled, &mut dembedding, None, InputGradient::Into(dpooled.view_mut()))?;
        ctx.give(dembedding);
        let mut d = ctx.take(self.frames.shape())?;
        self.pool.backward(ctx, self.frames.view(), dpooled.view(), &mut d)?;
        ctx.give(dpooled);
        let [b1, b2, b3] = &mut self.blocks;
        self.norm.backward(ctx, b3.output().view(), self.frames.view(), d.view_mut(), None, None)?;
        for (block, input) in [(b3, b2.output().shape()), (b2, b1.output().shape()), (b1, self.first.output().shape())]
        {
            let mut dx = ctx.take(input)?;
            block.backward(ctx, d.view(), &mut dx)?;
            ctx.give(std::mem::replace(&mut d, dx));
        }
        let maps = self.head.last.output();
        let mut dmaps = ctx.take(maps.shape())?;
        self.first.backward(ctx, maps.view(), &mut d, None, InputGradient::Into(dmaps.view_mut()))?;
        ctx.give(d);
        self.head.backward(ctx, x, dmaps)
    }
}

impl<B: Backend> Head<B> {
    fn new(builder: &mut Builder<B>, specs: &CampPlusHead) -> Result<Self> {
        Ok(Self {
            maps: ResidualStack::new(builder, &specs.stem, &specs.blocks)?,
            last: ConvNorm::new(builder, &specs.last)?,
        })
    }

    fn forward(&mut self, ctx: &mut Context<B>, x: &Tensor<B>) -> Result<()> {
        self.maps.forward(ctx, x.view())?;
        self.last.forward(ctx, self.maps.output().view(), None)
    }

    /// `d` is the gradient of its output.
    fn backward(&mut self, ctx: &mut Context<B>, x: &Tensor<B>, mut d: Tensor<B>) -> Result<()> {
        let maps = self.maps.output();
        let mut dmaps = ctx.take(maps.shape())?;
        self.last.backward(ctx, maps.view(), &mut d, None, InputGradient::Into(dmaps.view_mut()))?;
        ctx.give(d);
        self.maps.backward(ctx, x.view(), dmaps)
    }
}
