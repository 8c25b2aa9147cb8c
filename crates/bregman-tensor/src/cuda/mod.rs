//! The CUDA backend: cuBLASLt and cuDNN for the products, our own kernels for all between them.
//!
//! Memory layout of an activation: `[batch, height, width, channels]`. Products then have their operands in the order that tensor cores
//! like best, eight channels of a position are one 16-byte access, and some channels of a tensor are only a matter of a stride.
//! Maps are bf16 where [`Precision::Bf16`] is asked for; values without positions (pooled statistics, gates, embeddings, scores) are a
//! thousandth of the memory and stay f32, as do weights, their gradients, statistics and duals.
//!
//! The libraries are loaded at run time: a program with this backend starts on a machine without a GPU, and [`Cuda::open`] says what is
//! missing.

mod conv;
mod cudnn;
mod device;
mod gemm;
mod memory;
mod multi;
mod update;

pub use memory::Buffer;
pub use update::{Arrays, Count, Motion, Shrinkage, TensorArrays, Update};

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudnn::Cudnn;
use device::{Device, Launch, Variant};
use gemm::Gemm;
use memory::{Scratch, Staging};
use multi::Stretches;

use crate::{
    Activation, Backend, Block, Conv, Error, Margin, Norm, NormStatistics, Relu, Result, Shape, Start, Storage, View, ViewMut, Weight,
};

/// The number format of maps and products.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// f32 throughout.
    F32,
    /// f32 in memory; products round their operands to 10 bits of mantissa.
    Tf32,
    /// bf16 maps and products, f32 sums, weights and statistics.
    #[default]
    Bf16,
}

/// How a value lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Format {
    F32,
    Bf16,
}

impl Format {
    fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

/// One NVIDIA GPU.
pub struct Cuda {
    device: Arc<Device>,
    gemm: Gemm,
    /// Convolutions with taps; without it they are laid out for products, which takes more memory and time.
    cudnn: Option<Cudnn>,
    precision: Precision,
    scratch: Mutex<Workspace>,
}

/// Memory that kernels share: each use is over, in the order of the stream, before the next begins.
struct Workspace {
    /// Column sums in parts, and what becomes of them.
    sums: Scratch,
    coefficients: Scratch,
    /// Patches of a convolution.
    columns: Scratch,
    /// A weight's gradient before its taps are put in order.
    gradient: Scratch,
    /// An operand in another format.
    converted: Scratch,
    bias: Scratch,
    /// Activations between host and device, and the host's side of it.
    staging: Scratch,
    locked: Option<Staging>,
    items: Scratch,
    counts: Scratch,
    stretches: Option<Stretches>,
}

/// A weight with its taps in the order of our products, in the format of maps.
#[derive(Default)]
pub struct Copies {
    packed: Option<Buffer>,
}

/// An activation as kernels see it.
#[derive(Clone, Copy)]
struct Rows {
    pointer: u64,
    stride: u32,
    rows: u64,
    channels: u32,
    format: Format,
}

impl Rows {
    fn variant(&self) -> Variant {
        Variant { format: self.format, wide: self.is_wide() }
    }

    fn is_wide(&self) -> bool {
        self.channels.is_multiple_of(8) && self.stride.is_multiple_of(8) && self.pointer.is_multiple_of(16)
    }

    /// The widest variant that fits all of these.
    fn variant_with(&self, others: &[Rows]) -> Variant {
        debug_assert!(others.iter().all(|other| other.format == self.format), "one format per kernel");
        Variant { format: self.format, wide: self.is_wide() && others.iter().all(Rows::is_wide) }
    }
}

impl Cuda {
    /// Opens GPU number `ordinal`.
    ///
    /// # Errors
    /// No driver, no such GPU, a library that is missing: each named.
    pub fn open(ordinal: usize, precision: Precision) -> Result<Self> {
        let device = Arc::new(Device::open(ordinal)?);
        let gemm = Gemm::new(&device, precision != Precision::F32)?;
        let cudnn = if precision == Precision::Bf16 { Cudnn::open(&device) } else { None };
        let empty = Scratch::new;
        let scratch = Workspace {
            sums: empty(),
            coefficients: empty(),
            columns: empty(),
            gradient: empty(),
            converted: empty(),
            bias: empty(),
            staging: empty(),
            locked: None,
            items: empty(),
            counts: empty(),
            stretches: None,
        };
        Ok(Self { device, gemm, cudnn, precision, scratch: Mutex::new(scratch) })
    }

    /// Whether this machine has a GPU and the libraries to use it.
    pub fn is_present() -> bool {
        Device::is_present()
    }

