//! ResNet of basic blocks, forward and backward; [`ResNetConfig`] describes its layers.

use bregman_network::{Architecture, Graph, ResNetConfig, ResNetLayers};
use bregman_tensor::constants::POOL_EPSILON;
use bregman_tensor::{Backend, Shape, Tensor, View};

use crate::{Builder, Context, ConvLayer, Network, ResidualStack, Result, TemporalStatistics};

/// The network.
///
/// # Shapes
/// x `[1, batch, features, time]` → `[embedding, batch]`.
pub struct ResNet<B: Backend> {
    architecture: Architecture,
    maps: ResidualStack<B>,
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
            maps: ResidualStack::new(builder, &stem, &blocks)?,
            pool: TemporalStatistics::new(builder, POOL_EPSILON)?,
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
        self.maps.forward(ctx, x.view())?;
        self.pool.forward(ctx, self.maps.output().view())?;
        self.linear.forward(ctx, self.pool.output().view(), &mut self.output)
    }

    fn output(&self) -> View<'_, B> {
        self.output.view()
    }

    fn backward(&mut self, ctx: &mut Context<B>, x: &Tensor<B>, doutput: View<B>) -> Result<()> {
        let mut dpooled = ctx.take(self.pool.output().shape())?;
        self.linear.backward(ctx, self.pool.output().view(), doutput, dpooled.view_mut())?;
        let mut d = ctx.take(self.maps.output().shape())?;
        self.pool.backward(ctx, self.maps.output().view(), dpooled.view(), &mut d)?;
        ctx.give(dpooled);
        self.maps.backward(ctx, x.view(), d)
    }
}
