//! 3×3 convolutions of few channels, by our own tensor-core kernels (`kernels/narrow.cu`): with 32 or 64 channels, a
//! library's tiles are mostly empty. Forward and gradients read every value once and write it once; sums are f32 in a
//! fixed order, so results repeat exactly.

use super::{Cuda, DeviceBuffer, Format, JOIN, Rows};
use crate::{Block, Conv, Result, Shape};

const TAPS: u32 = 9;
/// Columns of a tile, and with the border around it.
const WIDTH: u32 = 32;
const HALO: u32 = WIDTH + 2;
/// Threads of a block: `narrow_conv::THREADS` and `narrow_weight::THREADS`.
const CONV_THREADS: u32 = 256;
const WEIGHT_THREADS: u32 = 384;

/// `Planes` of kernels/narrow.cu.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
pub(super) struct Planes {
    items: u32,
    height: u32,
    width: u32,
}

impl Planes {
    pub(super) fn new(shape: Shape) -> Self {
        Self { items: shape.batch as u32, height: shape.height as u32, width: shape.width as u32 }
    }
}

/// A layer for these kernels: 32 → 32 or 64 → 64 channels.
pub(super) struct Narrow<'a> {
    cuda: &'a Cuda,
    channels: u32,
    planes: Planes,
}

impl<'a> Narrow<'a> {
    /// `None` where the layer is of another kind, or the GPU too small. `x` and `y` are the two sides, or their
    /// gradients.
    pub(super) fn new(cuda: &'a Cuda, conv: &Conv, input: Shape, x: Rows, y: Rows) -> Option<Self> {
        let channels = x.channels;
        // offsets within a tile are 32 bits
        let is_short = |rows: Rows| (input.width as u64 * u64::from(rows.stride)) < 1 << 27;
        let fits =
            |rows: Rows| rows.format == Format::Bf16 && rows.is_wide() && rows.channels == channels && is_short(rows);
        let layer = Self { cuda, channels, planes: Planes::new(input) };
        let suits = *conv == Conv::square(3, 1) && matches!(channels, 32 | 64) && fits(x) && fits(y);
        (suits && layer.conv_memory().max(layer.weight_memory()) <= cuda.device.shared_memory).then_some(layer)
    }

    /// `y = w ∗ x`, or adds that; `w` is `[out, taps, in]` in bf16.
    pub(super) fn forward(&self, x: Rows, w: u64, add: bool, y: Rows) -> Result<()> {
        let kernel = match (self.channels, add) {
            (32, false) => "narrow_forward_32",
            (32, true) => "narrow_forward_add_32",
            (_, false) => "narrow_forward_64",
            (_, true) => "narrow_forward_add_64",
        };
        self.conv(kernel, x, w, y)
    }

    /// `dx = wᵀ ∗ dy`, or adds that: a residual's gradient then needs no pass of its own.
    pub(super) fn backward_input(&self, w: u64, dy: Rows, add: bool, dx: Rows) -> Result<()> {
        let kernel = match (self.channels, add) {
            (32, false) => "narrow_input_32",
            (32, true) => "narrow_input_add_32",
            (_, false) => "narrow_input_64",
            (_, true) => "narrow_input_add_64",
        };
        self.conv(kernel, dy, w, dx)
    }

    fn conv(&self, kernel: &'static str, x: Rows, w: u64, y: Rows) -> Result<()> {
        let launch = self.cuda.device.kernel(kernel).view(x).arg(w).view(y).arg(self.planes);
        // SAFETY: both views have a row of channels per position, in chunks of 16 bytes, and the weight a value per tap
        // and pair of channels.
        unsafe { launch.run([self.blocks(), 1], [CONV_THREADS, 1], self.conv_memory()) }
    }

    /// `y = w ∗ x`, and for each channel Σ(y − k) and Σ(y − k)², k at `origin`, of every block a part at `sums`.
    pub(super) fn forward_with_sums(&self, x: Rows, w: u64, y: Rows, origin: u64, sums: u64) -> Result<()> {
        let kernel = if self.channels == 32 { "narrow_sums_32" } else { "narrow_sums_64" };
        let launch = self.cuda.device.kernel(kernel).view(x).arg(w).view(y).arg(self.planes).arg(origin).arg(sums);
        // SAFETY: as in `conv`; there is room for two values per channel and block.
        unsafe { launch.run([self.blocks(), 1], [CONV_THREADS, 1], self.conv_memory()) }
    }

    /// Blocks of a forward pass: as many as run at once, if there is work for them.
    pub(super) fn blocks(&self) -> u32 {
        self.tiles().min(self.cuda.device.processors * if self.channels == 32 { 2 } else { 1 })
    }

    /// `dw = dy ∗ x` in the columns of `block`.
    pub(super) fn backward_weight(&self, x: Rows, dy: Rows, block: Block, dw: &mut DeviceBuffer) -> Result<()> {
        let blocks = self.tiles().min(self.cuda.device.processors);
        // `narrow_weight::SPLITS`
        let count = blocks * if self.channels == 32 { 4 } else { 1 };
        let parts = self
            .cuda
            .scratch()
            .gradient
            .at_least(&self.cuda.device, count as usize * block.rows * block.columns * 4)?
            .pointer();
        let kernel = if self.channels == 32 { "narrow_weight_32" } else { "narrow_weight_64" };
        let launch = self.cuda.device.kernel(kernel).view(x).view(dy).arg(parts);
        // SAFETY: as in `conv`; every block writes its parts, for which the scratch has room.
        unsafe { launch.arg(self.planes).run([blocks, 1], [WEIGHT_THREADS, 1], self.weight_memory())? };
        join(self.cuda, parts, count, block, dw)
    }

    /// Rows of a tile.
    fn rows(&self) -> u32 {
        512 / self.channels
    }

    fn tiles(&self) -> u32 {
        let Planes { items, height, width } = self.planes;
        items * height.div_ceil(self.rows()) * width.div_ceil(WIDTH)
    }

    /// Shared memory: the weight, and two tiles of the input.
    fn conv_memory(&self) -> u32 {
        2 * self.channels * (TAPS * self.channels + 2 * (self.rows() + 2) * HALO)
    }

    /// Shared memory: two tiles of the input and of the output's gradient.
    fn weight_memory(&self) -> u32 {
        2 * self.channels * 2 * ((self.rows() + 2) * HALO + self.rows() * WIDTH)
    }
}

/// Adds `count` parts of a gradient, `[out, tap, in]` each, into the columns of `block`.
pub(super) fn join(cuda: &Cuda, parts: u64, count: u32, block: Block, dw: &mut DeviceBuffer) -> Result<()> {
    let (values, inputs) = ((block.rows * block.columns) as u32, (block.columns / block.taps) as u32);
    let launch = cuda.device.kernel("narrow_join").arg(parts).arg(count).arg(block.rows as u32).arg(inputs);
    let launch = launch.arg(dw.pointer()).arg(block.stride as u32).arg(block.first as u32);
    // SAFETY: the gradient has a value for each of a part's.
    unsafe { launch.run([values.div_ceil(JOIN[0]), 1], JOIN, JOIN[0] * JOIN[1] * 4) }
}