    /// What the GPU calls itself.
    pub fn name(&self) -> &str {
        &self.device.name
    }

    /// Waits until all work so far is done: for timing.
    ///
    /// # Errors
    /// Whatever went wrong in that work.
    pub fn synchronize(&self) -> Result<()> {
        self.device.wait()
    }

    /// Bytes of GPU memory in use, by everybody.
    ///
    /// # Errors
    /// A lost device.
    pub fn memory_in_use(&self) -> Result<usize> {
        self.device.bind()?;
        let (free, total) = cudarc::driver::result::mem_get_info().map_err(device::driver)?;
        Ok(total - free)
    }

    fn scratch(&self) -> MutexGuard<'_, Workspace> {
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn map_format(&self) -> Format {
        if self.precision == Precision::Bf16 { Format::Bf16 } else { Format::F32 }
    }

    /// Values without positions are f32.
    fn format(&self, shape: Shape) -> Format {
        if shape.positions() == 1 { Format::F32 } else { self.map_format() }
    }

    fn rows(&self, view: View<Self>) -> Rows {
        let format = self.format(view.shape);
        Rows {
            pointer: view.data.pointer() + (view.first * format.bytes()) as u64,
            stride: view.of as u32,
            rows: view.shape.plane() as u64,
            channels: view.shape.channels as u32,
            format,
        }
    }

    fn rows_mut(&self, view: &ViewMut<Self>) -> Rows {
        self.rows(View { data: view.data, first: view.first, of: view.of, shape: view.shape })
    }

    /// Launches over `rows` × `channels`: a thread for each group of channels, several rows for each thread.
    ///
    /// # Safety
    /// As [`Launch::run`].
    unsafe fn over_rows(&self, launch: Launch, variant: Variant, rows: u64, channels: u32) -> Result<()> {
        let columns = channels / variant.lanes();
        let x = columns.next_power_of_two().min(128);
        let y = 256 / x;
        let strips = rows.div_ceil(u64::from(y) * 4).clamp(1, 65_535) as u32;
        // SAFETY: the caller's promise.
        unsafe { launch.run([columns.div_ceil(x), strips], [x, y], 0) }
    }

    /// The grid of a column sum: a row of threads for the columns, up to 32, and rows in as many parts as keep the GPU busy.
    fn sum_grid(&self, variant: Variant, rows: u64, channels: u32) -> ([u32; 2], [u32; 2], u32) {
        let columns = channels / variant.lanes();
        let x = columns.next_power_of_two().min(32);
        let (columns, y) = (columns.div_ceil(x), 256 / x);
        let parts = rows.div_ceil(u64::from(y) * 4).clamp(1, u64::from((self.device.processors * 6).div_ceil(columns))) as u32;
        ([columns, parts], [x, y], 256 * variant.lanes() * 4)
    }

    /// Launches over the positions of every item (or of every row of it): see `kernels/pooling.cu`.
    ///
    /// # Safety
    /// As [`Launch::run`].
    unsafe fn over_items(&self, launch: Launch, variant: Variant, items: usize, channels: u32, floats_per_lane: u32) -> Result<()> {
        let columns = (channels / variant.lanes()).div_ceil(32);
        // SAFETY: the caller's promise.
        unsafe { launch.run([columns, items as u32], [32, 8], 32 * 8 * variant.lanes() * 4 * floats_per_lane) }
    }

    fn unary(&self, name: &'static str, from: Rows, to: Rows) -> Result<()> {
        assert_eq!((from.rows, from.channels), (to.rows, to.channels), "{name}");
        let variant = from.variant_with(&[to]);
        let launch = self.device.variant(name, variant);
        let launch = launch.arg(from.pointer).arg(from.stride).arg(to.pointer).arg(to.stride).arg(to.rows).arg(to.channels);
        // SAFETY: both views have these rows and channels.
        unsafe { self.over_rows(launch, variant, to.rows, to.channels) }
    }

