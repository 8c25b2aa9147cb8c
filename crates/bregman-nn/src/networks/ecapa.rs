//! ECAPA-TDNN, forward and backward; [`EcapaLayers`] are those of WeSpeaker's or of SpeechBrain's.

use std::ops::RangeInclusive;

use bregman_network::{Architecture, EcapaLayers, Graph};
use bregman_tensor::{Activation, Backend, Relu, Shape, Tensor, View};

use crate::layers::conv_norm::norm_after;
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
    aggregate_norm: Option<AggregateNorm<B>>,
    pool: AttentiveStatistics<B>,
    norm: NormLayer,
    linear: ConvLayer,
    frames: Tensor<B>,
    normed: Tensor<B>,
    output: Tensor<B>,
}

/// The norm of the aggregated blocks, and what it reads.
struct AggregateNorm<B: Backend> {
    norm: NormLayer,
    sums: Tensor<B>,
}

impl<B: Backend> Ecapa<B> {
    /// A freshly initialised network with the layers of its architecture.
    pub fn new(builder: &mut Builder<B>, architecture: Architecture, layers: EcapaLayers) -> Result<Self> {
        let EcapaLayers { first, blocks: [b2, b3, b4], aggregate, attention, linear } = layers;
        let first = ConvNorm::new(builder, &first)?;
        let blocks =
            [SeRes2Block::new(builder, &b2)?, SeRes2Block::new(builder, &b3)?, SeRes2Block::new(builder, &b4)?];
        let norm = aggregate.norm_after().is_some();
        let (aggregate, aggregate_spec) = (ConvLayer::new(builder, &aggregate)?, aggregate);
        let aggregate_norm = if norm {
            Some(AggregateNorm { norm: norm_after(builder, &aggregate_spec)?, sums: Tensor::empty(builder.backend)? })
        } else {
            None
        };
        let pool = AttentiveStatistics::new(builder, &attention)?;
        let norm = linear.norm_before().expect("the pooled statistics are normalised");
        Ok(Self {
            architecture,
            first,
            blocks,
            aggregate,
            aggregate_norm,
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

    fn frames(&self) -> RangeInclusive<usize> {
        self.architecture.fewest_frames()..=usize::MAX
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
        let blocks = [b2.output().view(), b3.output().view(), b4.output().view()];
        if let Some(AggregateNorm { norm, sums }) = &mut self.aggregate_norm {
            self.aggregate.forward_all(ctx, &blocks, sums)?;
            self.frames.resize(&ctx.backend, sums.shape())?;
            norm.forward(ctx, sums.view(), None, self.frames.view_mut())?;
        } else {
            self.aggregate.forward_all(ctx, &blocks, &mut self.frames)?;
            ctx.backend.activate(Activation::Relu, self.frames.view_mut())?;
        }
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
        let relu_alone = self.aggregate_norm.is_none(); // a norm has its own
        self.pool.backward(ctx, self.frames.view(), dpooled.view(), relu_alone, &mut dframes)?;
        ctx.give(dpooled);
        let frames = self.frames.view();
        if let Some(AggregateNorm { norm, sums }) = &self.aggregate_norm {
            norm.backward(ctx, sums.view(), frames, dframes.view_mut(), None, self.aggregate.bias())?;
        } else {
            self.aggregate.backward_bias(ctx, dframes.view())?;
        }

        // each block's output feeds the aggregation and the next block
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
