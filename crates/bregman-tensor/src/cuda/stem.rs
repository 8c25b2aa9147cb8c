//! The 3×3 convolution of a single channel with which a network on spectrograms begins, by our own kernels
//! (`kernels/stem.cu`): one pass over the output and no patches. Nobody asks for the gradient of a spectrogram.

use super::narrow::{Planes, join};
use super::{Cuda, DeviceBuffer, Format, Rows};
use crate::{Block, Conv, Result, Shape};

/// Most outputs: a block has a thread for every eight of them.
const OUTPUTS: u32 = 256;
/// `stem::THREADS`, and how many blocks of them a multiprocessor has room for.
const THREADS: u32 = 128;
const BLOCKS: u32 = 3;

/// A layer for these kernels.
pub(super) struct Stem<'a> {
    cuda: &'a Cuda,
    planes: Planes,
}

impl<'a> Stem<'a> {
    /// `None` where the layer is of another kind. `y` is the output or its gradient.
    pub(super) fn new(cuda: &'a Cuda, conv: &Conv, input: Shape, x: Rows, y: Rows) -> Option<Self> {
        let suits = *conv == Conv::square(3, 1) && x.channels == 1 && x.format == Format::Bf16;
        let fits = y.format == Format::Bf16 && y.is_wide() && y.channels <= OUTPUTS && y.rows < 1 << 31;
        (suits && fits).then(|| Self { cuda, planes: Planes::new(input) })
    }

    /// `y = w ∗ x`, or adds that; `w` is `[out, taps]` in bf16.
    pub(super) fn forward(&self, x: Rows, w: u64, add: bool, y: Rows) -> Result<()> {
        let (blocks, threads) = self.grid(x, y);
        let launch = self.cuda.device.kernel("stem_forward").view(x).arg(w).view(y);
        // SAFETY: both views have a row of channels per position, y in chunks of 16 bytes, and the weight nine values
        // per output.
        unsafe { launch.arg(i32::from(add)).arg(self.planes).run([blocks, 1], threads, 0) }
    }

    /// `y = w ∗ x`, and for each output Σ(y − k) and Σ(y − k)², k at `origin`, of every block a part at `sums`.
    pub(super) fn forward_with_sums(&self, x: Rows, w: u64, y: Rows, origin: u64, sums: u64) -> Result<()> {
        let (blocks, threads) = self.grid(x, y);
        let launch = self.cuda.device.kernel("stem_sums").view(x).arg(w).view(y).arg(self.planes).arg(origin).arg(sums);
        // SAFETY: as in `forward`; there is room for two values per output and block, and eight are summed per thread.
        unsafe { launch.run([blocks, 1], threads, threads[0] * threads[1] * 8 * 4) }
    }

    /// `dw = dy ∗ x` in the columns of `block`.
    pub(super) fn backward_weight(&self, x: Rows, dy: Rows, block: Block, dw: &mut DeviceBuffer) -> Result<()> {
        let (blocks, threads) = self.grid(x, dy);
        let parts = self
            .cuda
            .scratch()
            .gradient
            .at_least(&self.cuda.device, blocks as usize * block.rows * block.columns * 4)?
            .pointer();
        let launch = self.cuda.device.kernel("stem_weight").view(x).view(dy).arg(parts);
        // SAFETY: as in `forward`; every block writes its part, for which the scratch has room, and sums eight values
        // per thread.
        unsafe { launch.arg(self.planes).run([blocks, 1], threads, threads[0] * threads[1] * 8 * 4)? };
        join(self.cuda, parts, blocks, block, dw)
    }

    /// Blocks of threads for every eight outputs × a power of two of columns; as many as run at once, if there is work
    /// for them.
    pub(super) fn grid(&self, x: Rows, y: Rows) -> (u32, [u32; 2]) {
        let groups = y.channels / 8;
        let columns = 1 << (THREADS / groups).ilog2();
        let blocks = x.rows.div_ceil(u64::from(columns)).min(u64::from(self.cuda.device.processors * BLOCKS));
        (blocks as u32, [groups, columns])
    }
}