    fn binary(&self, name: &'static str, a: Rows, b: Rows, to: Rows) -> Result<()> {
        assert_eq!((a.rows, a.channels, b.rows, b.channels), (to.rows, to.channels, to.rows, to.channels), "{name}");
        let variant = a.variant_with(&[b, to]);
        let launch = self.device.variant(name, variant).arg(a.pointer).arg(a.stride).arg(b.pointer).arg(b.stride);
        let launch = launch.arg(to.pointer).arg(to.stride).arg(to.rows).arg(to.channels);
        // SAFETY: all three views have these rows and channels.
        unsafe { self.over_rows(launch, variant, to.rows, to.channels) }
    }
}

/// The kernels' names of [`Relu`].
fn order(relu: Relu) -> i32 {
    match relu {
        Relu::Absent => 0,
        Relu::Before => 1,
        Relu::After => 2,
    }
}

/// Threads that join the parts of 32 columns: see `STRIPS` in kernels/norm.cu.
const JOIN: [u32; 2] = [32, 32];

/// Blocks for a kernel that walks over `count` values in steps of its grid.
fn grid(count: u64) -> [u32; 2] {
    [count.div_ceil(256).min(1 << 20) as u32, 1]
}

/// Parameters of the margin as the kernels take them.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct MarginArgument {
    scale: f32,
    margin: f32,
    easy: i32,
}

impl Cuda {
    fn norm_apply(&self, x: Rows, relu: Relu, residual: Option<Rows>, y: Rows, coefficients: u64) -> Result<()> {
        let others = [y, residual.unwrap_or(y)];
        let variant = x.variant_with(&others);
        let launch = self.device.variant("norm_apply", variant).arg(x.pointer).arg(x.stride).arg(coefficients).arg(order(relu));
        let launch = launch.arg(residual.map_or(0, |r| r.pointer)).arg(residual.map_or(0, |r| r.stride));
        let launch = launch.arg(y.pointer).arg(y.stride).arg(x.rows).arg(x.channels);
        // SAFETY: all views are alike; coefficients hold two values per channel.
        unsafe { self.over_rows(launch, variant, x.rows, x.channels) }
    }

    /// Softmax over the scores: `lengths` turns them into cosines first.
    fn softmax(
        &self,
        margin: MarginArgument,
        lengths: u64,
        labels: &Buffer,
        d: ViewMut<Self>,
        radial: u64,
        outcome: &mut Buffer,
    ) -> Result<()> {
        let scores = self.rows_mut(&d);
        assert_eq!(scores.format, Format::F32, "scores are vectors");
        let (batch, classes) = (scores.rows as u32, scores.channels);
        let mut scratch = self.scratch();
        let bytes = batch as usize * 6 * 4;
        let items = scratch.items.at_least(&self.device, bytes)?.pointer();
        let results = items + u64::from(batch) * 16;
        let launch = self.device.kernel("softmax_items").arg(margin).arg(lengths).arg(labels.pointer()).arg(scores.pointer);
        let launch = launch.arg(scores.stride).arg(classes).arg(items).arg(results);
        // SAFETY: one block per item, whose label is a class (the caller checked); items and results hold six values per item.
        unsafe { launch.run([batch, 1], [256, 1], 0)? };
        let launch = self.device.kernel("softmax_gradient").arg(margin).arg(lengths).arg(labels.pointer()).arg(items).arg(results);
        let launch = launch.arg(scores.pointer).arg(scores.stride).arg(batch).arg(classes).arg(radial).arg(outcome.pointer());
        // SAFETY: as above; `radial` has a value per class or is absent, `outcome` two.
        unsafe { launch.run([classes.div_ceil(32), 1], [32, 8], 0) }
    }
}

impl Backend for Cuda {
    type Buffer = Buffer;
    type Copies = Copies;

    fn alloc(&self, len: usize, storage: Storage) -> Result<Buffer> {
        Buffer::zeros(&self.device, len * self.bytes_per_value(storage))
    }

    fn bytes_per_value(&self, storage: Storage) -> usize {
        match storage {
            Storage::Exact | Storage::Vector => 4,
            Storage::Map => self.map_format().bytes(),
        }
    }

    fn upload(&self, from: &[f32], to: &mut Buffer) -> Result<()> {
        to.upload(from)
    }

    fn download(&self, from: &Buffer, to: &mut [f32]) -> Result<()> {
        from.download(to)
    }

    fn write(&self, from: &[f32], to: ViewMut<Self>) -> Result<()> {
        let shape = to.shape;
        if from.len() != shape.len() {
            return Err(Error::Length { what: "write", expected: shape.len(), got: from.len() });
        }
        let to = self.rows_mut(&to);
        let mut scratch = self.scratch();
        let Workspace { staging, locked, .. } = &mut *scratch;
        let staging = staging.filled(&self.device, locked, from)?;
        let variant = Variant { format: to.format, wide: false };
        let launch = self.device.variant("to_channels_last", variant).arg(staging.pointer()).arg(to.pointer).arg(to.stride);
        let launch = launch.arg(to.channels).arg(shape.positions() as u32).arg(shape.len() as u64);
        // SAFETY: both sides have as many values as the shape.
        unsafe { launch.run(grid(shape.len() as u64), [256, 1], 0) }
    }

