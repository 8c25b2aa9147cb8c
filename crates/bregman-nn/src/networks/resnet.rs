//! ResNet of basic blocks (ResNet34) for speaker embeddings, layer for layer and name for name as WeSpeaker's with TSTP
//! pooling.

use bregman_tensor::{Backend, Relu, Shape, Tensor, View};

use crate::{Builder, Context, ConvLayer, Error, InputGradient, Network, NormLayer, Result, TemporalStatistics};

/// The size of a ResNet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResNetConfig {
    /// Blocks of each stage: 3, 4, 6, 3 make a ResNet34.
    pub blocks: [usize; 4],
    /// Channels of the first stage; each of the following three doubles them.
    pub channels: usize,
    /// Filterbank bins.
    pub features: usize,
    /// Size of the embedding.
    pub embedding: usize,
}

impl Default for ResNetConfig {
    /// ResNet34: 6.63 M parameters.
    fn default() -> Self {
        Self { blocks: [3, 4, 6, 3], channels: 32, features: 80, embedding: 256 }
    }
}

/// `y = relu(bn(conv(x)) + residual)`, the residual optional.
struct ConvNorm<B: Backend> {
    conv: ConvLayer,
    norm: NormLayer,
    before: Tensor<B>,
    output: Tensor<B>,
}

impl<B: Backend> ConvNorm<B> {
    fn new(
        builder: &mut Builder<B>,
        names: [&str; 2],
        channels: [usize; 2],
        kernel: usize,
        stride: usize,
        relu: Relu,
    ) -> Result<Self> {
        Ok(Self {
            conv: ConvLayer::conv2d(builder, names[0], channels[0], channels[1], kernel, stride)?,
            norm: NormLayer::new(builder, names[1], channels[1], relu)?,
            before: Tensor::empty(builder.backend)?,
            output: Tensor::empty(builder.backend)?,
        })
    }

    fn forward(&mut self, ctx: &mut Context<B>, x: View<B>, residual: Option<View<B>>) -> Result<()> {
        self.conv.forward(ctx, x, &mut self.before)?;
        self.output.resize(&ctx.backend, self.before.shape())?;
        self.norm.forward(ctx, self.before.view(), residual, self.output.view_mut())
    }

