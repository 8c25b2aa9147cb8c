//! Planes: the rows of a channel follow each other with one zero between them, and zeros before and after.

use bregman_base::{Buffer, Disjoint};
use pulp::Arch;

use super::super::maps::Shape;
use super::super::{Conv, Execution};
use crate::kernels::winograd::{Grid, Rows};
use crate::kernels::{BLOCK, Epilogue, Input, Offsets, Place};

/// How a channel of a stage lies in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::network) struct Plane {
    pub(super) height: usize,
    pub(in crate::network) width: usize,
    /// Numbers from one row to the next: its width and a zero.
    pub(in crate::network) pitch: usize,
    /// Where position (0, 0) lies.
    pub(in crate::network) start: usize,
    /// Numbers from one channel to the next.
    pub(in crate::network) size: usize,
}

impl Plane {
    pub(super) fn new(height: usize, width: usize) -> Self {
        let pitch = width + 1;
        let line = Buffer::LINE;
        let start = (pitch + 1).next_multiple_of(line);
        // a zero row after the last one, or room for the last vector
        let size = (start + height * pitch + (pitch + 1).max(line)).next_multiple_of(line);
        // channels a multiple of 4 KiB apart would share a few sets of the cache
        Self { height, width, pitch, start, size: size + if size.is_multiple_of(256) { line } else { 0 } }
    }

    pub(super) fn positions(self) -> usize {
        self.height * self.pitch
    }

    /// Numbers of `channels`, and of a block beyond.
    pub(super) fn buffer(self, channels: usize) -> usize {
        channels * self.size + BLOCK + self.pitch + 1
    }

    /// How maps of `channels` lie in memory.
    pub(in crate::network) fn shape(self, channels: usize) -> Shape {
        let rows = Rows { start: self.start, pitch: self.pitch, channel: self.size };
        let grid = Grid::new(self.height, self.width);
        Shape { channels, rows, length: self.buffer(channels).next_multiple_of(Buffer::LINE), grid }
    }

    /// Where offset 0, the tap (−1, −1), points to at position `q`.
    fn origin(self, q: usize) -> usize {
        self.start + q - (self.pitch + 1)
    }

    /// Offset of a tap in channel `channel`, both taps from 0 to 2.
    pub(super) fn tap(self, channel: usize, row: usize, column: usize) -> usize {
        channel * self.size + row * self.pitch + column
    }

    /// Offset of a tap of stride two in the phases of channel `channel`: rows 2i − 1, 2i, 2i + 1 are row i − 1 of the
    /// odd phase, row i of the even one, row i of the odd one.
    pub(super) fn strided_tap(self, channel: usize, row: usize, column: usize) -> usize {
        let [(row_phase, row), (column_phase, column)] = [row, column].map(|tap| ((tap + 1) % 2, usize::from(tap > 0)));
        self.tap(4 * channel + 2 * row_phase + column_phase, row, column)
    }
}

/// A convolution by plain sums over planes of one shape.
#[derive(Clone, Copy)]
pub(super) struct PlaneConv<'a> {
    pub(super) conv: &'a Conv,
    pub(super) offsets: &'a Offsets,
    pub(super) plane: Plane,
}

impl PlaneConv<'_> {
    /// `y = relu(conv(x) + residual)` over all positions, in blocks; the zeros between rows stay zero.
    pub(super) fn apply(self, run: &mut Execution, x: &[f32], residual: Option<&[f32]>, y: &mut [f32]) {
        let (arch, y, epilogue) = (run.arch, Disjoint::new(y), self.conv.epilogue(residual));
        run.layer(self.conv.layer, self.plane.positions().div_ceil(self.conv.weights.block()), |block| {
            // SAFETY: each task has its own positions of y.
            unsafe { self.block(arch, block, x.into(), &epilogue, y) };
        });
    }

    /// One block of [`PlaneConv::apply`].
    ///
    /// # Safety
    /// Nothing else may use the block in `y`, nor write what it needs of `x` and the residual.
    pub(super) unsafe fn block(self, arch: Arch, block: usize, x: Input, epilogue: &Epilogue, y: Disjoint) {
        let Self { conv, offsets, plane } = self;
        let (from, positions) = (block * conv.weights.block(), plane.positions());
        let width = conv.weights.block().min(positions - from);
        let place = Place { x: plane.origin(from), y: plane.start + from, pitch: plane.size, width };
        // SAFETY: as the caller promises.
        unsafe { conv.weights.apply(arch, offsets, x, &[], place, epilogue, y) };
        let gap = from + (plane.width + plane.pitch - from % plane.pitch) % plane.pitch;
        let end = (from + conv.weights.block()).min(positions.next_multiple_of(Buffer::LINE));
        if gap >= end {
            return;
        }
        for row in 0..conv.weights.rows() {
            // SAFETY: the block in y, which is the caller's.
            let y = unsafe { y.part(place.y + row * plane.size, end - from) };
            (gap..from + width).step_by(plane.pitch).for_each(|at| y[at - from] = 0.0);
            y[width..].fill(0.0);
        }
    }
}

/// Even and odd rows and columns of every channel, as four planes of half the size.
pub(super) fn split(run: &Execution, from: Plane, to: Plane, channels: usize, x: &[f32], y: &mut Buffer) {
    let y = Disjoint::new(y);
    run.each(channels, |channel| {
        let x = &x[channel * from.size..][..from.size];
        // SAFETY: each task has its own channel.
        let y = unsafe { y.part(4 * channel * to.size, 4 * to.size) };
        for row in 0..from.height {
            let x = &x[from.start + row * from.pitch..][..from.width];
            let y = &mut y[2 * (row % 2) * to.size + to.start + row / 2 * to.pitch..];
            let (even, odd) = y.split_at_mut(to.size);
            let (pairs, rest) = x.as_chunks::<2>();
            for ((even, odd), pair) in even.iter_mut().zip(odd).zip(pairs) {
                (*even, *odd) = (pair[0], pair[1]);
            }
            rest.iter().for_each(|&value| even[pairs.len()] = value);
        }
    });
}
