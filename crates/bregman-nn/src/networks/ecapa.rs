//! ECAPA-TDNN, forward and backward; [`EcapaConfig`] describes its layers.

use bregman_network::{Architecture, EcapaConfig, EcapaLayers, Graph};
use bregman_tensor::{Activation, Backend, Relu, Shape, Tensor, View};

use crate::{
    AttentiveStatistics, Builder, Context, ConvLayer, ConvNorm, InputGradient, Network, NormLayer, Result, SeRes2Block,
};

/// The network.
///
/// # Shapes
/// x `[features, batch, 1, time]` → `[embedding, batch]`.
pub struct Ecapa<B: Backend> {
    architecture: Architecture,
    first: ConvNorm<B>,
    blocks: [SeRes2Block<B>; 3],
    aggregate: ConvLayer,
    pool: AttentiveStatistics<B>,
    norm: NormLayer,
    linear: ConvLayer,
    frames: Tensor<B>,
    normed: Tensor<B>,
    output: Tensor<B>,
}

impl<B: Backend> Ecapa<B> {
    /// A freshly initialised network for features of so many bins.
    pub fn new(builder: &mut Builder<B>, config: &EcapaConfig, features: usize) -> Result<Self> {
        let EcapaLayers { first, blocks: [b2, b3, b4], aggregate, attention, linear } = config.describe(features);
        let first = ConvNorm::new(builder, &first)?;
        let blocks =
            [SeRes2Block::new(builder, &b2)?, SeRes2Block::new(builder, &b3)?, SeRes2Block::new(builder, &b4)?];
        let aggregate = ConvLayer::new(builder, &aggregate)?;
        let pool = AttentiveStatistics::new(builder, &attention)?;
        let norm = linear.norm_before().expect("the pooled statistics are normalised");
        Ok(Self {
            architecture: Architecture::new(features, *config),
            first,
            blocks,
            aggregate,
            pool,
            norm: NormLayer::new(builder, norm, linear.inputs[0], Relu::Absent)?,
            linear: ConvLayer::new(builder, &linear)?,
            frames: Tensor::empty(builder.backend)?,
            normed: Tensor::empty(builder.backend)?,
            output: Tensor::empty(builder.backend)?,
        })
    }
}

impl<B: Backend> Network<B> for Ecapa<B> {
    fn features(&self) -> usize {
        self.architecture.features
    }

    fn outputs(&self) -> usize {
        self.architecture.embedding()
    }

    fn input_shape(&self, batch: usize, frames: usize) -> Shape {
        Shape::signal(self.architecture.features, batch, frames)
    }

    fn graph(&self) -> Option<Graph> {
        Some(self.architecture.graph())
    }

    fn forward(&mut self, ctx: &mut Context<B>, x: &Tensor<B>) -> Result<()> {
        self.first.forward(ctx, x.view(), None)?;
        let [b2, b3, b4] = &mut self.blocks;
        b2.forward(ctx, self.first.output().view())?;
        b3.forward(ctx, b2.output().view())?;
        b4.forward(ctx, b3.output().view())?;
        self.aggregate.forward_all(
            ctx,
            &[b2.output().view(), b3.output().view(), b4.output().view()],
            &mut self.frames,
        )?;
        ctx.backend.activate(Activation::Relu, self.frames.view_mut())?;
        self.pool.forward(ctx, self.frames.view())?;
        self.normed.resize(&ctx.backend, self.pool.output().shape())?;
        self.norm.forward(ctx, self.pool.output().view(), None, self.normed.view_mut())?;
        self.linear.forward(ctx, self.normed.view(), &mut self.output)
    }

    fn output(&self) -> View<'_, B> {
        self.output.view()
    }

    fn backward(&mut self, ctx: &mut Context<B>, x: &Tensor<B>, doutput: View<B>) -> Result<()> {
        let mut dpooled = ctx.take(self.normed.shape())?;
        self.linear.backward(ctx, self.normed.view(), doutput, dpooled.view_mut())?;
        self.norm.backward(ctx, self.pool.output().view(), self.normed.view(), dpooled.view_mut(), None, None)?;
        let mut dframes = ctx.take(self.frames.shape())?;
        self.pool.backward(ctx, self.frames.view(), dpooled.view(), &mut dframes)?;
        ctx.give(dpooled);
        ctx.backend.activate_backward(Activation::Relu, self.frames.view(), dframes.view_mut())?;

        // each block's output feeds the aggregation and the next block
        self.aggregate.backward_bias(ctx, dframes.view())?;
        let mut d = ctx.take(self.first.output().shape())?;
        for i in (0..3).rev() {
            let output = self.blocks[i].output().view();
            self.aggregate.backward_weight(ctx, i, output, dframes.view())?;
            self.aggregate.backward_input(ctx, i, dframes.view(), i < 2, d.view_mut())?;
            let (before, rest) = self.blocks.split_at_mut(i);
            let input = before.last().map_or(self.first.output(), SeRes2Block::output);
            rest[0].backward(ctx, input.view(), &mut d)?;
        }
        ctx.give(dframes);
        self.first.backward(ctx, x.view(), &mut d, None, InputGradient::Unused)?;
        ctx.give(d);
        Ok(())
    }
}