    fn write_frames(&self, from: &[f32], to: ViewMut<Self>) -> Result<()> {
        let shape = to.shape;
        if from.len() != shape.len() {
            return Err(Error::Length { what: "write", expected: shape.len(), got: from.len() });
        }
        let to = self.rows_mut(&to);
        let mut scratch = self.scratch();
        let Workspace { staging, locked, .. } = &mut *scratch;
        let staging = staging.filled(&self.device, locked, from)?;
        if shape.height == 1 {
            // [batch, frames, features] is our own order
            let from = Rows { pointer: staging.pointer(), stride: to.channels, format: to.format, ..to };
            let variant = from.variant_with(&[to]);
            let launch = self.device.variant("convert", variant).arg(from.pointer).arg(from.stride).arg(to.pointer).arg(to.stride);
            let launch = launch.arg(to.rows).arg(to.channels);
            // SAFETY: both sides have as many values as the shape.
            return unsafe { self.over_rows(launch, variant, to.rows, to.channels) };
        }
        assert_eq!(shape.channels, 1, "a map of features has one channel");
        // [batch, width, height] → [batch, height · width]: the transposition of `write` with positions and channels in other roles
        let variant = Variant { format: to.format, wide: false };
        let launch = self.device.variant("to_channels_last", variant).arg(staging.pointer()).arg(to.pointer).arg(shape.width as u32);
        let launch = launch.arg(shape.width as u32).arg(shape.height as u32).arg(shape.len() as u64);
        assert_eq!(to.stride, 1, "a map of features is a tensor of its own");
        // SAFETY: as above.
        unsafe { launch.run(grid(shape.len() as u64), [256, 1], 0) }
    }

    fn read(&self, from: View<Self>, to: &mut [f32]) -> Result<()> {
        let shape = from.shape;
        if to.len() != shape.len() {
            return Err(Error::Length { what: "read", expected: shape.len(), got: to.len() });
        }
        let from = self.rows(from);
        let mut scratch = self.scratch();
        let staging = scratch.staging.at_least(&self.device, to.len() * 4)?;
        let variant = Variant { format: from.format, wide: false };
        let launch = self.device.variant("from_channels_last", variant).arg(from.pointer).arg(from.stride).arg(staging.pointer());
        let launch = launch.arg(from.channels).arg(shape.positions() as u32).arg(shape.len() as u64);
        // SAFETY: both sides have as many values as the shape.
        unsafe { launch.run(grid(shape.len() as u64), [256, 1], 0)? };
        staging.download(to)
    }

    fn refresh(&self, value: &Buffer, block: Block, copies: &mut Copies) -> Result<()> {
        conv::pack(self, value, block, copies)
    }

    fn conv_forward(&self, conv: &Conv, x: View<Self>, w: Weight<Self>, start: Start<Self>, y: ViewMut<Self>) -> Result<()> {
        conv::forward(self, conv, x, w, start, y)
    }

    fn conv_backward_input(&self, conv: &Conv, w: Weight<Self>, dy: View<Self>, add: bool, dx: ViewMut<Self>) -> Result<()> {
        conv::backward_input(self, conv, w, dy, add, dx)
    }

    fn conv_backward_weight(&self, conv: &Conv, x: View<Self>, dy: View<Self>, block: Block, dw: &mut Buffer) -> Result<()> {
        conv::backward_weight(self, conv, x, dy, block, dw)
    }

    fn conv_backward_bias(&self, dy: View<Self>, db: &mut Buffer) -> Result<()> {
        let dy = self.rows(dy);
        let variant = dy.variant();
        let ([columns, parts], block, shared) = self.sum_grid(variant, dy.rows, dy.channels);
        let mut scratch = self.scratch();
        let sums = scratch.sums.at_least(&self.device, parts as usize * dy.channels as usize * 4)?.pointer();
        let launch = self.device.variant("column_sums", variant).arg(dy.pointer).arg(dy.stride).arg(dy.rows).arg(dy.channels).arg(sums);
        // SAFETY: a part has a value per channel.
        unsafe { launch.run([columns, parts], block, shared)? };
        let launch = self.device.kernel("column_join").arg(sums).arg(parts).arg(dy.channels).arg(db.pointer());
        // SAFETY: as above, and so has `db`.
        unsafe { launch.run([dy.channels.div_ceil(32), 1], JOIN, 0) }
    }

