//! Batch norm, fused with the ReLU before or after it.

use bregman_network::NormSpec;
use bregman_tensor::{Backend, NormGradients, NormParams, NormStatistics, Relu, View, ViewMut};

use crate::{Builder, Context, NormId, ParamId, Result};

/// `y = γ · (u − μ) / √(σ² + ε) + β` per channel, over batch and positions, with a ReLU in one of three places.
///
/// # Shapes
/// x, y and the residual are alike.
pub struct NormLayer {
    scale: ParamId,
    shift: ParamId,
    state: NormId,
    relu: Relu,
}

impl NormLayer {
    /// γ = 1, β = 0.
    pub fn new<B: Backend>(builder: &mut Builder<B>, spec: &NormSpec, channels: usize, relu: Relu) -> Result<Self> {
        let (scale, shift, state) = builder.norm(spec, channels)?;
        Ok(Self { scale, shift, state, relu })
    }

    /// Normalises with the statistics of the batch when training, with the running ones otherwise.
    pub fn forward<B: Backend>(
        &self,
        ctx: &mut Context<B>,
        x: View<B>,
        residual: Option<View<B>>,
        y: ViewMut<B>,
    ) -> Result<()> {
        let (scale, shift, state) = ctx.params.norm(self.scale, self.shift, self.state);
        let norm = NormParams { scale: &scale.value, shift: &shift.value, relu: self.relu };
        if ctx.training {
            let statistics = NormStatistics {
                mean: &mut state.mean,
                inverse_std: &mut state.inverse_std,
                running_mean: &mut state.running_mean,
                running_variance: &mut state.running_variance,
            };
            ctx.backend.norm_train(x, norm, statistics, residual, y)?;
        } else {
            ctx.backend.norm_eval(x, norm, &state.running_mean, &state.running_variance, residual, y)?;
        }
        Ok(())
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
        let (scale, shift, bias, state) = ctx.params.norm_after(self.scale, self.shift, bias, self.state);
        let norm = NormParams { scale: &scale.value, shift: &shift.value, relu: self.relu };
        let gradients =
            NormGradients { scale: &mut scale.grad, shift: &mut shift.grad, bias: bias.map(|bias| &mut bias.grad) };
        Ok(ctx.backend.norm_backward(x, y, norm, &state.mean, &state.inverse_std, d, dresidual, gradients)?)
    }
}
