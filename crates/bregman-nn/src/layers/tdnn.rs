//! The blocks of ECAPA-TDNN (Desplanques, Thienpondt and Demuynck, "ECAPA-TDNN", Interspeech 2020), in WeSpeaker's
//! order: conv, ReLU, BN.

use bregman_tensor::{Activation, Backend, Relu, Shape, Tensor, View, ViewMut};

use crate::{Builder, Context, ConvLayer, InputGradient, NormLayer, Result};

/// `y = bn(relu(conv(x)))`
///
/// # Shapes
/// x `[inputs, batch, 1, time]` → y `[outputs, batch, 1, time]`.
pub struct ConvReluNorm<B: Backend> {
    conv: ConvLayer,
    norm: NormLayer,
    before: Tensor<B>,
    output: Tensor<B>,
}

impl<B: Backend> ConvReluNorm<B> {
    /// `name.conv` and `name.bn`.
    pub fn new(builder: &mut Builder<B>, name: &str, inputs: usize, outputs: usize, kernel: usize) -> Result<Self> {
        Ok(Self {
            conv: ConvLayer::conv1d(builder, &format!("{name}.conv"), &[inputs], outputs, kernel, 1)?,
            norm: NormLayer::new(builder, &format!("{name}.bn"), outputs, Relu::Before)?,
            before: Tensor::empty(builder.backend)?,
            output: Tensor::empty(builder.backend)?,
        })
    }

    /// Fills [`ConvReluNorm::output`].
    pub fn forward(&mut self, ctx: &mut Context<B>, x: View<B>) -> Result<()> {
        self.conv.forward(ctx, x, &mut self.before)?;
        self.output.resize(&ctx.backend, self.before.shape())?;
        self.norm.forward(ctx, self.before.view(), None, self.output.view_mut())
    }

    /// What the last forward pass made.
    pub fn output(&self) -> &Tensor<B> {
        &self.output
    }

    /// `d` holds dy; it is used up.
    pub fn backward(
        &mut self,
        ctx: &mut Context<B>,
        x: View<B>,
        d: &mut Tensor<B>,
        dx: InputGradient<B>,
    ) -> Result<()> {
        self.norm.backward(ctx, self.before.view(), self.output.view(), d.view_mut(), None, self.conv.bias())?;
        self.conv.backward_products(ctx, x, d.view(), dx)
    }
}

/// Res2Net's multi-scale convolution: the channels are cut into `scale` parts x₀ … x₇, and
/// y₀ = f₀(x₀), yᵢ = fᵢ(xᵢ + yᵢ₋₁), the last part passes unchanged; f = bn ∘ relu ∘ dilated conv.
///
/// # Shapes
/// x, y `[channels, batch, 1, time]`.
pub struct Res2<B: Backend> {
    convs: Vec<ConvLayer>,
    norms: Vec<NormLayer>,
    /// xᵢ + yᵢ₋₁ (the first is x₀ itself and stays empty)
    sums: Vec<Tensor<B>>,
    before: Vec<Tensor<B>>,
    output: Tensor<B>,
    width: usize,
}

impl<B: Backend> Res2<B> {
    /// `name.convs.i` and `name.bns.i`.
    pub fn new(
        builder: &mut Builder<B>,
        name: &str,
        channels: usize,
        scale: usize,
        kernel: usize,
        dilation: usize,
    ) -> Result<Self> {
        let (width, parts) = (channels / scale, scale - 1);
        let convs = (0..parts)
            .map(|i| ConvLayer::conv1d(builder, &format!("{name}.convs.{i}"), &[width], width, kernel, dilation));
        let convs = convs.collect::<Result<_>>()?;
        let norms = (0..parts)
            .map(|i| NormLayer::new(builder, &format!("{name}.bns.{i}"), width, Relu::Before))
            .collect::<Result<_>>()?;
        let empty = || (0..parts).map(|_| Tensor::empty(builder.backend)).collect::<bregman_tensor::Result<_>>();
        Ok(Self { convs, norms, sums: empty()?, before: empty()?, output: Tensor::empty(builder.backend)?, width })
    }

