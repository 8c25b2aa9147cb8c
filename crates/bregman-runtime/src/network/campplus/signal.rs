//! Signals: a channel is a row of frames with zeros before and after it, so that a dilated convolution is a few shifts.

use bregman_base::{Buffer, Disjoint};
use bregman_network::CampPlusConfig;

use super::super::{Conv, Execution};
use crate::kernels::{Offsets, Place, STRIP};

/// Frames of a segment that has a context of its own.
const SEGMENT: usize = CampPlusConfig::SEGMENT;
/// Zeros before a row of frames.
pub(in crate::network) const MARGIN: usize = Buffer::LINE;

/// How the rows of a signal lie in memory.
#[derive(Clone, Copy, Default)]
pub(in crate::network) struct Signal {
    pub(in crate::network) frames: usize,
    /// Numbers from one row to the next: zeros, then frames, up to a whole line.
    pub(in crate::network) pitch: usize,
}

impl Signal {
    pub(super) fn new(frames: usize) -> Self {
        Self { frames, pitch: MARGIN + frames.next_multiple_of(Buffer::LINE) }
    }

    /// Numbers of `rows`, and of a block beyond.
    pub(super) fn buffer(self, rows: usize) -> usize {
        rows * self.pitch + MARGIN + STRIP
    }

    pub(super) fn blocks(self) -> usize {
        self.frames.div_ceil(STRIP)
    }

    /// Where the products of a block lie that begin `reach` frames before it and go to `row`.
    pub(super) fn place(self, block: usize, reach: usize, row: usize) -> Place {
        let from = block * STRIP;
        let width = STRIP.min(self.frames - from);
        Place { x: MARGIN + from - reach, y: row * self.pitch + MARGIN + from, pitch: self.pitch, width }
    }

    /// First frame and number of frames of each segment.
    pub(super) fn segments(self) -> impl Iterator<Item = [usize; 2]> {
        (0..self.frames).step_by(SEGMENT).map(move |from| [from, SEGMENT.min(self.frames - from)])
    }
}

/// A convolution with taps, the first of them `reach` frames before its output.
pub(super) struct Shifted<'a> {
    pub(super) conv: &'a Conv,
    pub(super) offsets: &'a Offsets,
    pub(super) reach: usize,
}

impl Shifted<'_> {
    /// Writes the rows of `y` from `row` on.
    pub(super) fn apply(&self, run: &mut Execution, signal: Signal, x: &[f32], row: usize, y: &mut Buffer) {
        let Self { conv, offsets, reach } = *self;
        let (arch, y, epilogue) = (run.arch, Disjoint::new(y), conv.epilogue(None));
        run.layer(conv.layer, signal.blocks(), |block| {
            // SAFETY: each task has its own frames of y.
            unsafe { conv.weights.apply(arch, offsets, x, &[], signal.place(block, reach, row), &epilogue, y) };
        });
    }
}
