//! ECAPA-TDNN (Desplanques, Thienpondt and Demuynck, Interspeech 2020), layer for layer and name for name as
//! WeSpeaker's `ECAPA_TDNN`.

use bregman_tensor::{Activation, Backend, Relu, Shape, Tensor, View};

use crate::layers::tdnn::{ConvReluNorm, SeRes2Block};
use crate::{AttentiveStatistics, Builder, Context, ConvLayer, Error, InputGradient, Network, NormLayer, Result};

/// The size of an ECAPA-TDNN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EcapaConfig {
    /// Channels of the frame layers: 512 and 1024 are usual.
    pub channels: usize,
    /// Filterbank bins.
    pub features: usize,
    /// Size of the embedding.
    pub embedding: usize,
    /// Whether the attention sees the utterance's statistics ("GLOB").
    pub global_context: bool,
}

impl Default for EcapaConfig {
    /// ECAPA-TDNN GLOB C1024: 14.66 M parameters.
    fn default() -> Self {
        Self { channels: 1024, features: 80, embedding: 192, global_context: true }
    }
}

/// Channels of the last frame layer, whatever the width of the others.
const FRAME_CHANNELS: usize = 1536;
/// Hidden units of the attention.
const ATTENTION: usize = 128;

/// The network.
///
/// # Shapes
/// x `[features, batch, 1, time]` → `[embedding, batch]`.
pub struct Ecapa<B: Backend> {
    config: EcapaConfig,
    layer1: ConvReluNorm<B>,
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
    /// A freshly initialised network.
    pub fn new(builder: &mut Builder<B>, config: EcapaConfig) -> Result<Self> {
        let EcapaConfig { channels, features, embedding, global_context } = config;
        let must = |fine: bool, field, value, expected| {
            if fine { Ok(()) } else { Err(Error::Config { field, value, expected }) }
        };
        must(channels >= 8 && channels.is_multiple_of(8), "channels", channels, "a positive multiple of 8")?;
        must(features > 0, "features", features, "at least 1")?;
        must(embedding > 0, "embedding", embedding, "at least 1")?;
        Ok(Self {
            config,
            layer1: ConvReluNorm::new(builder, "layer1", features, channels, 5)?,
            blocks: [
                SeRes2Block::new(builder, "layer2", channels, 3, 2)?,
                SeRes2Block::new(builder, "layer3", channels, 3, 3)?,
                SeRes2Block::new(builder, "layer4", channels, 3, 4)?,
            ],
            aggregate: ConvLayer::conv1d(builder, "conv", &[channels; 3], FRAME_CHANNELS, 1, 1)?,
            pool: AttentiveStatistics::new(builder, "pool", FRAME_CHANNELS, ATTENTION, global_context)?,
            norm: NormLayer::new(builder, "bn", 2 * FRAME_CHANNELS, Relu::Absent)?,
            linear: ConvLayer::linear(builder, "linear", 2 * FRAME_CHANNELS, embedding)?,
            frames: Tensor::empty(builder.backend)?,
            normed: Tensor::empty(builder.backend)?,
            output: Tensor::empty(builder.backend)?,
        })
    }
}

impl<B: Backend> Network<B> for Ecapa<B> {
    fn features(&self) -> usize {
        self.config.features
    }

    fn outputs(&self) -> usize {
        self.config.embedding
    }

    fn input_shape(&self, batch: usize, frames: usize) -> Shape {
        Shape::signal(self.config.features, batch, frames)
    }

    fn forward(&mut self, ctx: &mut Context<B>, x: &Tensor<B>) -> Result<()> {
        self.layer1.forward(ctx, x.view())?;
        let [b2, b3, b4] = &mut self.blocks;
        b2.forward(ctx, self.layer1.output().view())?;
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
        let mut d = ctx.take(self.layer1.output().shape())?;
        for i in (0..3).rev() {
            let output = self.blocks[i].output().view();
            self.aggregate.backward_weight(ctx, i, output, dframes.view())?;
            self.aggregate.backward_input(ctx, i, dframes.view(), i < 2, d.view_mut())?;
            let (before, rest) = self.blocks.split_at_mut(i);
            let input = before.last().map_or(self.layer1.output(), SeRes2Block::output);
            rest[0].backward(ctx, input.view(), &mut d)?;
        }
        ctx.give(dframes);
        self.layer1.backward(ctx, x.view(), &mut d, InputGradient::Unused)?;
        ctx.give(d);
        Ok(())
    }
}