    /// Fills [`Res2::output`].
    pub fn forward(&mut self, ctx: &mut Context<B>, x: &Tensor<B>) -> Result<()> {
        self.output.resize(&ctx.backend, x.shape())?;
        let parts = self.convs.len();
        let part = |i: usize| i * self.width..(i + 1) * self.width;
        for i in 0..parts {
            let input = if i == 0 {
                x.channels(part(0))
            } else {
                let sum = &mut self.sums[i];
                sum.resize(&ctx.backend, x.shape().with_channels(self.width))?;
                ctx.backend.add(x.channels(part(i)), self.output.channels(part(i - 1)), sum.view_mut())?;
                sum.view()
            };
            self.convs[i].forward(ctx, input, &mut self.before[i])?;
            self.norms[i].forward(ctx, self.before[i].view(), None, self.output.channels_mut(part(i)))?;
        }
        Ok(ctx.backend.copy(x.channels(part(parts)), self.output.channels_mut(part(parts)))?)
    }

    /// What the last forward pass made.
    pub fn output(&self) -> &Tensor<B> {
        &self.output
    }

    /// Gradient to x from dy. From the last part to the first: what flows into yᵢ₋₁ is its own gradient and that of xᵢ
    /// + yᵢ₋₁. Each part's lies in a tensor of its own, which convolutions read faster than a range of channels.
    pub fn backward(&mut self, ctx: &mut Context<B>, x: &Tensor<B>, dy: &Tensor<B>, dx: &mut Tensor<B>) -> Result<()> {
        let parts = self.convs.len();
        let part = |i: usize| i * self.width..(i + 1) * self.width;
        ctx.backend.copy(dy.channels(part(parts)), dx.channels_mut(part(parts)))?;
        let mut d = ctx.take(x.shape().with_channels(self.width))?;
        for i in (0..parts).rev() {
            if i + 1 < parts {
                ctx.backend.add(dy.channels(part(i)), dx.channels(part(i + 1)), d.view_mut())?;
            } else {
                ctx.backend.copy(dy.channels(part(i)), d.view_mut())?;
            }
            let (before, output, bias) = (self.before[i].view(), self.output.channels(part(i)), self.convs[i].bias());
            self.norms[i].backward(ctx, before, output, d.view_mut(), None, bias)?;
            let input = if i == 0 { x.channels(part(0)) } else { self.sums[i].view() };
            self.convs[i].backward_products(ctx, input, d.view(), InputGradient::Into(dx.channels_mut(part(i))))?;
        }
        ctx.give(d);
        Ok(())
    }
}

/// Squeeze-excitation with the residual around it: `y = residual + sigmoid(W₂ relu(W₁ mean(x) + b₁) + b₂) · x`.
///
/// # Shapes
/// x, residual, y `[channels, batch, 1, time]`; the gate `[channels, batch]`.
pub struct SqueezeExcite<B: Backend> {
    squeeze: ConvLayer,
    excite: ConvLayer,
    mean: Tensor<B>,
    hidden: Tensor<B>,
    gate: Tensor<B>,
}

impl<B: Backend> SqueezeExcite<B> {
    /// `name.linear1` and `name.linear2`.
    pub fn new(builder: &mut Builder<B>, name: &str, channels: usize, bottleneck: usize) -> Result<Self> {
        Ok(Self {
            squeeze: ConvLayer::linear(builder, &format!("{name}.linear1"), channels, bottleneck)?,
            excite: ConvLayer::linear(builder, &format!("{name}.linear2"), bottleneck, channels)?,
            mean: Tensor::empty(builder.backend)?,
            hidden: Tensor::empty(builder.backend)?,
            gate: Tensor::empty(builder.backend)?,
        })
    }

    /// Fills `y`.
    pub fn forward(&mut self, ctx: &mut Context<B>, x: View<B>, residual: View<B>, y: ViewMut<B>) -> Result<()> {
        self.mean.resize(&ctx.backend, Shape::vector(x.shape.channels, x.shape.batch))?;
        ctx.backend.mean_forward(x, self.mean.view_mut())?;
        self.squeeze.forward(ctx, self.mean.view(), &mut self.hidden)?;
        ctx.backend.activate(Activation::Relu, self.hidden.view_mut())?;
        self.excite.forward(ctx, self.hidden.view(), &mut self.gate)?;
        ctx.backend.activate(Activation::Sigmoid, self.gate.view_mut())?;
        Ok(ctx.backend.gate_forward(x, self.gate.view(), residual, y)?)
    }