    fn norm_train(
        &self,
        x: View<Self>,
        norm: Norm<Self>,
        statistics: NormStatistics<Self>,
        residual: Option<View<Self>>,
        y: ViewMut<Self>,
    ) -> Result<()> {
        let (x, residual, y) = (self.rows(x), residual.map(|r| self.rows(r)), self.rows_mut(&y));
        let variant = x.variant();
        let ([columns, parts], block, shared) = self.sum_grid(variant, x.rows, x.channels);
        let mut scratch = self.scratch();
        let sums = scratch.sums.at_least(&self.device, 2 * parts as usize * x.channels as usize * 4)?.pointer();
        let coefficients = scratch.coefficients.at_least(&self.device, 3 * x.channels as usize * 4)?.pointer();
        let launch = self.device.variant("norm_sums", variant).arg(x.pointer).arg(x.stride).arg(x.rows).arg(x.channels);
        // SAFETY: a part has two values per channel.
        unsafe { launch.arg(order(norm.relu)).arg(sums).run([columns, parts], block, shared)? };
        let launch = self.device.variant("norm_statistics", Variant { wide: false, ..variant }).arg(sums).arg(parts).arg(x.pointer);
        let launch = launch.arg(x.rows).arg(x.channels).arg(order(norm.relu)).arg(norm.scale.pointer()).arg(norm.shift.pointer());
        let launch = launch.arg(statistics.mean.pointer()).arg(statistics.inverse_std.pointer());
        let launch = launch.arg(statistics.running_mean.pointer()).arg(statistics.running_variance.pointer()).arg(coefficients);
        // SAFETY: every array has a value per channel, coefficients three.
        unsafe { launch.run([x.channels.div_ceil(32), 1], JOIN, 0)? };
        self.norm_apply(x, norm.relu, residual, y, coefficients)
    }

    fn norm_eval(
        &self,
        x: View<Self>,
        norm: Norm<Self>,
        running_mean: &Buffer,
        running_variance: &Buffer,
        residual: Option<View<Self>>,
        y: ViewMut<Self>,
    ) -> Result<()> {
        let (x, residual, y) = (self.rows(x), residual.map(|r| self.rows(r)), self.rows_mut(&y));
        let mut scratch = self.scratch();
        let coefficients = scratch.coefficients.at_least(&self.device, 3 * x.channels as usize * 4)?.pointer();
        let launch = self.device.kernel("norm_running").arg(x.channels).arg(norm.scale.pointer()).arg(norm.shift.pointer());
        let launch = launch.arg(running_mean.pointer()).arg(running_variance.pointer()).arg(coefficients);
        // SAFETY: every array has a value per channel, coefficients three.
        unsafe { launch.run([x.channels.div_ceil(256), 1], [256, 1], 0)? };
        self.norm_apply(x, norm.relu, residual, y, coefficients)
    }

    fn norm_backward(
        &self,
        x: View<Self>,
        y: View<Self>,
        norm: Norm<Self>,
        mean: &Buffer,
        inverse_std: &Buffer,
        d: ViewMut<Self>,
        dresidual: Option<ViewMut<Self>>,
        dscale: &mut Buffer,
        dshift: &mut Buffer,
    ) -> Result<()> {
        let (x, y, d, dresidual) = (self.rows(x), self.rows(y), self.rows_mut(&d), dresidual.map(|r| self.rows_mut(&r)));
        let variant = x.variant_with(&[y, d, dresidual.unwrap_or(d)]);
        let ([columns, parts], block, shared) = self.sum_grid(variant, x.rows, x.channels);
        let mut scratch = self.scratch();
        let sums = scratch.sums.at_least(&self.device, 2 * parts as usize * x.channels as usize * 4)?.pointer();
        let coefficients = scratch.coefficients.at_least(&self.device, 3 * x.channels as usize * 4)?.pointer();
        // without a residual the kernels see in x whether the last ReLU let it pass, and need not read y
        let y_pointer = if dresidual.is_some() { y.pointer } else { 0 };
        let affine = [norm.scale, norm.shift, mean, inverse_std].map(Buffer::pointer);
        let launch = self.device.variant("norm_backward_sums", variant).arg(x.pointer).arg(x.stride).arg(y_pointer).arg(y.stride);
        let launch = launch.arg(d.pointer).arg(d.stride).arg(affine).arg(order(norm.relu)).arg(x.rows).arg(x.channels).arg(sums);
        // SAFETY: all views are alike; a part has two values per channel.
        unsafe { launch.run([columns, parts], block, shared)? };
        let launch = self.device.kernel("norm_backward_join").arg(sums).arg(parts).arg(x.rows).arg(x.channels).arg(norm.scale.pointer());
        let launch = launch.arg(mean.pointer()).arg(inverse_std.pointer()).arg(dscale.pointer()).arg(dshift.pointer()).arg(coefficients);
        // SAFETY: every array has a value per channel, coefficients three.
        unsafe { launch.run([x.channels.div_ceil(32), 1], JOIN, 0)? };
        let launch = self.device.variant("norm_backward_apply", variant).arg(x.pointer).arg(x.stride).arg(y_pointer).arg(y.stride);
        let launch = launch.arg(d.pointer).arg(d.stride).arg(dresidual.map_or(0, |r| r.pointer)).arg(dresidual.map_or(0, |r| r.stride));
        let launch = launch.arg(affine).arg(coefficients).arg(order(norm.relu)).arg(x.rows).arg(x.channels);
        // SAFETY: as above.
        unsafe { self.over_rows(launch, variant, x.rows, x.channels) }
    }

