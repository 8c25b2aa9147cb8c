//! What a device must be able to do to train our networks, in small traits; kernels as coarse as the fusion we want.
//!
//! Layers hold opaque buffers and call these methods; none of them sees a host slice, a memory layout or a thread.
//! Every gradient method *overwrites* its output unless it says "adds". A backend may run asynchronously: only
//! [`DeviceMemory::download`], [`DeviceMemory::read`], [`DeviceMemory::arrived`], [`Gradients::clip`] and
//! [`PointwiseOps::all_finite`] wait.
//!
//! | trait | what | in `cpu/` | in `cuda/` |
//! | --- | --- | --- | --- |
//! | [`DeviceMemory`] | arrays, copies between host and device, copies of weights | `memory` | `transfer` |
//! | [`Capture`] | a step captured and replayed | `memory` | `graph` |
//! | [`Filterbanks`] | features from samples | `filterbank` | `filterbank` |
//! | [`Convolution`] | convolutions and linear layers | `conv` | `conv` |
//! | [`BatchNorm`] | batch norm with ReLU and residual | `norm` | `norm` |
//! | [`ConvolutionNorm`] | both of them in one pass | as given here | `conv_norm` |
//! | [`PointwiseOps`] | sums, copies, activations | `pointwise` | `pointwise` |
//! | [`Pooling`] | gates, moments, attention | `pooling` | `pooling` |
//! | [`Reflection`] | signals mirrored at their ends | `reflection` | `reflection` |
//! | [`Segments`] | means of segments, and gates for each | `segments` | `segments` |
//! | [`Loss`] | margin softmax, cross-entropy | `loss` | `loss` |
//! | [`Collectives`] | sums over ranks | `collectives` | `nccl` |
//! | [`Gradients`] | all gradients at once: clipping | `pointwise` | `multi` |
//!
//! To add a backend, implement them all and name it in `tests/conformance/main.rs`.

mod capture;
mod collectives;
mod conv;
mod conv_norm;
mod filterbank;
mod gradients;
mod loss;
mod memory;
mod norm;
mod pointwise;
mod pooling;
mod reflection;
mod segments;

pub use capture::Capture;
pub use collectives::{Collectives, SupportPart};
pub use conv::{Convolution, OutputStart, Weight};
pub use conv_norm::ConvolutionNorm;
pub use filterbank::Filterbanks;
pub use gradients::Gradients;
pub use loss::{Loss, Margin};
pub use memory::{DeviceMemory, Storage};
pub use norm::{BatchNorm, NormGradients, NormParams, NormStatistics, Relu};
pub use pointwise::{Activation, PointwiseOps};
pub use pooling::{Pooling, Spread};
pub use reflection::Reflection;
pub use segments::Segments;

/// Constants shared by every backend.
pub mod constants {
    /// ε inside the square root of a batch norm.
    pub const NORM_EPSILON: f32 = 1e-5;
    /// Weight of the newest batch in the running statistics.
    pub const NORM_MOMENTUM: f32 = 0.1;
    /// Added to (moments) or the floor of (attentive) the variance before the square root in WeSpeaker's pooling.
    pub const POOL_EPSILON: f32 = 1e-7;
}

/// A device with every kernel of a training step.
pub trait Backend
where
    Self: DeviceMemory + Capture + Filterbanks + Convolution + BatchNorm + ConvolutionNorm,
    Self: PointwiseOps + Pooling + Reflection + Segments + Loss + Gradients + Collectives,
{
}

impl<B> Backend for B where
    B: DeviceMemory
        + Capture
        + Filterbanks
        + Convolution
        + BatchNorm
        + ConvolutionNorm
        + PointwiseOps
        + Pooling
        + Reflection
        + Segments
        + Loss
        + Gradients
        + Collectives
{
}
