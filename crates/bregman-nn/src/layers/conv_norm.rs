//! A convolution and its batch norm, which takes the ReLU and the residual along.

use bregman_network::{LayerSpec, Pointwise};
use bregman_tensor::{Backend, Relu, Tensor, View};

use crate::{Builder, Context, ConvLayer, Error, InputGradient, NormLayer, Result};

/// `y = bn(relu(conv(x)))` or `y = relu(bn(conv(x)) + residual)`, ReLU and residual optional.
///
/// # Shapes
/// x `[inputs, batch, height, time]` → y and the residual `[outputs, batch, height′, time′]`.
pub struct ConvNorm<B: Backend> {
    conv: ConvLayer,
    norm: NormLayer,
    before: Tensor<B>,
    output: Tensor<B>,
}

impl<B: Backend> ConvNorm<B> {
    /// A layer with a norm after it.
    ///
    /// # Errors
    /// A description without such a norm, or with something that does not go with it.
    pub fn new(builder: &mut Builder<B>, spec: &LayerSpec) -> Result<Self> {
        let conv = ConvLayer::new(builder, spec)?;
        Self::with_conv(builder, spec, conv)
    }

    /// As [`ConvNorm::new`], the convolution [over the rows of a map](ConvLayer::of_rows).
    pub fn of_rows(builder: &mut Builder<B>, spec: &LayerSpec, height: usize) -> Result<Self> {
        let conv = ConvLayer::of_rows(builder, spec, height)?;
        Self::with_conv(builder, spec, conv)
    }

    fn with_conv(builder: &mut Builder<B>, spec: &LayerSpec, conv: ConvLayer) -> Result<Self> {
        Ok(Self {
            conv,
            norm: norm_after(builder, spec)?,
            before: Tensor::empty(builder.backend)?,
            output: Tensor::empty(builder.backend)?,
        })
    }

    /// Fills [`ConvNorm::output`].
    pub fn forward(&mut self, ctx: &mut Context<B>, x: View<B>, residual: Option<View<B>>) -> Result<()> {
        self.output.resize(&ctx.backend, self.conv.output_shape(x.shape))?;
        self.conv.forward_with_norm(ctx, x, &mut self.before, &self.norm, residual, self.output.view_mut())
    }

    /// What the last forward pass made.
    pub fn output(&self) -> &Tensor<B> {
        &self.output
    }

    /// `d` holds dy; it is used up. `dresidual` is filled where it is asked for.
    pub fn backward(
        &mut self,
        ctx: &mut Context<B>,
        x: View<B>,
        d: &mut Tensor<B>,
        dresidual: Option<&mut Tensor<B>>,
        dx: InputGradient<B>,
    ) -> Result<()> {
        let dresidual = dresidual.map(Tensor::view_mut);
        self.norm.backward(ctx, self.before.view(), self.output.view(), d.view_mut(), dresidual, self.conv.bias())?;
        self.conv.backward_products(ctx, x, d.view(), dx)
    }
}

/// The norm after a layer, with the ReLU where its description has it.
pub(crate) fn norm_after<B: Backend>(builder: &mut Builder<B>, spec: &LayerSpec) -> Result<NormLayer> {
    let (norm, relu) = match &spec.after[..] {
        [Pointwise::Norm(norm)] => (norm, Relu::Absent),
        [Pointwise::Relu, Pointwise::Norm(norm)] | [Pointwise::Relu, Pointwise::Norm(norm), Pointwise::Tanh] => {
            (norm, Relu::Before)
        }
        [Pointwise::Norm(norm), Pointwise::Relu] => (norm, Relu::After),
        [Pointwise::Norm(norm), Pointwise::Residual, Pointwise::Relu] => (norm, Relu::After),
        _ => {
            let problem = "needs a norm after it, with a ReLU before or after that at most";
            return Err(Error::Layer { layer: spec.name.clone(), problem });
        }
    };
    NormLayer::new(builder, norm, spec.outputs, relu)
}
