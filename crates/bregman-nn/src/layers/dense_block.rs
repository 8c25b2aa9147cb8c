//! Densely connected frame layers (D-TDNN: Yu and Li, Interspeech 2020), each with a context-aware mask.

use bregman_network::{DenseBlockLayers, DenseLayer, LayerSpec};
use bregman_tensor::{Backend, Relu, Tensor, View};

use crate::{Builder, Context, ContextMask, ConvLayer, ConvNorm, Error, InputGradient, NormLayer, Result};

/// Each layer reads the channels of the input and of all layers before it, and adds its own behind them; a pointwise
/// layer halves them all.
///
/// # Shapes
/// x `[inputs, batch, 1, time]` → y `[(inputs + layers · growth) / 2, batch, 1, time]`.
pub struct DenseBlock<B: Backend> {
    inputs: usize,
    layers: Vec<DenseUnit<B>>,
    /// The input, then what each layer adds.
    frames: Tensor<B>,
    before: NormRelu<B>,
    transit: ConvLayer,
    output: Tensor<B>,
}

impl<B: Backend> DenseBlock<B> {
    /// A freshly initialised block. What comes after its last layer is the caller's.
    pub fn new(builder: &mut Builder<B>, specs: &DenseBlockLayers) -> Result<Self> {
        let inputs = specs.layers.first().map_or(0, |layer| layer.first.inputs[0]);
        Ok(Self {
            inputs,
            layers: specs.layers.iter().map(|layer| DenseUnit::new(builder, layer)).collect::<Result<_>>()?,
            frames: Tensor::empty(builder.backend)?,
            before: NormRelu::new(builder, &specs.transit)?,
            transit: ConvLayer::new(builder, &specs.transit)?,
            output: Tensor::empty(builder.backend)?,
        })
    }

    /// Fills [`DenseBlock::output`].
    pub fn forward(&mut self, ctx: &mut Context<B>, x: View<B>) -> Result<()> {
        let growth: usize = self.layers.iter().map(|layer| layer.outputs).sum();
        self.frames.resize(&ctx.backend, x.shape.with_channels(self.inputs + growth))?;
        ctx.backend.copy(x, self.frames.channels_mut(0..self.inputs))?;
        for layer in &mut self.layers {
            layer.forward(ctx, &mut self.frames)?;
        }
        self.before.forward(ctx, self.frames.view())?;
        self.transit.forward(ctx, self.before.output.view(), &mut self.output)
    }

    /// What the last forward pass made.
    pub fn output(&self) -> &Tensor<B> {
        &self.output
    }

    /// Gradient to x from dy.
    pub fn backward(&mut self, ctx: &mut Context<B>, dy: View<B>, dx: &mut Tensor<B>) -> Result<()> {
        let mut d = ctx.take(self.frames.shape())?;
        let input = self.before.output.view();
        self.transit.backward_products(ctx, input, dy, InputGradient::Into(d.view_mut()))?;
        self.before.backward(ctx, self.frames.view(), &mut d)?;
        for layer in self.layers.iter_mut().rev() {
            layer.backward(ctx, &self.frames, &mut d)?;
        }
        ctx.backend.copy(d.channels(0..self.inputs), dx.view_mut())?;
        ctx.give(d);
        Ok(())
    }
}

/// `y = mask(bn_relu(W bn_relu(x)))`, from the first `inputs` channels of a tensor to those behind them.
struct DenseUnit<B: Backend> {
    inputs: usize,
    outputs: usize,
    before: NormRelu<B>,
    first: ConvNorm<B>,
    mask: ContextMask<B>,
}

impl<B: Backend> DenseUnit<B> {
    fn new(builder: &mut Builder<B>, specs: &DenseLayer) -> Result<Self> {
        Ok(Self {
            inputs: specs.first.inputs[0],
            outputs: specs.local.outputs,
            before: NormRelu::new(builder, &specs.first)?,
            first: ConvNorm::new(builder, &specs.first)?,
            mask: ContextMask::new(builder, specs)?,
        })
    }

    fn forward(&mut self, ctx: &mut Context<B>, frames: &mut Tensor<B>) -> Result<()> {
        self.before.forward(ctx, frames.channels(0..self.inputs))?;
        self.first.forward(ctx, self.before.output.view(), None)?;
        let y = frames.channels_mut(self.inputs..self.inputs + self.outputs);
        self.mask.forward(ctx, self.first.output().view(), y)
    }

    /// Adds the gradient to the inputs to what is in `d` already: other layers read them, too.
    fn backward(&mut self, ctx: &mut Context<B>, frames: &Tensor<B>, d: &mut Tensor<B>) -> Result<()> {
        let mut dmiddle = ctx.take(self.first.output().shape())?;
        let dy = d.channels(self.inputs..self.inputs + self.outputs);
        self.mask.backward(ctx, self.first.output().view(), dy, &mut dmiddle)?;
        let mut dx = ctx.take(self.before.output.shape())?;
        let input = self.before.output.view();
        self.first.backward(ctx, input, &mut dmiddle, None, InputGradient::Into(dx.view_mut()))?;
        ctx.give(dmiddle);
        self.before.backward(ctx, frames.channels(0..self.inputs), &mut dx)?;
        ctx.backend.accumulate(dx.view(), d.channels_mut(0..self.inputs))?;
        ctx.give(dx);
        Ok(())
    }
}

/// `y = relu(bn(x))` in front of a layer.
struct NormRelu<B: Backend> {
    norm: NormLayer,
    output: Tensor<B>,
}

impl<B: Backend> NormRelu<B> {
    fn new(builder: &mut Builder<B>, layer: &LayerSpec) -> Result<Self> {
        let missing = || Error::Layer { layer: layer.name.clone(), problem: "needs a norm and a ReLU before it" };
        let norm = layer.norm_before_relu().ok_or_else(missing)?;
        Ok(Self {
            norm: NormLayer::new(builder, norm, layer.inputs[0], Relu::After)?,
            output: Tensor::empty(builder.backend)?,
        })
    }

    fn forward(&mut self, ctx: &mut Context<B>, x: View<B>) -> Result<()> {
        self.output.resize(&ctx.backend, x.shape)?;
        self.norm.forward(ctx, x, None, self.output.view_mut())
    }

    /// `d` holds dy and becomes dx.
    fn backward(&self, ctx: &mut Context<B>, x: View<B>, d: &mut Tensor<B>) -> Result<()> {
        self.norm.backward(ctx, x, self.output.view(), d.view_mut(), None, None)
    }
}
