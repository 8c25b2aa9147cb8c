//! A network of our own: a convolution with batch norm, our [`Mixing`] layer, statistics over time, class scores.

use bregman_network::{Deviation, LayerSpec, Pointwise};
use bregman_nn::{Builder, Context, ConvLayer, ConvNorm, InputGradient, Network, Result, TemporalStatistics};
use bregman_tensor::{Backend, Shape, Tensor, View};

use crate::mixing::Mixing;

/// From frames to class scores.
///
/// # Shapes
/// x `[features, batch, 1, time]` → `[classes, batch]`.
pub(crate) struct SweepNetwork<B: Backend> {
    features: usize,
    classes: usize,
    conv: ConvNorm<B>,
    mixing: Mixing<B>,
    pool: TemporalStatistics<B>,
    linear: ConvLayer,
    output: Tensor<B>,
}

impl<B: Backend> SweepNetwork<B> {
    /// A freshly initialised network.
    pub(crate) fn new(builder: &mut Builder<B>, features: usize, channels: usize, classes: usize) -> Result<Self> {
        let conv =
            LayerSpec::conv1d("conv", [features], channels, 5, 1).after([Pointwise::norm("norm"), Pointwise::Relu]);
        Ok(Self {
            features,
            classes,
            conv: ConvNorm::new(builder, &conv)?,
            mixing: Mixing::new(builder, "mixing", channels)?,
            pool: TemporalStatistics::new(builder, Deviation::Raised)?,
            linear: ConvLayer::new(builder, &LayerSpec::linear("linear", 2 * channels, classes))?,
            output: Tensor::empty(builder.backend)?,
        })
    }
}

impl<B: Backend> Network<B> for SweepNetwork<B> {
    fn features(&self) -> usize {
        self.features
    }

    fn outputs(&self) -> usize {
        self.classes
    }

    fn input_shape(&self, batch: usize, frames: usize) -> Shape {
        Shape::signal(self.features, batch, frames)
    }

    fn forward(&mut self, ctx: &mut Context<B>, x: &Tensor<B>) -> Result<()> {
        self.conv.forward(ctx, x.view(), None)?;
        self.mixing.forward(ctx, self.conv.output().view())?;
        self.pool.forward(ctx, self.mixing.output().view())?;
        self.linear.forward(ctx, self.pool.output().view(), &mut self.output)
    }

    fn output(&self) -> View<'_, B> {
        self.output.view()
    }

    fn backward(&mut self, ctx: &mut Context<B>, x: &Tensor<B>, doutput: View<B>) -> Result<()> {
        let mut dpooled = ctx.take(self.pool.output().shape())?;
        self.linear.backward(ctx, self.pool.output().view(), doutput, dpooled.view_mut())?;
        let mut d = ctx.take(self.mixing.output().shape())?;
        self.pool.backward(ctx, self.mixing.output().view(), dpooled.view(), &mut d)?;
        ctx.give(dpooled);
        self.mixing.backward(ctx, &mut d)?;
        self.conv.backward(ctx, x.view(), &mut d, None, InputGradient::Unused)?;
        ctx.give(d);
        Ok(())
    }
}
