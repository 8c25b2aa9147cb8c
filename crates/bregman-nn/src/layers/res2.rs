//! Res2Net's multi-scale convolution (Gao et al., IEEE TPAMI 2021).

use bregman_network::SeRes2Layers;
use bregman_tensor::{Backend, Tensor};

use super::conv_norm::norm_after;
use crate::{Builder, Context, ConvLayer, InputGradient, NormLayer, Result};

/// The channels are cut into parts, of which one passes unchanged: the last, or the first. Of the others x₀ … x₆
/// y₀ = f₀(x₀), yᵢ = fᵢ(xᵢ + yᵢ₋₁); f = bn ∘ relu ∘ dilated conv.
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
    /// The part that the first convolution reads, and the one that passes.
    first: usize,
    passes: usize,
}

impl<B: Backend> Res2<B> {
    /// One convolution for each part but the one that passes.
    pub fn new(builder: &mut Builder<B>, specs: &SeRes2Layers) -> Result<Self> {
        let parts = &specs.res2;
        let convs = parts.iter().map(|spec| ConvLayer::new(builder, spec)).collect::<Result<_>>()?;
        let norms = parts.iter().map(|spec| norm_after(builder, spec)).collect::<Result<_>>()?;
        let empty = || parts.iter().map(|_| Tensor::empty(builder.backend)).collect::<bregman_tensor::Result<_>>();
        let width = parts.first().map_or(0, |spec| spec.outputs);
        Ok(Self {
            convs,
            norms,
            sums: empty()?,
            before: empty()?,
            output: Tensor::empty(builder.backend)?,
            width,
            first: specs.first_part(),
            passes: specs.passes,
        })
    }

    /// Fills [`Res2::output`].
    pub fn forward(&mut self, ctx: &mut Context<B>, x: &Tensor<B>) -> Result<()> {
        self.output.resize(&ctx.backend, x.shape())?;
        let of = |part: usize| part * self.width..(part + 1) * self.width;
        let part = |i: usize| of(self.first + i);
        for i in 0..self.convs.len() {
            let input = if i == 0 {
                x.channels(part(0))
            } else {
                let sum = &mut self.sums[i];
                sum.resize(&ctx.backend, x.shape().with_channels(self.width))?;
                ctx.backend.add(x.channels(part(i)), self.output.channels(part(i - 1)), sum.view_mut())?;
                sum.view()
            };
            let (before, y) = (&mut self.before[i], self.output.channels_mut(part(i)));
            self.convs[i].forward_with_norm(ctx, input, before, &self.norms[i], None, y)?;
        }
        Ok(ctx.backend.copy(x.channels(of(self.passes)), self.output.channels_mut(of(self.passes)))?)
    }

    /// What the last forward pass made.
    pub fn output(&self) -> &Tensor<B> {
        &self.output
    }

    /// Gradient to x from dy. From the last part to the first: what flows into yᵢ₋₁ is its own gradient and that of xᵢ
    /// + yᵢ₋₁. Each part's lies in a tensor of its own, which convolutions read faster than a range of channels.
    pub fn backward(&mut self, ctx: &mut Context<B>, x: &Tensor<B>, dy: &Tensor<B>, dx: &mut Tensor<B>) -> Result<()> {
        let parts = self.convs.len();
        let of = |part: usize| part * self.width..(part + 1) * self.width;
        let part = |i: usize| of(self.first + i);
        ctx.backend.copy(dy.channels(of(self.passes)), dx.channels_mut(of(self.passes)))?;
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