    /// `d` holds dy; it is used up. `dresidual` is filled where it is asked for.
    fn backward(
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

/// `y = relu(bn₂(conv₂(relu(bn₁(conv₁(x))))) + shortcut(x))`; the shortcut is a strided 1×1 convolution with BN where
/// the shape changes.
///
/// # Shapes
/// x `[inputs, batch, height, time]` → y `[outputs, batch, height / stride, time / stride]`, rounded up.
struct BasicBlock<B: Backend> {
    first: ConvNorm<B>,
    second: ConvNorm<B>,
    shortcut: Option<ConvNorm<B>>,
}

impl<B: Backend> BasicBlock<B> {
    fn new(builder: &mut Builder<B>, name: &str, inputs: usize, outputs: usize, stride: usize) -> Result<Self> {
        let named = |part: &str| format!("{name}.{part}");
        let first =
            ConvNorm::new(builder, [&named("conv1"), &named("bn1")], [inputs, outputs], 3, stride, Relu::After)?;
        let second = ConvNorm::new(builder, [&named("conv2"), &named("bn2")], [outputs, outputs], 3, 1, Relu::After)?;
        let shortcut = if stride != 1 || inputs != outputs {
            let names = [&*named("shortcut.0"), &*named("shortcut.1")];
            Some(ConvNorm::new(builder, names, [inputs, outputs], 1, stride, Relu::Absent)?)
        } else {
            None
        };
        Ok(Self { first, second, shortcut })
    }

    fn output(&self) -> &Tensor<B> {
        &self.second.output
    }

    fn forward(&mut self, ctx: &mut Context<B>, x: View<B>) -> Result<()> {
        self.first.forward(ctx, x, None)?;
        let residual = match &mut self.shortcut {
            Some(shortcut) => {
                shortcut.forward(ctx, x, None)?;
                shortcut.output.view()
            }
            None => x,
        };
        self.second.forward(ctx, self.first.output.view(), Some(residual))
    }

    /// `d` holds dy; it is used up.
    fn backward(&mut self, ctx: &mut Context<B>, x: View<B>, d: &mut Tensor<B>, dx: &mut Tensor<B>) -> Result<()> {
        let mut dmiddle = ctx.take(d.shape())?;
        let middle = self.first.output.view();
        match &mut self.shortcut {
            Some(shortcut) => {
                let mut dresidual = ctx.take(d.shape())?;
                self.second.backward(ctx, middle, d, Some(&mut dresidual), InputGradient::Into(dmiddle.view_mut()))?;
                shortcut.backward(ctx, x, &mut dresidual, None, InputGradient::Into(dx.view_mut()))?;
                ctx.give(dresidual);
            }
            None => self.second.backward(ctx, middle, d, Some(dx), InputGradient::Into(dmiddle.view_mut()))?,
        }
        self.first.backward(ctx, x, &mut dmiddle, None, InputGradient::Onto(dx.view_mut()))?;
        ctx.give(dmiddle);
        Ok(())
    }
}

/// The network.
///
/// # Shapes
/// x `[1, batch, features, time]` → `[embedding, batch]`.
pub struct ResNet<B: Backend> {
    config: ResNetConfig,
    stem: ConvNorm<B>,
    blocks: Vec<BasicBlock<B>>,
    pool: TemporalStatistics<B>,
    linear: ConvLayer,
    output: Tensor<B>,
}

impl<B: Backend> ResNet<B> {
    /// A freshly initialised network.
    pub fn new(builder: &mut Builder<B>, config: ResNetConfig) -> Result<Self> {
        let ResNetConfig { blocks: stages, channels, features, embedding } = config;
        let must = |fine: bool, field, value, expected| {
            if fine { Ok(()) } else { Err(Error::Config { field, value, expected }) }
        };
        must(!stages.contains(&0), "blocks", 0, "at least 1 in every stage")?;
        must(channels > 0, "channels", channels, "at least 1")?;
        must(
            features >= 8 && features.is_multiple_of(8),
            "features",
            features,
            "a positive multiple of 8 (three strides of two)",
        )?;
        must(embedding > 0, "embedding", embedding, "at least 1")?;
        let stem = ConvNorm::new(builder, ["conv1", "bn1"], [1, channels], 3, 1, Relu::After)?;
        let mut blocks = Vec::new();
        let mut inputs = channels;
        for (stage, &count) in stages.iter().enumerate() {
            let outputs = channels << stage;
            for i in 0..count {
                let stride = if stage > 0 && i == 0 { 2 } else { 1 };
                blocks.push(BasicBlock::new(builder, &format!("layer{}.{i}", stage + 1), inputs, outputs, stride)?);
                inputs = outputs;
            }
        }
        let pooled = 2 * inputs * features / 8;
        let pool = TemporalStatistics::new(builder)?;
        let linear = ConvLayer::linear(builder, "seg_1", pooled, embedding)?;
        Ok(Self { config, stem, blocks, pool, linear, output: Tensor::empty(builder.backend)? })
    }
}

impl<B: Backend> Network<B> for ResNet<B> {
    fn features(&self) -> usize {
        self.config.features
    }

    fn outputs(&self) -> usize {
        self.config.embedding
    }

    fn input_shape(&self, batch: usize, frames: usize) -> Shape {
        Shape { channels: 1, batch, height: self.config.features, width: frames }
    }

    fn forward(&mut self, ctx: &mut Context<B>, x: &Tensor<B>) -> Result<()> {
        self.stem.forward(ctx, x.view(), None)?;
        for i in 0..self.blocks.len() {
            let (before, rest) = self.blocks.split_at_mut(i);
            let input = before.last().map_or(&self.stem.output, BasicBlock::output);
            rest[0].forward(ctx, input.view())?;
        }
        let last = self.blocks.last().expect("a ResNet has blocks").output();
        self.pool.forward(ctx, last.view())?;
        self.linear.forward(ctx, self.pool.output().view(), &mut self.output)
    }

    fn output(&self) -> View<'_, B> {
        self.output.view()
    }

    fn backward(&mut self, ctx: &mut Context<B>, x: &Tensor<B>, doutput: View<B>) -> Result<()> {
        let mut dpooled = ctx.take(self.pool.output().shape())?;
        self.linear.backward(ctx, self.pool.output().view(), doutput, dpooled.view_mut())?;
        let last = self.blocks.last().expect("a ResNet has blocks").output();
        let mut d = ctx.take(last.shape())?;
        self.pool.backward(ctx, last.view(), dpooled.view(), &mut d)?;
        ctx.give(dpooled);
        for i in (0..self.blocks.len()).rev() {
            let (before, rest) = self.blocks.split_at_mut(i);
            let input = before.last().map_or(&self.stem.output, BasicBlock::output);
            let mut dx = ctx.take(input.shape())?;
            rest[0].backward(ctx, input.view(), &mut d, &mut dx)?;
            ctx.give(std::mem::replace(&mut d, dx));
        }
        self.stem.backward(ctx, x.view(), &mut d, None, InputGradient::Unused)?;
        ctx.give(d);
        Ok(())
    }
}
