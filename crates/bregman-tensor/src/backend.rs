//! What a device must be able to do to train our networks: one trait, kernels as coarse as the fusion we want.
//!
//! Layers hold opaque buffers and call these methods; none of them sees a host slice, a memory layout or a thread.
//! Every gradient method *overwrites* its output unless it says "adds". A backend may run asynchronously: only
//! [`Backend::download`], [`Backend::read`], [`Backend::clip`] and [`Backend::all_finite`] wait.

use crate::{Block, Conv, FilterbankTables, Result, Shape, View, ViewMut};

/// What a buffer is for, so that a backend can choose its number format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Weights, gradients of weights, statistics, duals: always f32.
    Exact,
    /// Activations with one position, such as embeddings and gates, and their gradients.
    Vector,
    /// Activations with many positions and their gradients: f32, or narrower where the backend computes in mixed
    /// precision.
    Map,
}

impl Storage {
    /// How an activation of this shape is stored.
    pub fn of(shape: Shape) -> Self {
        if shape.positions() == 1 { Self::Vector } else { Self::Map }
    }
}

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

/// Pointwise non-linearities outside of a batch norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `max(x, 0)`
    Relu,
    /// `1 / (1 + exp(−x))`
    Sigmoid,
}

/// A weight as a kernel reads it: the f32 values and whatever the backend derived from them in [`Backend::refresh`].
pub struct Weight<'a, B: Backend> {
    /// Row-major values of the whole matrix.
    pub value: &'a B::Buffer,
    /// The columns meant.
    pub block: Block,
    /// Compressed or converted copies of this block.
    pub copies: &'a B::Copies,
}

impl<B: Backend> Clone for Weight<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Weight<'_, B> {}

/// What the output of a convolution holds before the products are added.
pub enum Start<'a, B: Backend> {
    /// Nothing: the output is overwritten.
    Zero,
    /// One value per output channel.
    Bias(&'a B::Buffer),
    /// What is there already.
    Keep,
}

/// What both directions of a batch norm read: per-channel scale γ and shift β, and the place of the ReLU.
pub struct Norm<'a, B: Backend> {
    /// γ
    pub scale: &'a B::Buffer,
    /// β
    pub shift: &'a B::Buffer,
    /// The fused ReLU.
    pub relu: Relu,
}

/// Statistics of a batch norm: of this batch (for the backward pass) and running (for evaluation).
pub struct NormStatistics<'a, B: Backend> {
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
pub struct NormGradients<'a, B: Backend> {
    /// dγ
    pub scale: &'a mut B::Buffer,
    /// dβ
    pub shift: &'a mut B::Buffer,
    /// Σ dx per channel: the gradient of a bias right before the norm, which costs nothing here and a pass over memory
    /// elsewhere.
    pub bias: Option<&'a mut B::Buffer>,
}

/// Additive angular margin softmax: scale, margin in radians and the easy-margin switch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margin {
    /// s, the inverse temperature of the cosines.
    pub scale: f32,
    /// m, added to the angle of the target class.
    pub margin: f32,
    /// Apply the margin only where the target's cosine is positive, instead of continuing it linearly beyond cos(π −
    /// m).
    pub easy: bool,
}

/// Constants shared by every backend.
pub mod constants {
    /// ε inside the square root of a batch norm.
    pub const NORM_EPSILON: f32 = 1e-5;
    /// Weight of the newest batch in the running statistics.
    pub const NORM_MOMENTUM: f32 = 0.1;
    /// Added to (moments) or the floor of (attentive) the variance before the square root in statistics pooling.
    pub const POOL_EPSILON: f32 = 1e-7;
}

