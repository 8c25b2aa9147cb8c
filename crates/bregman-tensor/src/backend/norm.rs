//! Batch norm, fused with the ReLU beside it and the residual behind it.

use super::DeviceMemory;
use crate::{Result, View, ViewMut};

/// Where the ReLU sits around a batch norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relu {
    /// `bn(x)`
    Absent,
    /// `bn(relu(x))`: ECAPA-TDNN.
    Before,
    /// `relu(bn(x) + residual)`: ResNet; the residual is optional.
    After,
}

/// What both directions of a batch norm read: per-channel scale γ and shift β, and the place of the ReLU.
pub struct NormParams<'a, B: DeviceMemory> {
    /// γ
    pub scale: &'a B::Buffer,
    /// β
    pub shift: &'a B::Buffer,
    /// The fused ReLU.
    pub relu: Relu,
    /// Whether mean and deviation are constants, not those of the batch: no gradient flows through them.
    pub fixed: bool,
}

/// Statistics of a batch norm: of this batch (for the backward pass) and running (for evaluation).
pub struct NormStatistics<'a, B: DeviceMemory> {
    /// Per-channel mean of this batch.
    pub mean: &'a mut B::Buffer,
    /// Per-channel `1 / √(biased variance + 1e-5)` of this batch.
    pub inverse_std: &'a mut B::Buffer,
    /// Running mean, momentum 0.1.
    pub running_mean: &'a mut B::Buffer,
    /// Running unbiased variance, momentum 0.1.
    pub running_variance: &'a mut B::Buffer,
}

/// Where the gradients of a batch norm's parameters go.
pub struct NormGradients<'a, B: DeviceMemory> {
    /// dγ
    pub scale: &'a mut B::Buffer,
    /// dβ
    pub shift: &'a mut B::Buffer,
    /// Σ dx per channel: the gradient of a bias right before the norm, which costs nothing here and a pass over memory
    /// elsewhere.
    pub bias: Option<&'a mut B::Buffer>,
}

/// Batch norm over the batch and all positions of a channel.
pub trait BatchNorm: DeviceMemory {
    /// Batch norm with the statistics of this batch, which also move the running ones.
    fn norm_train(
        &self,
        x: View<Self>,
        norm: NormParams<Self>,
        statistics: NormStatistics<Self>,
        residual: Option<View<Self>>,
        y: ViewMut<Self>,
    ) -> Result<()>;
    /// Batch norm with the running statistics.
    fn norm_eval(
        &self,
        x: View<Self>,
        norm: NormParams<Self>,
        running_mean: &Self::Buffer,
        running_variance: &Self::Buffer,
        residual: Option<View<Self>>,
        y: ViewMut<Self>,
    ) -> Result<()>;
    /// Gradient of [`BatchNorm::norm_train`], or with fixed statistics of [`BatchNorm::norm_eval`]: `d` holds dy and
    /// becomes dx; `dresidual` receives the residual's share, and is there if and only if there was a residual.
    #[allow(clippy::too_many_arguments)]
    fn norm_backward(
        &self,
        x: View<Self>,
        y: View<Self>,
        norm: NormParams<Self>,
        mean: &Self::Buffer,
        inverse_std: &Self::Buffer,
        d: ViewMut<Self>,
        dresidual: Option<ViewMut<Self>>,
        gradients: NormGradients<Self>,
    ) -> Result<()>;
}
