//! Statistics over the positions of an item: gates, moments, attention.

use super::PointwiseOps;
use crate::{Activation, Result, View, ViewMut};

/// How a variance becomes a standard deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// √(unbiased variance + ε)
    Raised(f32),
    /// √max(biased variance, ε)
    Floored(f32),
}

/// Kernels that reduce over positions, or spread one value per channel and item over them.
pub trait Pooling: PointwiseOps {
    /// `mean[c, b] = mean of x[c, b, …]`
    fn mean_forward(&self, x: View<Self>, mean: ViewMut<Self>) -> Result<()>;
    /// `y = residual + gate[c, b] · x`
    fn gate_forward(&self, x: View<Self>, gate: View<Self>, residual: View<Self>, y: ViewMut<Self>) -> Result<()>;
    /// `dgate[c, b] = Σ x · dy`
    fn gate_backward_gate(&self, x: View<Self>, dy: View<Self>, dgate: ViewMut<Self>) -> Result<()>;
    /// `dx = gate · dy + dmean[c, b] / positions`: through the gate, and through the mean that the gate was computed
    /// from.
    fn gate_backward_input(&self, gate: View<Self>, dmean: View<Self>, dy: View<Self>, dx: ViewMut<Self>)
    -> Result<()>;

    /// Mean and standard deviation over the width: `stats` has `2 · channels · height` channels and one position, all
    /// means first, channel-major.
    fn moments_forward(&self, x: View<Self>, spread: Spread, stats: ViewMut<Self>) -> Result<()>;
    /// Gradient of [`Pooling::moments_forward`], overwriting `dx` or adding to it. A deviation of 0, which only a
    /// constant without ε has, passes nothing on, nor does one at its floor.
    fn moments_backward(
        &self,
        x: View<Self>,
        stats: View<Self>,
        dstats: View<Self>,
        spread: Spread,
        add: bool,
        dx: ViewMut<Self>,
    ) -> Result<()>;
    /// [`Pooling::moments_backward`], adding, and then back through the ReLU that x came out of.
    fn moments_backward_through_relu(
        &self,
        x: View<Self>,
        stats: View<Self>,
        dstats: View<Self>,
        spread: Spread,
        dx: ViewMut<Self>,
    ) -> Result<()> {
        let ViewMut { data, first, of, shape } = dx;
        self.moments_backward(x, stats, dstats, spread, true, ViewMut { data: &mut *data, first, of, shape })?;
        self.activate_backward(Activation::Relu, x, ViewMut { data, first, of, shape })
    }

    /// Adds `context[c, b]` to `h`.
    fn context_add(&self, context: View<Self>, h: ViewMut<Self>) -> Result<()>;
    /// Gradient of [`Pooling::context_add`]: `dcontext = Σ dh`.
    fn context_add_backward(&self, dh: View<Self>, dcontext: ViewMut<Self>) -> Result<()>;
    /// `h = tanh(h + context[c, b])`
    fn context_tanh(&self, context: Option<View<Self>>, h: ViewMut<Self>) -> Result<()>;
    /// Gradient of [`Pooling::context_tanh`] from its result `a`: `d` holds da and becomes dh; `dcontext = Σ dh`.
    fn context_tanh_backward(&self, a: View<Self>, d: ViewMut<Self>, dcontext: Option<ViewMut<Self>>) -> Result<()>;
    /// Softmax of `attention` over the width, in place, and the statistics of `x` under it: `stats` is `[mean; std]`, 2
    /// · channels, with std = √max(variance, floor).
    fn attentive_forward(
        &self,
        x: View<Self>,
        attention: ViewMut<Self>,
        floor: f32,
        stats: ViewMut<Self>,
    ) -> Result<()>;
    /// Gradient of [`Pooling::attentive_forward`] to the logits and to `x`.
    #[allow(clippy::too_many_arguments)]
    fn attentive_backward(
        &self,
        x: View<Self>,
        attention: View<Self>,
        stats: View<Self>,
        dstats: View<Self>,
        floor: f32,
        dlogits: ViewMut<Self>,
        dx: ViewMut<Self>,
    ) -> Result<()>;
}
