//! A multi-layer perceptron for small examples.

use std::ops::RangeInclusive;

use bregman_network::{Graph, LayerSpec, Operation, Pointwise};
use bregman_tensor::{Activation, Backend, Shape, Tensor, View};

use crate::{Builder, Context, ConvLayer, Error, InputGradient, Network, Result};

/// Linear layers with ReLU between them: `sizes[0]` inputs, then each layer's outputs.
///
/// # Shapes
/// x `[sizes[0], batch]` → `[sizes.last(), batch]`.
pub struct Mlp<B: Backend> {
    layers: Vec<ConvLayer>,
    outputs: Vec<Tensor<B>>,
    specs: Vec<LayerSpec>,
}

impl<B: Backend> Mlp<B> {
    /// Layers `layers.0`, `layers.1` …
    ///
    /// # Errors
    /// Fewer than two sizes, or a size of 0.
    pub fn new(builder: &mut Builder<B>, sizes: &[usize]) -> Result<Self> {
        let refused = |value, expected| Err(Error::Config { field: "sizes", value, expected });
        if sizes.len() < 2 {
            return refused(sizes.len(), "at least an input and an output size");
        }
        if sizes.contains(&0) {
            return refused(0, "every size at least 1");
        }
        let mut specs: Vec<LayerSpec> = (sizes.windows(2).enumerate())
            .map(|(i, pair)| LayerSpec::linear(format!("layers.{i}"), pair[0], pair[1]).after([Pointwise::Relu]))
            .collect();
        specs.last_mut().expect("two sizes make a layer").after.clear();
        let layers = specs.iter().map(|spec| ConvLayer::new(builder, spec)).collect::<Result<_>>()?;
        let outputs = specs.iter().map(|_| Tensor::empty(builder.backend)).collect::<bregman_tensor::Result<_>>()?;
        Ok(Self { specs, layers, outputs })
    }
}

impl<B: Backend> Network<B> for Mlp<B> {
    fn features(&self) -> usize {
        self.specs[0].inputs[0]
    }

    fn outputs(&self) -> usize {
        self.specs[self.specs.len() - 1].outputs
    }

    fn graph(&self) -> Option<Graph> {
        let mut graph = Graph::new(Network::<B>::features(self));
        let frame = graph.add("frame", Operation::Mean, &[graph.input()]); // of the only one
        self.specs.iter().fold(frame, |x, spec| graph.layer(spec, &[x]));
        Some(graph)
    }

    fn frames(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn input_shape(&self, batch: usize, frames: usize) -> Shape {
        Shape::signal(self.specs[0].inputs[0], batch, frames)
    }

    fn forward(&mut self, ctx: &mut Context<B>, x: &Tensor<B>) -> Result<()> {
        for (i, layer) in self.layers.iter().enumerate() {
            let (before, rest) = self.outputs.split_at_mut(i);
            layer.forward(ctx, before.last().unwrap_or(x).view(), &mut rest[0])?;
            if self.specs[i].relu() {
                ctx.backend.activate(Activation::Relu, rest[0].view_mut())?;
            }
        }
        Ok(())
    }

    fn output(&self) -> View<'_, B> {
        self.outputs[self.layers.len() - 1].view()
    }

    fn backward(&mut self, ctx: &mut Context<B>, x: &Tensor<B>, doutput: View<B>) -> Result<()> {
        let mut d = ctx.take(doutput.shape)?;
        ctx.backend.copy(doutput, d.view_mut())?;
        for i in (0..self.layers.len()).rev() {
            if self.specs[i].relu() {
                ctx.backend.activate_backward(Activation::Relu, self.outputs[i].view(), d.view_mut())?;
            }
            let input = if i == 0 { x } else { &self.outputs[i - 1] };
            let mut dx = ctx.take(input.shape())?;
            self.layers[i].backward_bias(ctx, d.view())?;
            let target = if i > 0 { InputGradient::Into(dx.view_mut()) } else { InputGradient::Unused };
            self.layers[i].backward_products(ctx, input.view(), d.view(), target)?;
            ctx.give(std::mem::replace(&mut d, dx));
        }
        ctx.give(d);
        Ok(())
    }
}