    fn copy(&self, from: View<Self>, to: ViewMut<Self>) -> Result<()> {
        self.unary("copy", self.rows(from), self.rows_mut(&to))
    }

    fn add(&self, a: View<Self>, b: View<Self>, sum: ViewMut<Self>) -> Result<()> {
        self.binary("add", self.rows(a), self.rows(b), self.rows_mut(&sum))
    }

    fn accumulate(&self, from: View<Self>, to: ViewMut<Self>) -> Result<()> {
        let to = self.rows_mut(&to);
        self.binary("add", to, self.rows(from), to)
    }

    fn activate(&self, f: Activation, x: ViewMut<Self>) -> Result<()> {
        let x = self.rows_mut(&x);
        let name = match f {
            Activation::Relu => "relu",
            Activation::Sigmoid => "sigmoid",
        };
        self.unary(name, x, x)
    }

    fn activate_backward(&self, f: Activation, y: View<Self>, d: ViewMut<Self>) -> Result<()> {
        let d = self.rows_mut(&d);
        let name = match f {
            Activation::Relu => "relu_backward",
            Activation::Sigmoid => "sigmoid_backward",
        };
        self.binary(name, self.rows(y), d, d)
    }

    fn mean_forward(&self, x: View<Self>, mean: ViewMut<Self>) -> Result<()> {
        let (shape, x, mean) = (x.shape, self.rows(x), self.rows_mut(&mean));
        let variant = x.variant();
        let launch = self.device.variant("mean", variant).arg(x.pointer).arg(x.stride).arg(shape.positions() as u32);
        let launch = launch.arg(mean.pointer).arg(mean.stride).arg(x.channels);
        // SAFETY: `mean` has a row per item of x.
        unsafe { self.over_items(launch, variant, shape.batch, x.channels, 1) }
    }

    fn gate_forward(&self, x: View<Self>, gate: View<Self>, residual: View<Self>, y: ViewMut<Self>) -> Result<()> {
        let (shape, x, gate, residual, y) = (x.shape, self.rows(x), self.rows(gate), self.rows(residual), self.rows_mut(&y));
        let variant = x.variant_with(&[residual, y]);
        let launch = self.device.variant("gate", variant).arg(x.pointer).arg(x.stride).arg(gate.pointer).arg(gate.stride);
        let launch = launch.arg(residual.pointer).arg(residual.stride).arg(y.pointer).arg(y.stride);
        // SAFETY: the maps are alike; `gate` has a row per item.
        unsafe { self.over_items(launch.arg(shape.positions() as u32).arg(x.channels), variant, shape.batch, x.channels, 0) }
    }

    fn gate_backward_gate(&self, x: View<Self>, dy: View<Self>, dgate: ViewMut<Self>) -> Result<()> {
        let (shape, x, dy, dgate) = (x.shape, self.rows(x), self.rows(dy), self.rows_mut(&dgate));
        let variant = x.variant_with(&[dy]);
        let launch = self.device.variant("gate_backward_gate", variant).arg(x.pointer).arg(x.stride).arg(dy.pointer).arg(dy.stride);
        let launch = launch.arg(dgate.pointer).arg(dgate.stride).arg(shape.positions() as u32).arg(x.channels);
        // SAFETY: the maps are alike; `dgate` has a row per item.
        unsafe { self.over_items(launch, variant, shape.batch, x.channels, 1) }
    }

    fn gate_backward_input(&self, gate: View<Self>, dmean: View<Self>, dy: View<Self>, dx: ViewMut<Self>) -> Result<()> {
        let (shape, gate, dmean, dy, dx) = (dy.shape, self.rows(gate), self.rows(dmean), self.rows(dy), self.rows_mut(&dx));
        let variant = dy.variant_with(&[dx]);
        let launch = self.device.variant("gate_backward_input", variant).arg(gate.pointer).arg(gate.stride).arg(dmean.pointer);
        let launch = launch.arg(dmean.stride).arg(dy.pointer).arg(dy.stride).arg(dx.pointer).arg(dx.stride);
        // SAFETY: the maps are alike; `gate` and `dmean` have a row per item.
        unsafe { self.over_items(launch.arg(shape.positions() as u32).arg(dy.channels), variant, shape.batch, dy.channels, 0) }
    }

