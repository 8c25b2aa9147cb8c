//! Batch norm, fused with the ReLU before or after it.

use bregman_network::NormSpec;
use bregman_tensor::{Backend, Relu, View, ViewMut};

use crate::model::params::ForwardParts;
use crate::{Builder, Context, NormId, ParamId, Params, Result};

/// `y = γ · (u − μ) / √(σ² + ε) + β` per channel, over batch and positions, with a ReLU in one of three places. γ and β
/// may be missing.
///
/// # Shapes
/// x, y and the residual are alike.
pub struct NormLayer {
    learned: Option<[ParamId; 2]>,
    state: NormId,
    relu: Relu,
}

impl NormLayer {
    /// γ = 1, β = 0.
    pub fn new<B: Backend>(builder: &mut Builder<B>, spec: &NormSpec, channels: usize, relu: Relu) -> Result<Self> {
        let (learned, state) = builder.norm(spec, channels)?;
        Ok(Self { learned, state, relu })
    }

    /// Whether a forward pass takes the statistics of the batch.
    pub(crate) fn is_of_batch<B: Backend>(ctx: &Context<B>) -> bool {
        ctx.training && !ctx.params.norms_are_fixed()
    }

    /// Normalises with the statistics of the batch when training, with the running ones otherwise and where they are
    /// [fixed](crate::Params::fix_norms).
    pub fn forward<B: Backend>(
        &self,
        ctx: &mut Context<B>,
        x: View<B>,
        residual: Option<View<B>>,
        y: ViewMut<B>,
    ) -> Result<()> {
        let of_batch = Self::is_of_batch(ctx);
        let (norm, statistics, _) = self.parts(&mut ctx.params);
        if of_batch {
            ctx.backend.norm_train(x, norm, statistics, residual, y)?;
        } else {
            let (mean, variance) = (statistics.running_mean, statistics.running_variance);
            ctx.backend.norm_eval(x, norm, mean, variance, residual, y)?;
        }
        Ok(())
    }

    /// What a forward pass computes with, and the parameters of all layers.
    pub(crate) fn parts<'a, B: Backend>(&self, params: &'a mut Params<B>) -> ForwardParts<'a, B> {
        params.forward_norm(self.learned, self.state, self.relu)
    }

    /// Gradient of a training pass: `d` holds dy and becomes dx. `bias` is that of a convolution right before, whose
    /// gradient Σ dx falls out.
    pub fn backward<B: Backend>(
        &self,
        ctx: &mut Context<B>,
        x: View<B>,
        y: View<B>,
        d: ViewMut<B>,
        dresidual: Option<ViewMut<B>>,
        bias: Option<ParamId>,
    ) -> Result<()> {
        let (norm, gradients, statistics) = ctx.params.norm(self.learned, bias, self.state, self.relu);
        let (mean, inverse_std) = (statistics.mean, statistics.inverse_std);
        Ok(ctx.backend.norm_backward(x, y, norm, mean, inverse_std, d, dresidual, gradients)?)
    }
}
