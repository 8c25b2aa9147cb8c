//! Maps of frames that follow each other in memory: a channel is one flat signal, in which the rows of a frame are
//! followed by a zero and the rows of the next frame. New frames are new positions at its end, so a convolution takes
//! any number of them in whole blocks.

use bregman_base::Buffer;

use crate::kernels::BLOCK;

/// How a channel lies in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) height: usize,
    /// Numbers from one frame to the next: its rows and a zero.
    pub(super) pitch: usize,
    /// Where the first frame lies.
    pub(super) start: usize,
    /// Numbers from one channel to the next.
    pub(super) size: usize,
}

impl Layout {
    /// Room for `frames` frames.
    pub(super) fn new(height: usize, frames: usize) -> Self {
        let (pitch, line) = (height + 1, Buffer::LINE);
        let start = (pitch + 1).next_multiple_of(line);
        let size = (start + frames * pitch + pitch + line).next_multiple_of(line);
        // channels a multiple of 4 KiB apart would share a few sets of the cache
        Self { height, pitch, start, size: size + if size.is_multiple_of(256) { line } else { 0 } }
    }

    /// Offset of a tap in channel `channel`; `row` and `frame` from 0 to 2.
    pub(super) fn tap(self, channel: usize, row: usize, frame: usize) -> usize {
        channel * self.size + frame * self.pitch + row
    }

    /// Offset of a tap of stride two over rows, and over frames if `halved`, in the phases of channel `channel`:
    /// 2i − 1, 2i, 2i + 1 are i − 1 of the odd phase, i of the even one, i of the odd one.
    pub(super) fn strided_tap(self, halved: bool, channel: usize, row: usize, frame: usize) -> usize {
        let phase = |tap: usize| ((tap + 1) % 2, usize::from(tap > 0));
        let ((row_phase, row), (frame_phase, frame)) = (phase(row), if halved { phase(frame) } else { (0, frame) });
        let channel = if halved { 4 * channel + 2 * row_phase + frame_phase } else { 2 * channel + row_phase };
        self.tap(channel, row, frame)
    }
}

/// Where the frames of a stage lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    pub(super) layout: Layout,
    /// The first frame in memory; frame −1 is the zeros before the beginning.
    pub(super) first: isize,
}

impl Grid {
    /// Where a frame lies, from the first one on.
    pub(super) fn position(self, frame: usize) -> usize {
        (frame as isize - self.first) as usize * self.layout.pitch
    }

    /// Where a frame lies in a channel.
    pub(super) fn at(self, frame: usize) -> usize {
        let at = self.layout.start + self.position(frame);
        assert!(at + self.layout.pitch <= self.layout.size, "no room for frame {frame}: {self:?}");
        at
    }
}

/// A signal of several channels.
pub(super) struct Signal {
    channels: usize,
    /// The channels, and a block beyond.
    pub(super) values: Buffer,
    /// One beyond its last frame.
    pub(super) end: usize,
}

impl Signal {
    pub(super) fn new(layout: Layout, channels: usize) -> Self {
        let values = Buffer::zeros(channels * layout.size + BLOCK + layout.pitch + 1);
        Self { channels, values, end: 0 }
    }

    pub(super) fn channels(&self, layout: Layout) -> impl Iterator<Item = &[f32]> {
        self.values.chunks_exact(layout.size).take(self.channels)
    }

    fn channels_mut(&mut self, layout: Layout) -> impl Iterator<Item = &mut [f32]> {
        self.values.chunks_exact_mut(layout.size).take(self.channels)
    }

    /// Appends the new frames of `x` as phases, each a channel: even and odd rows, of even and odd frames each if
    /// `halved`.
    pub(super) fn split(&mut self, grid: Grid, x: &Self, from: Grid, halved: bool) {
        let (step, size, pitch) = (if halved { 2 } else { 1 }, grid.layout.size, grid.layout.pitch);
        let new = self.end..x.end;
        for (x, phases) in x.channels(from.layout).zip(self.values.chunks_exact_mut(2 * step * size)) {
            let (even, odd) = phases.split_at_mut(step * size);
            for frame in new.clone() {
                let at = frame % step * size + grid.at(frame / step);
                let (even, odd) = (&mut even[at..at + pitch], &mut odd[at..at + pitch]);
                let (pairs, rest) = x[from.at(frame)..][..from.layout.height].as_chunks::<2>();
                for ((even, odd), pair) in even.iter_mut().zip(&mut *odd).zip(pairs) {
                    (*even, *odd) = (pair[0], pair[1]);
                }
                even[pairs.len()..].fill(0.0);
                odd[pairs.len()..].fill(0.0);
                rest.iter().for_each(|&value| even[pairs.len()] = value);
            }
        }
        self.end = x.end;
    }

    /// How many frames a convolution of this signal has: the last one waits for the next frame, or for zeros after the
    /// end.
    pub(super) fn ready(&mut self, grid: Grid, over: bool) -> usize {
        if !over {
            return self.end.saturating_sub(1);
        }
        let (at, layout) = (grid.at(self.end), grid.layout);
        self.channels_mut(layout).for_each(|channel| channel[at..at + layout.pitch].fill(0.0));
        self.end
    }

    /// As [`Signal::ready`], of phases of even and odd frames and a stride of two: the last one waits for the odd frame
    /// after an even one.
    pub(super) fn ready_in_phases(&mut self, grid: Grid, over: bool) -> usize {
        let (even, odd) = (self.end.div_ceil(2), self.end / 2);
        if !over {
            return odd;
        }
        if odd < even {
            let (at, layout) = (grid.at(odd), grid.layout);
            let odd = self.channels_mut(layout).skip(1).step_by(2);
            odd.for_each(|channel| channel[at..at + layout.pitch].fill(0.0));
        }
        even
    }

    /// Drops all frames before `shift` frames after the first one in memory.
    pub(super) fn forget(&mut self, layout: Layout, shift: usize) {
        let from = layout.start + shift * layout.pitch;
        self.channels_mut(layout).for_each(|channel| channel.copy_within(from.., layout.start));
    }
}