    fn moments_forward(&self, x: View<Self>, stats: ViewMut<Self>) -> Result<()> {
        let (shape, x, stats) = (x.shape, self.rows(x), self.rows_mut(&stats));
        let variant = x.variant();
        let launch = self.device.variant("moments", variant).arg(x.pointer).arg(x.stride).arg(shape.width as u32).arg(shape.height as u32);
        let launch = launch.arg(stats.pointer).arg(stats.stride).arg(x.channels);
        // SAFETY: `stats` has 2 · channels · height values per item.
        unsafe { self.over_items(launch, variant, shape.batch * shape.height, x.channels, 1) }
    }

    fn moments_backward(&self, x: View<Self>, stats: View<Self>, dstats: View<Self>, add: bool, dx: ViewMut<Self>) -> Result<()> {
        let (shape, x, stats, dstats, dx) = (x.shape, self.rows(x), self.rows(stats), self.rows(dstats), self.rows_mut(&dx));
        let variant = x.variant_with(&[dx]);
        let launch = self.device.variant("moments_backward", variant).arg(x.pointer).arg(x.stride).arg(stats.pointer).arg(stats.stride);
        let launch = launch.arg(dstats.pointer).arg(dstats.stride).arg(i32::from(add)).arg(dx.pointer).arg(dx.stride);
        let launch = launch.arg(shape.width as u32).arg(shape.height as u32).arg(x.channels);
        // SAFETY: the maps are alike; the statistics have 2 · channels · height values per item.
        unsafe { self.over_items(launch, variant, shape.batch * shape.height, x.channels, 0) }
    }

    fn context_tanh(&self, context: Option<View<Self>>, h: ViewMut<Self>) -> Result<()> {
        let (shape, context, h) = (h.shape, context.map(|c| self.rows(c)), self.rows_mut(&h));
        let variant = h.variant();
        let launch = self.device.variant("context_tanh", variant).arg(context.map_or(0, |c| c.pointer));
        let launch = launch.arg(context.map_or(0, |c| c.stride)).arg(h.pointer).arg(h.stride).arg(shape.positions() as u32);
        // SAFETY: `context` has a row per item or is absent.
        unsafe { self.over_items(launch.arg(h.channels), variant, shape.batch, h.channels, 0) }
    }

    fn context_tanh_backward(&self, a: View<Self>, d: ViewMut<Self>, dcontext: Option<ViewMut<Self>>) -> Result<()> {
        let (shape, a, d, dcontext) = (a.shape, self.rows(a), self.rows_mut(&d), dcontext.map(|c| self.rows_mut(&c)));
        let variant = a.variant_with(&[d]);
        let launch = self.device.variant("context_tanh_backward", variant).arg(a.pointer).arg(a.stride).arg(d.pointer).arg(d.stride);
        let launch = launch.arg(dcontext.map_or(0, |c| c.pointer)).arg(dcontext.map_or(0, |c| c.stride)).arg(shape.positions() as u32);
        // SAFETY: the maps are alike; `dcontext` has a row per item or is absent.
        unsafe { self.over_items(launch.arg(a.channels), variant, shape.batch, a.channels, 1) }
    }

    fn attentive_forward(&self, x: View<Self>, attention: ViewMut<Self>, stats: ViewMut<Self>) -> Result<()> {
        let (shape, x, attention, stats) = (x.shape, self.rows(x), self.rows_mut(&attention), self.rows_mut(&stats));
        let variant = x.variant_with(&[attention]);
        let launch = self.device.variant("attentive", variant).arg(x.pointer).arg(x.stride).arg(attention.pointer).arg(attention.stride);
        let launch = launch.arg(stats.pointer).arg(stats.stride).arg(shape.positions() as u32).arg(x.channels);
        // SAFETY: the maps are alike; `stats` has 2 · channels values per item.
        unsafe { self.over_items(launch, variant, shape.batch, x.channels, 4) }
    }

