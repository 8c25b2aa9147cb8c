//! Convolutions and linear layers: one type, because a linear layer is the pointwise convolution of a vector.

use bregman::{Param, Role};
use bregman_network::{LayerKind, LayerSpec};
use bregman_tensor::{Backend, Conv, OutputStart, Shape, Tensor, View, ViewMut};

use crate::{Builder, Context, NormLayer, ParamId, Result};

/// `y = W ∗ x + b`
///
/// Where its description says so, the input is mirrored at both ends first.
///
/// # Shapes
/// x `[inputs, batch, height, width]`, W `[outputs, inputs, taps…]`, y `[outputs, batch, height′, width′]`.
///
/// W may be cut into column blocks, one per input tensor: `y = W₀ ∗ x₀ + W₁ ∗ x₁ + … + b` is the layer over the
/// concatenated inputs, without concatenating them.
pub struct ConvLayer {
    weight: ParamId,
    bias: Option<ParamId>,
    geometry: Conv,
    /// Frames that are mirrored at each end; the geometry has no padding then.
    mirrored: usize,
    outputs: usize,
}

/// Where the gradient to a layer's input goes.
pub enum InputGradient<'a, B: Backend> {
    /// Nobody needs it.
    Unused,
    /// It replaces what is there.
    Into(ViewMut<'a, B>),
    /// It is added: the input flowed elsewhere, too.
    Onto(ViewMut<'a, B>),
}

impl ConvLayer {
    /// The weight and bias of a description, drawn as PyTorch draws them (Kaiming uniform with a = √5).
    pub fn new<B: Backend>(builder: &mut Builder<B>, spec: &LayerSpec) -> Result<Self> {
        let mut geometry = geometry(spec.kind);
        if spec.mirrored() > 0 {
            geometry.padding = [0, 0];
        }
        Self::with_geometry(builder, spec, &spec.inputs, geometry)
    }

    /// A convolution over time whose inputs are the rows of a map: its kernel is as tall as the map of `height` rows,
    /// so that nothing has to be moved.
    pub fn of_rows<B: Backend>(builder: &mut Builder<B>, spec: &LayerSpec, height: usize) -> Result<Self> {
        let channels: Vec<usize> = spec.inputs.iter().map(|rows| rows / height).collect();
        let mut geometry = geometry(spec.kind);
        geometry.kernel[0] = height;
        Self::with_geometry(builder, spec, &channels, geometry)
    }

    fn with_geometry<B: Backend>(
        builder: &mut Builder<B>,
        spec: &LayerSpec,
        inputs: &[usize],
        geometry: Conv,
    ) -> Result<Self> {
        let (name, [outputs, columns]) = (&spec.name, spec.matrix());
        let bound = 1.0 / (columns as f32).sqrt();
        let role = if spec.kind == LayerKind::Linear { Role::LinearWeight } else { Role::ConvWeight };
        let param = Param::new(format!("{name}.weight"), spec.shape(), role);
        let weight = builder.weight(param, inputs, geometry.taps(), bound)?;
        let bias = if spec.bias { Some(builder.bias(format!("{name}.bias"), outputs, bound)?) } else { None };
        Ok(Self { weight, bias, geometry, mirrored: spec.mirrored(), outputs })
    }

    /// What the products read of an input of this shape.
    fn read(&self, input: Shape) -> Shape {
        Shape { width: input.width + 2 * self.mirrored, ..input }
    }

    /// The input, mirrored where that is asked for; to be given back then.
    fn mirror<B: Backend>(&self, ctx: &mut Context<B>, x: View<B>) -> Result<Option<Tensor<B>>> {
        if self.mirrored == 0 {
            return Ok(None);
        }
        let mut wide = ctx.take(self.read(x.shape))?;
        ctx.backend.reflect(x, wide.view_mut())?;
        Ok(Some(wide))
    }

    /// Gives `y` its shape and fills it.
    pub fn forward<B: Backend>(&self, ctx: &mut Context<B>, x: View<B>, y: &mut Tensor<B>) -> Result<()> {
        y.resize(&ctx.backend, self.output_shape(x.shape))?;
        self.forward_block(ctx, 0, x, y)
    }

    /// As [`ConvLayer::forward`], over several inputs of equal positions.
    pub fn forward_all<B: Backend>(&self, ctx: &mut Context<B>, inputs: &[View<B>], y: &mut Tensor<B>) -> Result<()> {
        y.resize(&ctx.backend, self.output_shape(inputs[0].shape))?;
        inputs.iter().enumerate().try_for_each(|(block, &x)| self.forward_block(ctx, block, x, y))
    }

    /// Block `block`'s share of the output; block 0 starts it.
    fn forward_block<B: Backend>(
        &self,
        ctx: &mut Context<B>,
        block: usize,
        x: View<B>,
        y: &mut Tensor<B>,
    ) -> Result<()> {
        let mirrored = self.mirror(ctx, x)?;
        let x = mirrored.as_ref().map_or(x, Tensor::view);
        let weight = ctx.params.get(self.weight);
        let start = match self.bias {
            _ if block > 0 => OutputStart::Keep,
            Some(bias) => OutputStart::Bias(&ctx.params.get(bias).value),
            None => OutputStart::Zero,
        };
        ctx.backend.conv_forward(&self.geometry, x, weight.weight(block), start, y.view_mut())?;
        ctx.checked(y.view(), weight.param.name.trim_end_matches(".weight"))?;
        mirrored.into_iter().for_each(|tensor| ctx.give(tensor));
        Ok(())
    }

    /// What an input of this shape becomes.
    pub fn output_shape(&self, input: Shape) -> Shape {
        self.geometry.output(self.read(input), self.outputs)
    }

    /// `before = W ∗ x + b`, then `y = norm(before)` with its ReLU and residual; both at once where the backend can.
    pub fn forward_with_norm<B: Backend>(
        &self,
        ctx: &mut Context<B>,
        x: View<B>,
        before: &mut Tensor<B>,
        norm: &NormLayer,
        residual: Option<View<B>>,
        y: ViewMut<B>,
    ) -> Result<()> {
        if !NormLayer::is_of_batch(ctx) {
            self.forward(ctx, x, before)?;
            return norm.forward(ctx, before.view(), residual, y);
        }
        let mirrored = self.mirror(ctx, x)?;
        let x = mirrored.as_ref().map_or(x, Tensor::view);
        before.resize(&ctx.backend, self.geometry.output(x.shape, self.outputs))?;
        let (norm, statistics, params) = norm.parts(&mut ctx.params);
        let weight = params[self.weight.index()].weight(0);
        let start = self.bias.map_or(OutputStart::Zero, |bias| OutputStart::Bias(&params[bias.index()].value));
        let to = before.view_mut();
        ctx.backend.conv_norm_train(&self.geometry, x, weight, start, to, norm, statistics, residual, y)?;
        let name = &ctx.params.get(self.weight).param.name;
        ctx.checked(before.view(), name.trim_end_matches(".weight"))?;
        mirrored.into_iter().for_each(|tensor| ctx.give(tensor));
        Ok(())
    }

    /// `y = Wᵢ ∗ x`: one block without bias, for an input that lies outside of the others' positions.
    pub fn forward_only<B: Backend>(
        &self,
        ctx: &Context<B>,
        block: usize,
        x: View<B>,
        y: &mut Tensor<B>,
    ) -> Result<()> {
        y.resize(&ctx.backend, self.geometry.output(x.shape, self.outputs))?;
        let weight = ctx.params.get(self.weight).weight(block);
        Ok(ctx.backend.conv_forward(&self.geometry, x, weight, OutputStart::Zero, y.view_mut())?)
    }

    /// All gradients of a layer with one input.
    pub fn backward<B: Backend>(&self, ctx: &mut Context<B>, x: View<B>, dy: View<B>, dx: ViewMut<B>) -> Result<()> {
        self.backward_bias(ctx, dy)?;
        self.backward_products(ctx, x, dy, InputGradient::Into(dx))
    }

    /// As [`ConvLayer::backward`] without that of the bias.
    pub fn backward_products<B: Backend>(
        &self,
        ctx: &mut Context<B>,
        x: View<B>,
        dy: View<B>,
        dx: InputGradient<B>,
    ) -> Result<()> {
        self.backward_weight(ctx, 0, x, dy)?;
        match dx {
            InputGradient::Unused => Ok(()),
            InputGradient::Into(dx) => self.backward_input(ctx, 0, dy, false, dx),
            InputGradient::Onto(dx) => self.backward_input(ctx, 0, dy, true, dx),
        }
    }

    /// Its bias, whose gradient a norm behind the layer finds on its way.
    pub fn bias(&self) -> Option<ParamId> {
        self.bias
    }

    /// `db = Σ dy`
    pub fn backward_bias<B: Backend>(&self, ctx: &mut Context<B>, dy: View<B>) -> Result<()> {
        let Some(bias) = self.bias else { return Ok(()) };
        Ok(ctx.backend.conv_backward_bias(dy, &mut ctx.params.get_mut(bias).grad)?)
    }

    /// `dWᵢ = dy ∗ xᵢ`
    pub fn backward_weight<B: Backend>(
        &self,
        ctx: &mut Context<B>,
        block: usize,
        x: View<B>,
        dy: View<B>,
    ) -> Result<()> {
        let mirrored = self.mirror(ctx, x)?;
        let x = mirrored.as_ref().map_or(x, Tensor::view);
        let Context { backend, params, extent, .. } = ctx;
        params.get_mut(self.weight).backward(backend, *extent, &self.geometry, block, x, dy)?;
        mirrored.into_iter().for_each(|tensor| ctx.give(tensor));
        ctx.wrote(self.weight)
    }

    /// `dxᵢ = Wᵢᵀ ∗ dy`, or adds that.
    pub fn backward_input<B: Backend>(
        &self,
        ctx: &mut Context<B>,
        block: usize,
        dy: View<B>,
        add: bool,
        dx: ViewMut<B>,
    ) -> Result<()> {
        if self.mirrored > 0 {
            let mut wide = ctx.take(self.read(dx.shape))?;
            let weight = ctx.params.get(self.weight).weight(block);
            ctx.backend.conv_backward_input(&self.geometry, weight, dy, false, wide.view_mut())?;
            ctx.backend.reflect_backward(wide.view(), add, dx)?;
            ctx.give(wide);
            return Ok(());
        }
        let weight = ctx.params.get(self.weight).weight(block);
        Ok(ctx.backend.conv_backward_input(&self.geometry, weight, dy, add, dx)?)
    }
}

/// Convolutions pad by half of their reach.
fn geometry(kind: LayerKind) -> Conv {
    match kind {
        LayerKind::Linear => Conv::POINTWISE,
        LayerKind::Conv1d { kernel, stride, dilation } => {
            Conv { stride: [1, stride], ..Conv::same_1d(kernel, dilation) }
        }
        LayerKind::Conv2d { kernel, stride } => {
            Conv { kernel, stride, padding: kernel.map(|taps| taps / 2), dilation: [1, 1] }
        }
    }
}