    /// Gradient to x; the residual's is dy itself.
    pub fn backward(&mut self, ctx: &mut Context<B>, x: View<B>, dy: View<B>, dx: ViewMut<B>) -> Result<()> {
        let mut dgate = ctx.take(self.gate.shape())?;
        ctx.backend.gate_backward_gate(x, dy, dgate.view_mut())?;
        ctx.backend.activate_backward(Activation::Sigmoid, self.gate.view(), dgate.view_mut())?;
        let mut dhidden = ctx.take(self.hidden.shape())?;
        self.excite.backward(ctx, self.hidden.view(), dgate.view(), dhidden.view_mut())?;
        ctx.backend.activate_backward(Activation::Relu, self.hidden.view(), dhidden.view_mut())?;
        let mut dmean = dgate; // of the same shape, and used up
        self.squeeze.backward(ctx, self.mean.view(), dhidden.view(), dmean.view_mut())?;
        ctx.backend.gate_backward_input(self.gate.view(), dmean.view(), dy, dx)?;
        ctx.give(dhidden);
        ctx.give(dmean);
        Ok(())
    }
}

/// SE-Res2Block: `y = x + se(f₂(res2(f₀(x))))` with 1×1 convolutions f.
///
/// # Shapes
/// x, y `[channels, batch, 1, time]`.
pub struct SeRes2Block<B: Backend> {
    first: ConvReluNorm<B>,
    res2: Res2<B>,
    last: ConvReluNorm<B>,
    se: SqueezeExcite<B>,
    output: Tensor<B>,
}

impl<B: Backend> SeRes2Block<B> {
    /// `name.se_res2block.{0,1,2,3}`.
    pub fn new(builder: &mut Builder<B>, name: &str, channels: usize, kernel: usize, dilation: usize) -> Result<Self> {
        const SCALE: usize = 8;
        const BOTTLENECK: usize = 128;
        let part = |i: usize| format!("{name}.se_res2block.{i}");
        Ok(Self {
            first: ConvReluNorm::new(builder, &part(0), channels, channels, 1)?,
            res2: Res2::new(builder, &part(1), channels, SCALE, kernel, dilation)?,
            last: ConvReluNorm::new(builder, &part(2), channels, channels, 1)?,
            se: SqueezeExcite::new(builder, &part(3), channels, BOTTLENECK)?,
            output: Tensor::empty(builder.backend)?,
        })
    }

    /// Fills [`SeRes2Block::output`].
    pub fn forward(&mut self, ctx: &mut Context<B>, x: View<B>) -> Result<()> {
        self.first.forward(ctx, x)?;
        self.res2.forward(ctx, self.first.output())?;
        self.last.forward(ctx, self.res2.output().view())?;
        self.output.resize(&ctx.backend, x.shape)?;
        self.se.forward(ctx, self.last.output().view(), x, self.output.view_mut())
    }

    /// What the last forward pass made.
    pub fn output(&self) -> &Tensor<B> {
        &self.output
    }

    /// `d` holds dy and becomes dx: the residual's share is there already.
    pub fn backward(&mut self, ctx: &mut Context<B>, x: View<B>, d: &mut Tensor<B>) -> Result<()> {
        let mut inner = ctx.take(x.shape)?;
        let mut other = ctx.take(x.shape)?;
        self.se.backward(ctx, self.last.output().view(), d.view(), inner.view_mut())?;
        self.last.backward(ctx, self.res2.output().view(), &mut inner, InputGradient::Into(other.view_mut()))?;
        self.res2.backward(ctx, self.first.output(), &other, &mut inner)?;
        self.first.backward(ctx, x, &mut inner, InputGradient::Onto(d.view_mut()))?;
        ctx.give(other);
        ctx.give(inner);
        Ok(())
    }
}