    fn attentive_backward(
        &self,
        x: View<Self>,
        attention: View<Self>,
        stats: View<Self>,
        dstats: View<Self>,
        dlogits: ViewMut<Self>,
        dx: ViewMut<Self>,
    ) -> Result<()> {
        let (shape, x, attention, stats, dstats) = (x.shape, self.rows(x), self.rows(attention), self.rows(stats), self.rows(dstats));
        let (dlogits, dx) = (self.rows_mut(&dlogits), self.rows_mut(&dx));
        let variant = x.variant_with(&[attention, dlogits, dx]);
        let launch = self.device.variant("attentive_backward", variant).arg(x.pointer).arg(x.stride).arg(attention.pointer);
        let launch = launch.arg(attention.stride).arg(stats.pointer).arg(stats.stride).arg(dstats.pointer).arg(dstats.stride);
        let launch = launch.arg(dlogits.pointer).arg(dlogits.stride).arg(dx.pointer).arg(dx.stride);
        // SAFETY: the maps are alike; the statistics have 2 · channels values per item.
        unsafe { self.over_items(launch.arg(shape.positions() as u32).arg(x.channels), variant, shape.batch, x.channels, 0) }
    }

    fn unit_forward(&self, x: View<Self>, unit: ViewMut<Self>, lengths: &mut Buffer) -> Result<()> {
        let (x, unit) = (self.rows(x), self.rows_mut(&unit));
        let launch = self.device.kernel("unit").arg(x.pointer).arg(x.stride).arg(unit.pointer).arg(unit.stride);
        // SAFETY: vectors are f32; `lengths` has a value per item.
        unsafe { launch.arg(lengths.pointer()).arg(x.channels).run([x.rows as u32, 1], [128, 1], 0) }
    }

    fn unit_backward(&self, unit: View<Self>, lengths: &Buffer, d: ViewMut<Self>) -> Result<()> {
        let (unit, d) = (self.rows(unit), self.rows_mut(&d));
        let launch = self.device.kernel("unit_backward").arg(unit.pointer).arg(unit.stride).arg(lengths.pointer());
        // SAFETY: as above.
        unsafe { launch.arg(d.pointer).arg(d.stride).arg(d.channels).run([d.rows as u32, 1], [128, 1], 0) }
    }

    fn row_lengths(&self, w: &Buffer, block: Block, lengths: &mut Buffer) -> Result<()> {
        let launch = self.device.kernel("row_lengths").arg(w.pointer()).arg(block.stride as u32).arg(block.rows as u32);
        // SAFETY: `w` is rows × stride, `lengths` has a value per row; a warp per row.
        unsafe { launch.arg(lengths.pointer()).run([(block.rows as u32).div_ceil(8), 1], [256, 1], 0) }
    }

    fn margin_loss(
        &self,
        margin: Margin,
        row_lengths: &Buffer,
        labels: &Buffer,
        d: ViewMut<Self>,
        radial: &mut Buffer,
        outcome: &mut Buffer,
    ) -> Result<()> {
        let argument = MarginArgument { scale: margin.scale, margin: margin.margin, easy: i32::from(margin.easy) };
        self.softmax(argument, row_lengths.pointer(), labels, d, radial.pointer(), outcome)
    }

    fn remove_radial(&self, w: &Buffer, radial: &Buffer, block: Block, dw: &mut Buffer) -> Result<()> {
        let count = (block.rows * block.stride) as u64;
        let launch = self.device.kernel("remove_radial").arg(w.pointer()).arg(radial.pointer()).arg(block.stride as u32);
        // SAFETY: `w` and `dw` are rows × stride, `radial` has a value per row.
        unsafe { launch.arg(dw.pointer()).arg(count).run(grid(count), [256, 1], 0) }
    }

    fn cross_entropy(&self, labels: &Buffer, d: ViewMut<Self>, outcome: &mut Buffer) -> Result<()> {
        self.softmax(MarginArgument { scale: 1.0, margin: 0.0, easy: 0 }, 0, labels, d, 0, outcome)
    }

    fn clip(&self, gradients: &mut [&mut Buffer], limit: f32) -> Result<f32> {
        multi::clip(self, gradients, limit)
    }

    fn all_finite(&self, x: View<Self>) -> Result<bool> {
        let x = self.rows(x);
        let variant = x.variant();
        let mut scratch = self.scratch();
        let counts = scratch.counts.at_least(&self.device, 4)?;
        counts.upload(&[0u32])?;
        let launch = self.device.variant("count_non_finite", variant).arg(x.pointer).arg(x.stride).arg(x.rows).arg(x.channels);
        // SAFETY: the count is one word.
        unsafe { self.over_rows(launch.arg(counts.pointer()), variant, x.rows, x.channels)? };
        let mut count = [0u32];
        counts.download(&mut count)?;
        Ok(count == [0])
    }
}
