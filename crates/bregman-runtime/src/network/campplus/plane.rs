//! Planes whose rows begin at a line of the cache: rows are computed each on its own, so a stride of two rows skips
//! every other one and moves nothing.

use bregman_base::{Buffer, Disjoint};

use super::super::maps::Shape;
use super::super::{Conv, Execution};
use crate::kernels::winograd::{Grid, Rows};
use crate::kernels::{BLOCK, Offsets, Place};

/// How a channel lies in memory: rows with at least one zero after each, a row of zeros above and below.
#[derive(Clone, Copy, Default)]
pub(in crate::network) struct RowPlane {
    height: usize,
    width: usize,
    /// Numbers from one row to the next, whole lines.
    pitch: usize,
    /// Numbers from one channel to the next.
    size: usize,
}

impl RowPlane {
    pub(super) fn new(height: usize, width: usize) -> Self {
        let line = Buffer::LINE;
        let pitch = (width + 1).next_multiple_of(line);
        let size = (height + 2) * pitch + line;
        // channels a multiple of 4 KiB apart would share a few sets of the cache
        Self { height, width, pitch, size: size + if size.is_multiple_of(256) { line } else { 0 } }
    }

    pub(super) fn height(self) -> usize {
        self.height
    }

    /// Where row 0 begins.
    fn start(self) -> usize {
        Buffer::LINE + self.pitch
    }

    /// Numbers of `channels`, and of a block beyond.
    pub(super) fn buffer(self, channels: usize) -> usize {
        channels * self.size + BLOCK + self.pitch
    }

    /// How maps of `channels` lie in memory.
    pub(super) fn shape(self, channels: usize) -> Shape {
        let rows = Rows { start: self.start(), pitch: self.pitch, channel: self.size };
        let grid = Grid::new(self.height, self.width);
        Shape { channels, rows, length: self.buffer(channels).next_multiple_of(Buffer::LINE), grid }
    }

    /// Offset of a tap in channel `channel`, both taps from 0 to 2, from the tap (−1, −1) of channel 0.
    pub(super) fn tap(self, channel: usize, row: usize, column: usize) -> usize {
        channel * self.size + row * self.pitch + column
    }

    /// Frames × bins as rows of bins.
    pub(super) fn transpose(self, features: &[f32], bins: usize, to: &mut [f32]) {
        for (frame, values) in features.chunks_exact(bins).enumerate() {
            let place = |bin: usize| self.start() + bin * self.pitch + frame;
            values.iter().enumerate().for_each(|(bin, &value)| to[place(bin)] = value);
        }
    }

    /// The rows of a channel.
    pub(super) fn rows(self, x: &[f32], channel: usize) -> impl Iterator<Item = &[f32]> {
        let start = channel * self.size + self.start();
        (0..self.height).map(move |row| &x[start + row * self.pitch..][..self.width])
    }
}

/// `y = relu(conv(x) + residual)` from one plane to another; with half as many rows, at every other row of x.
pub(super) fn convolve(
    run: &mut Execution,
    conv: &Conv,
    offsets: &Offsets,
    [from, to]: [RowPlane; 2],
    x: &[f32],
    residual: Option<&[f32]>,
    y: &mut [f32],
) {
    let stride = if from.height == to.height { 1 } else { 2 };
    let (arch, rows, block) = (run.arch, conv.weights.rows(), conv.weights.block());
    let blocks = to.width.div_ceil(block);
    let (y, epilogue) = (Disjoint::new(y), conv.epilogue(residual));
    run.layer(conv.layer, to.height * blocks, |task| {
        let (row, column) = (task / blocks, task % blocks * block);
        let width = block.min(to.width - column);
        // the tap (−1, −1) lies one row and one column before
        let x_at = from.start() + (stride * row) * from.pitch + column - (from.pitch + 1);
        let place = Place { x: x_at, y: to.start() + row * to.pitch + column, pitch: to.size, width };
        // SAFETY: each task has its own part of a row of y: whole vectors end within the row's pitch.
        unsafe { conv.weights.apply(arch, offsets, x, &[], place, &epilogue, y) };
        if column + width == to.width {
            for channel in 0..rows {
                let end = channel * to.size + to.start() + row * to.pitch + to.width;
                // SAFETY: the end of a row that no other task writes.
                unsafe { y.part(end, to.pitch - to.width) }.fill(0.0);
            }
        }
    });
}
