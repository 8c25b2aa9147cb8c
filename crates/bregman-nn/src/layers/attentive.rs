//! Pooling over time that learns which frames matter.

use bregman_network::{AttentionLayers, Deviation};
use bregman_tensor::{Activation, Backend, Shape, Spread, Tensor, View};

use super::conv_norm::norm_after;
use crate::{Builder, Context, ConvLayer, NormLayer, Result};

/// Attentive statistics pooling (Okabe, Koshinaka and Shinoda, Interspeech 2018): one attention per channel and frame,
/// α = softmaxₜ(W₂ tanh(W₁ x + b₁) + b₂), then mean and standard deviation under α. SpeechBrain's hidden layer has a
/// ReLU and a norm before the tanh.
///
/// With global context, the attention also sees mean and standard deviation of the utterance: W₁ [x; μ; σ]. Since these
/// are constant over time, their columns of W₁ are multiplied once per utterance, not once per frame.
///
/// # Shapes
/// x `[channels, batch, 1, time]` → `[2 · channels, batch]`.
pub struct AttentiveStatistics<B: Backend> {
    hidden: ConvLayer,
    norm: Option<HiddenNorm<B>>,
    logits: ConvLayer,
    context: Option<Global<B>>,
    spread: Spread,
    /// Of the variance under the attention.
    floor: f32,
    tanh: Tensor<B>,
    attention: Tensor<B>,
    output: Tensor<B>,
}

/// Global context: [μ; σ] of the utterance, and their share of the hidden layer.
struct Global<B: Backend> {
    moments: Tensor<B>,
    share: Tensor<B>,
}

/// The norm of the hidden layer, and what it reads.
struct HiddenNorm<B: Backend> {
    norm: NormLayer,
    sums: Tensor<B>,
}

/// How the kernels are told.
pub(crate) fn spread(deviation: Deviation) -> Spread {
    match deviation {
        Deviation::Plain | Deviation::Raised => Spread::Raised(deviation.epsilon()),
        Deviation::Floored => Spread::Floored(deviation.epsilon()),
    }
}

impl<B: Backend> AttentiveStatistics<B> {
    /// W₁ and W₂; a second input of W₁ is the global context.
    pub fn new(builder: &mut Builder<B>, specs: &AttentionLayers) -> Result<Self> {
        let context = if specs.hidden.inputs.len() > 1 {
            Some(Global { moments: Tensor::empty(builder.backend)?, share: Tensor::empty(builder.backend)? })
        } else {
            None
        };
        let hidden = ConvLayer::new(builder, &specs.hidden)?;
        let norm = if specs.hidden.norm_after().is_some() {
            Some(HiddenNorm { norm: norm_after(builder, &specs.hidden)?, sums: Tensor::empty(builder.backend)? })
        } else {
            None
        };
        Ok(Self {
            hidden,
            norm,
            logits: ConvLayer::new(builder, &specs.logits)?,
            context,
            spread: spread(specs.deviation),
            floor: specs.deviation.epsilon(),
            tanh: Tensor::empty(builder.backend)?,
            attention: Tensor::empty(builder.backend)?,
            output: Tensor::empty(builder.backend)?,
        })
    }

    /// Fills [`AttentiveStatistics::output`].
    pub fn forward(&mut self, ctx: &mut Context<B>, x: View<B>) -> Result<()> {
        let statistics = Shape::vector(2 * x.shape.channels, x.shape.batch);
        if let Some(context) = &mut self.context {
            context.moments.resize(&ctx.backend, statistics)?;
            ctx.backend.moments_forward(x, self.spread, context.moments.view_mut())?;
            self.hidden.forward_only(ctx, 1, context.moments.view(), &mut context.share)?;
        }
        let share = self.context.as_ref().map(|context| context.share.view());
        if let Some(HiddenNorm { norm, sums }) = &mut self.norm {
            self.hidden.forward(ctx, x, sums)?;
            if let Some(share) = share {
                ctx.backend.context_add(share, sums.view_mut())?;
            }
            self.tanh.resize(&ctx.backend, sums.shape())?;
            norm.forward(ctx, sums.view(), None, self.tanh.view_mut())?;
            ctx.backend.context_tanh(None, self.tanh.view_mut())?;
        } else {
            self.hidden.forward(ctx, x, &mut self.tanh)?;
            ctx.backend.context_tanh(share, self.tanh.view_mut())?;
        }
        self.logits.forward(ctx, self.tanh.view(), &mut self.attention)?;
        self.output.resize(&ctx.backend, statistics)?;
        Ok(ctx.backend.attentive_forward(x, self.attention.view_mut(), self.floor, self.output.view_mut())?)
    }

    /// What the last forward pass made.
    pub fn output(&self) -> &Tensor<B> {
        &self.output
    }

    /// Gradient to x; `through_relu` to what became x by a ReLU.
    pub fn backward(
        &mut self,
        ctx: &mut Context<B>,
        x: View<B>,
        dy: View<B>,
        through_relu: bool,
        dx: &mut Tensor<B>,
    ) -> Result<()> {
        let mut dlogits = ctx.take(self.attention.shape())?;
        let (attention, output) = (self.attention.view(), self.output.view());
        ctx.backend.attentive_backward(x, attention, output, dy, self.floor, dlogits.view_mut(), dx.view_mut())?;
        let mut d = ctx.take(self.tanh.shape())?;
        self.logits.backward(ctx, self.tanh.view(), dlogits.view(), d.view_mut())?;
        ctx.give(dlogits);

        let mut dshare = match &self.context {
            Some(context) => Some(ctx.take(context.share.shape())?),
            None => None,
        };
        let tanh = self.tanh.view();
        if let Some(HiddenNorm { norm, sums }) = &self.norm {
            ctx.backend.context_tanh_backward(tanh, d.view_mut(), None)?;
            norm.backward(ctx, sums.view(), tanh, d.view_mut(), None, self.hidden.bias())?;
            if let Some(dshare) = &mut dshare {
                ctx.backend.context_add_backward(d.view(), dshare.view_mut())?;
            }
        } else {
            ctx.backend.context_tanh_backward(tanh, d.view_mut(), dshare.as_mut().map(Tensor::view_mut))?;
            self.hidden.backward_bias(ctx, d.view())?;
        }
        self.hidden.backward_weight(ctx, 0, x, d.view())?;
        self.hidden.backward_input(ctx, 0, d.view(), true, dx.view_mut())?;
        ctx.give(d);

        if let (Some(context), Some(dshare)) = (&self.context, dshare) {
            self.hidden.backward_weight(ctx, 1, context.moments.view(), dshare.view())?;
            let mut dmoments = ctx.take(context.moments.shape())?;
            self.hidden.backward_input(ctx, 1, dshare.view(), false, dmoments.view_mut())?;
            let (moments, slopes) = (context.moments.view(), dmoments.view());
            if through_relu {
                ctx.backend.moments_backward_through_relu(x, moments, slopes, self.spread, dx.view_mut())?;
            } else {
                ctx.backend.moments_backward(x, moments, slopes, self.spread, true, dx.view_mut())?;
            }
            ctx.give(dmoments);
            ctx.give(dshare);
        } else if through_relu {
            ctx.backend.activate_backward(Activation::Relu, x, dx.view_mut())?;
        }
        Ok(())
    }
}