/// A device: memory, and every kernel of a training step.
pub trait Backend: Sized + Send + Sync + 'static {
    /// An array on the device.
    type Buffer: Send + Sync;
    /// What the device derives from a weight to multiply faster: its non-zeros compressed, a bf16 copy, nothing.
    type Copies: Default + Send + Sync;
    /// What [`Backend::replay`] remembers of a piece of work.
    type Recording: Default + Send + Sync;
    /// A filterbank, as the device computes it.
    type Filterbank: Send + Sync;

    /// A zeroed array.
    fn alloc(&self, len: usize, storage: Storage) -> Result<Self::Buffer>;
    /// Memory that one value takes.
    fn bytes_per_value(&self, storage: Storage) -> usize;
    /// Copies f32 values to the first `from.len()` places of an exact buffer.
    fn upload(&self, from: &[f32], to: &mut Self::Buffer) -> Result<()>;
    /// Copies the first `to.len()` values of an exact buffer back.
    fn download(&self, from: &Self::Buffer, to: &mut [f32]) -> Result<()>;
    /// Fills an activation from values in `[batch, channels, height, width]` order.
    fn write(&self, from: &[f32], to: ViewMut<Self>) -> Result<()>;
    /// Fills an activation from frames: values in `[batch, width, features]` order, where a feature is a channel of a
    /// signal or a height of a one-channel map.
    fn write_frames(&self, from: &[f32], to: ViewMut<Self>) -> Result<()>;
    /// As [`Backend::write_frames`], but beside the work handed over so far, which must not use `to`; work handed over
    /// later waits for it.
    fn write_frames_ahead(&self, from: &[f32], to: ViewMut<Self>) -> Result<()> {
        self.write_frames(from, to)
    }
    /// Prepares features from samples.
    fn filterbank(&self, tables: FilterbankTables) -> Result<Self::Filterbank>;
    /// As [`Backend::write_frames`] with the features of utterances of equal length: samples in `[batch, samples]`
    /// order.
    fn write_samples(&self, filterbank: &Self::Filterbank, from: &[f32], to: ViewMut<Self>) -> Result<()>;
    /// [`Backend::write_samples`] as [`Backend::write_frames_ahead`].
    fn write_samples_ahead(&self, filterbank: &Self::Filterbank, from: &[f32], to: ViewMut<Self>) -> Result<()> {
        self.write_samples(filterbank, from, to)
    }
    /// Reads an activation into `[batch, channels, height, width]` order.
    fn read(&self, from: View<Self>, to: &mut [f32]) -> Result<()>;
    /// Brings the copies of a weight up to date; to be called after every change of its values.
    fn refresh(&self, value: &Self::Buffer, block: Block, copies: &mut Self::Copies) -> Result<()>;

    /// Repeats what was recorded under this key: then `true`. Otherwise the caller does the work and tells
    /// [`Backend::recorded`]. All that the work depends on is in the key or in buffers, which are the same every
    /// time; it reads nothing back.
    fn replay(&self, _recording: &mut Self::Recording, _key: &[u64]) -> Result<bool> {
        Ok(false)
    }
    /// Ends what began with [`Backend::replay`]: whether the work was done. `false`: it must be done once more,
    /// whatever came of it.
    fn recorded(&self, _recording: &mut Self::Recording, _done: bool) -> Result<bool> {
        Ok(true)
    }

    /// `y = start + w ∗ x`
    fn conv_forward(
        &self,
        conv: &Conv,
        x: View<Self>,
        w: Weight<Self>,
        start: Start<Self>,
        y: ViewMut<Self>,
    ) -> Result<()>;
    /// `dx = wᵀ ∗ dy`, or adds that.
    fn conv_backward_input(
        &self,
        conv: &Conv,
        w: Weight<Self>,
        dy: View<Self>,
        add: bool,
        dx: ViewMut<Self>,
    ) -> Result<()>;
    /// `dw = dy ∗ x` in the columns of `block`; dense, because the optimizer's dual variable needs it everywhere.
    fn conv_backward_weight(
        &self,
        conv: &Conv,
        x: View<Self>,
        dy: View<Self>,
        block: Block,
        dw: &mut Self::Buffer,
    ) -> Result<()>;
    /// `db[c] = Σ dy[c, …]`
    fn conv_backward_bias(&self, dy: View<Self>, db: &mut Self::Buffer) -> Result<()>;

    /// Batch norm with the statistics of this batch, which also move the running ones.
    fn norm_train(
        &self,
        x: View<Self>,
        norm: Norm<Self>,
        statistics: NormStatistics<Self>,
        residual: Option<View<Self>>,
        y: ViewMut<Self>,
    ) -> Result<()>;
    /// Batch norm with the running statistics.
    fn norm_eval(
        &self,
        x: View<Self>,
        norm: Norm<Self>,
        running_mean: &Self::Buffer,
        running_variance: &Self::Buffer,
        residual: Option<View<Self>>,
        y: ViewMut<Self>,
    ) -> Result<()>;
    /// Gradient of [`Backend::norm_train`]: `d` holds dy and becomes dx; `dresidual` receives the residual's share, and
    /// is there if and only if there was a residual.
    #[allow(clippy::too_many_arguments)]
    fn norm_backward(
        &self,
        x: View<Self>,
        y: View<Self>,
        norm: Norm<Self>,
        mean: &Self::Buffer,
        inverse_std: &Self::Buffer,
        d: ViewMut<Self>,
        dresidual: Option<ViewMut<Self>>,
        gradients: NormGradients<Self>,
    ) -> Result<()>;

    /// `to = from`
    fn copy(&self, from: View<Self>, to: ViewMut<Self>) -> Result<()>;
    /// `sum = a + b`
    fn add(&self, a: View<Self>, b: View<Self>, sum: ViewMut<Self>) -> Result<()>;
    /// Adds `from` to `to`.
    fn accumulate(&self, from: View<Self>, to: ViewMut<Self>) -> Result<()>;
    /// `x = f(x)`
    fn activate(&self, f: Activation, x: ViewMut<Self>) -> Result<()>;
    /// Gradient of [`Backend::activate`] from its result `y`: `d` holds dy and becomes dx.
    fn activate_backward(&self, f: Activation, y: View<Self>, d: ViewMut<Self>) -> Result<()>;

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

    /// Mean and standard deviation `√(unbiased variance + ε)` over the width: `stats` has `2 · channels · height`
    /// channels and one position, all means first, channel-major.
    fn moments_forward(&self, x: View<Self>, stats: ViewMut<Self>) -> Result<()>;
    /// Gradient of [`Backend::moments_forward`], overwriting `dx` or adding to it.
    fn moments_backward(
        &self,
        x: View<Self>,
        stats: View<Self>,
        dstats: View<Self>,
        add: bool,
        dx: ViewMut<Self>,
    ) -> Result<()>;

    /// `h = tanh(h + context[c, b])`
    fn context_tanh(&self, context: Option<View<Self>>, h: ViewMut<Self>) -> Result<()>;
    /// Gradient of [`Backend::context_tanh`] from its result `a`: `d` holds da and becomes dh; `dcontext = Σ dh`.
    fn context_tanh_backward(&self, a: View<Self>, d: ViewMut<Self>, dcontext: Option<ViewMut<Self>>) -> Result<()>;
    /// Softmax of `attention` over the width, in place, and the statistics of `x` under it: `stats` is `[mean; std]`, 2
    /// · channels.
    fn attentive_forward(&self, x: View<Self>, attention: ViewMut<Self>, stats: ViewMut<Self>) -> Result<()>;
    /// Gradient of [`Backend::attentive_forward`] to the logits and to `x`.
    fn attentive_backward(
        &self,
        x: View<Self>,
        attention: View<Self>,
        stats: View<Self>,
        dstats: View<Self>,
        dlogits: ViewMut<Self>,
        dx: ViewMut<Self>,
    ) -> Result<()>;

    /// Scales every item of a vector to length 1 and keeps the lengths it had.
    fn unit_forward(&self, x: View<Self>, unit: ViewMut<Self>, lengths: &mut Self::Buffer) -> Result<()>;
    /// Gradient of [`Backend::unit_forward`]: `d` holds the unit vectors' gradient and becomes dx.
    fn unit_backward(&self, unit: View<Self>, lengths: &Self::Buffer, d: ViewMut<Self>) -> Result<()>;
    /// `lengths[r] = ‖w[r, :]‖`, or 1 where all of the row is 0.
    fn row_lengths(&self, w: &Self::Buffer, block: Block, lengths: &mut Self::Buffer) -> Result<()>;
    /// Margin softmax and cross-entropy, averaged over the batch. `d` holds `w · unit` (classes × batch) and becomes
    /// the loss's gradient to it; `radial[r]` becomes the factor with which `w[r, :]` must be subtracted from the
    /// weight gradient (the length of a row does not matter). `outcome = [loss, correct]`. Labels are class numbers
    /// written as f32.
    fn margin_loss(
        &self,
        margin: Margin,
        row_lengths: &Self::Buffer,
        labels: &Self::Buffer,
        d: ViewMut<Self>,
        radial: &mut Self::Buffer,
        outcome: &mut Self::Buffer,
    ) -> Result<()>;
    /// Subtracts `radial[r] · w[r, :]` from `dw[r, :]`.
    fn remove_radial(&self, w: &Self::Buffer, radial: &Self::Buffer, block: Block, dw: &mut Self::Buffer)
    -> Result<()>;
    /// Plain cross-entropy, averaged: `d` holds the logits (classes × batch) and becomes their gradient; `outcome =
    /// [loss, correct]`.
    fn cross_entropy(&self, labels: &Self::Buffer, d: ViewMut<Self>, outcome: &mut Self::Buffer) -> Result<()>;

    /// Scales all gradients so that their joint ℓ2 norm is at most `limit`; returns the norm before.
    fn clip(&self, gradients: &mut [&mut Self::Buffer], limit: f32) -> Result<f32>;
    /// Whether no value is NaN or infinite.
    fn all_finite(&self, x: View<Self>) -> Result<bool>;
}
