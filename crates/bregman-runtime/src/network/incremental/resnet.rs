//! ResNet's convolutions, frame after frame.
//!
//! A channel is one flat signal, here of frames after frames: the rows of a frame, a zero, the rows of the next. New
//! frames are new positions at its end, so a convolution takes any number of them in whole blocks. All signals of a
//! stage begin with the same frame, because a residual must lie as the output does.

use std::ops::Range;

use bregman_base::{Buffer, Disjoint};
use bregman_network::Deviation;

use super::super::resnet::{ResNet, ResNetBlock, ResNetWorkspace};
use super::super::{Conv, Execution};
use super::{History, ROUND};
use crate::kernels::math::{self, Pieces};
use crate::kernels::{BLOCK, Offsets, Place};

/// How a channel lies in memory.
#[derive(Clone, Copy, Debug)]
struct Layout {
    height: usize,
    /// Numbers from one frame to the next: its rows and a zero.
    pitch: usize,
    /// Where the first frame lies.
    start: usize,
    /// Numbers from one channel to the next.
    size: usize,
}

impl Layout {
    /// Room for `frames` frames.
    fn new(height: usize, frames: usize) -> Self {
        let (pitch, line) = (height + 1, Buffer::LINE);
        let start = (pitch + 1).next_multiple_of(line);
        let size = (start + frames * pitch + pitch + line).next_multiple_of(line);
        // channels a multiple of 4 KiB apart would share a few sets of the cache
        Self { height, pitch, start, size: size + if size.is_multiple_of(256) { line } else { 0 } }
    }

    fn buffer(self, channels: usize) -> Buffer {
        Buffer::zeros(channels * self.size + BLOCK + self.pitch + 1)
    }

    /// Offset of a tap in channel `channel`; `row` and `frame` from 0 to 2.
    fn tap(self, channel: usize, row: usize, frame: usize) -> usize {
        channel * self.size + frame * self.pitch + row
    }

    /// Offset of a tap of stride two in the phases of channel `channel`: 2i − 1, 2i, 2i + 1 are i − 1 of the odd phase,
    /// i of the even one, i of the odd one.
    fn strided_tap(self, channel: usize, row: usize, frame: usize) -> usize {
        let [(row_phase, row), (frame_phase, frame)] = [row, frame].map(|tap| ((tap + 1) % 2, usize::from(tap > 0)));
        self.tap(4 * channel + 2 * row_phase + frame_phase, row, frame)
    }
}

/// Where the frames of a stage lie.
#[derive(Clone, Copy, Debug)]
struct Grid {
    layout: Layout,
    /// The first frame in memory; frame −1 is the zeros before the beginning.
    first: isize,
}

impl Grid {
    /// Where a frame lies, from the first one on.
    fn position(self, frame: usize) -> usize {
        (frame as isize - self.first) as usize * self.layout.pitch
    }

    /// Where a frame lies in a channel.
    fn at(self, frame: usize) -> usize {
        let at = self.layout.start + self.position(frame);
        assert!(at + self.layout.pitch <= self.layout.size, "no room for frame {frame}: {self:?}");
        at
    }
}

/// A signal of several channels.
struct Signal {
    values: Buffer,
    /// One beyond its last frame.
    end: usize,
}

impl Signal {
    /// How many frames a convolution of this signal has: the last one waits for the next frame, or for zeros after the
    /// end.
    fn ready(&mut self, grid: Grid, over: bool) -> usize {
        if !over {
            return self.end.saturating_sub(1);
        }
        let (at, layout) = (grid.at(self.end), grid.layout);
        self.values.chunks_exact_mut(layout.size).for_each(|channel| channel[at..at + layout.pitch].fill(0.0));
        self.end
    }

    /// As [`Signal::ready`], of phases and a stride of two: the last one waits for the odd frame after an even one.
    fn ready_in_phases(&mut self, grid: Grid, over: bool) -> usize {
        let (even, odd) = (self.end.div_ceil(2), self.end / 2);
        if !over {
            return odd;
        }
        if odd < even {
            let (at, layout) = (grid.at(odd), grid.layout);
            let odd = self.values.chunks_exact_mut(layout.size).skip(1).step_by(2);
            odd.for_each(|channel| channel[at..at + layout.pitch].fill(0.0));
        }
        even
    }

    /// Drops all frames before `shift` frames after the first one in memory.
    fn forget(&mut self, layout: Layout, shift: usize) {
        let from = layout.start + shift * layout.pitch;
        self.values.chunks_exact_mut(layout.size).for_each(|channel| channel.copy_within(from.., layout.start));
    }
}

/// One stage.
struct Stage {
    grid: Grid,
    /// Its input where that has a stride: the stage before in phases of even and odd rows and frames. Their end counts
    /// frames of that stage.
    phases: Option<Signal>,
    /// Shortcut of the strided block.
    residual: Buffer,
    /// The stem's output where there are no phases, then middle and output of each block.
    signals: Vec<Signal>,
}

/// Ends of all signals.
pub(super) type Ends = Vec<usize>;

pub(super) struct ResNetFront {
    input: Signal,
    stages: Vec<Stage>,
    /// Of every convolution, by its number in the file.
    offsets: Vec<Offsets>,
}

impl ResNetFront {
    /// The last frame on which the first column depends.
    pub(super) fn context(network: &ResNet) -> usize {
        let before = |end: usize, block: &ResNetBlock| if block.strided { 2 * (end + 1) + 1 } else { end + 2 };
        network.blocks.iter().rev().fold(0, before) + 1
    }

    pub(super) fn new(network: &ResNet) -> Self {
        let (mut stages, mut tail) = (Vec::new(), 1);
        for (number, stage) in network.stages.iter().enumerate() {
            let blocks = network.blocks.iter().filter(|block| block.stage == number).count();
            // what waits for later frames, a round, and at the end what no longer waits
            let layout = Layout::new(stage.height, ROUND / stage.step + 4 * blocks + tail + 8);
            tail = (tail + 2 * blocks) / 2 + 2;
            let signal = |channels| Signal { values: layout.buffer(channels), end: 0 };
            let phases = (number > 0).then(|| signal(4 * network.stages[number - 1].channels));
            let residual = if phases.is_some() { layout.buffer(stage.channels) } else { Buffer::default() };
            let signals = (0..2 * blocks + usize::from(number == 0)).map(|_| signal(stage.channels)).collect();
            stages.push(Stage { grid: Grid { layout, first: -1 }, phases, residual, signals });
        }
        let input = Signal { values: stages[0].grid.layout.buffer(1), end: 0 };
        let mut front = Self { input, stages, offsets: Vec::new() };
        front.resolve(network);
        front
    }

    fn resolve(&mut self, network: &ResNet) {
        self.offsets.resize_with(network.layers, Offsets::default);
        let mut resolve = |conv: &Conv, offset: &dyn Fn(usize) -> usize| {
            conv.weights.plain().resolve(offset, &mut self.offsets[conv.layer]);
        };
        let layout = self.stages[0].grid.layout;
        resolve(&network.stem, &|column| layout.tap(0, column / 3, column % 3));
        for block in &network.blocks {
            let layout = self.stages[block.stage].grid.layout;
            let straight = |column: usize| layout.tap(column / 9, column % 9 / 3, column % 3);
            if block.strided {
                resolve(&block.first, &|column| layout.strided_tap(column / 9, column % 9 / 3, column % 3));
            } else {
                resolve(&block.first, &straight);
            }
            resolve(&block.second, &straight);
            if let Some(shortcut) = &block.shortcut {
                resolve(shortcut, &|channel| layout.strided_tap(channel, 1, 1));
            }
        }
    }

    /// Takes at most [`ROUND`] frames.
    pub(super) fn advance(&mut self, network: &ResNet, run: &mut Execution, frames: &[f32], history: &mut History) {
        let grid = self.stages[0].grid;
        for frame in frames.chunks_exact(network.features) {
            let (row, rest) = self.input.values[grid.at(self.input.end)..].split_at_mut(grid.layout.height);
            row.copy_from_slice(frame);
            rest[0] = 0.0;
            self.input.end += 1;
        }
        self.work(network, run, history, false);
        self.forget();
    }

    /// Computes the last frames as if the recording ended here, and says how far it had come.
    pub(super) fn finish(&mut self, network: &ResNet, run: &mut Execution, history: &mut History) -> Ends {
        let ends = self.ends().map(|end| *end).collect();
        self.work(network, run, history, true);
        ends
    }

    pub(super) fn rewind(&mut self, ends: Ends) {
        self.ends().zip(ends).for_each(|(end, before)| *end = before);
    }

    fn ends(&mut self) -> impl Iterator<Item = &mut usize> {
        let signals = self.stages.iter_mut().flat_map(|stage| stage.phases.iter_mut().chain(&mut stage.signals));
        std::iter::once(&mut self.input).chain(signals).map(|signal| &mut signal.end)
    }

    /// Every signal as far as it can be computed, or to the end of a recording that is over.
    fn work(&mut self, network: &ResNet, run: &mut Execution, history: &mut History, over: bool) {
        let Self { input, stages, offsets } = self;
        let mut apply = |conv: &Conv, grid, x: &[f32], residual: Option<&[f32]>, y: &mut Signal, to: usize| {
            if to > y.end {
                convolve(run, conv, &offsets[conv.layer], grid, x, residual, &mut y.values, y.end..to);
                y.end = to;
            }
        };
        let Stage { grid, signals, .. } = &mut stages[0];
        let to = input.ready(*grid, over);
        apply(&network.stem, *grid, &input.values, None, &mut signals[0], to);
        let mut current = 0; // which signal of its stage is the block's input
        for block in &network.blocks {
            let (before, here) = stages.split_at_mut(block.stage);
            let Stage { grid, phases, residual, signals } = &mut here[0];
            let grid = *grid;
            if let Some(phases) = phases.as_mut().filter(|_| block.strided) {
                let (from, channels) = (&before[block.stage - 1], network.stages[block.stage - 1].channels);
                split(from.grid, &from.signals[current], channels, grid, phases);
                let [middle, y] = signals.first_chunk_mut().expect("middle and output of the first block");
                let to = phases.ready_in_phases(grid, over);
                apply(&block.first, grid, &phases.values, None, middle, to);
                let to = middle.ready(grid, over);
                if let Some(shortcut) = &block.shortcut {
                    let mut signal = Signal { values: std::mem::take(residual), end: y.end };
                    apply(shortcut, grid, &phases.values, None, &mut signal, to);
                    *residual = signal.values;
                }
                apply(&block.second, grid, &middle.values, Some(residual), y, to);
                current = 1;
            } else {
                let [x, middle, y] = signals[current..].first_chunk_mut().expect("input, middle and output of a block");
                let to = x.ready(grid, over);
                apply(&block.first, grid, &x.values, None, middle, to);
                let to = middle.ready(grid, over);
                apply(&block.second, grid, &middle.values, Some(&x.values), y, to);
                current += 2;
            }
        }
        record(&stages[3], network.stages[3].channels, history);
    }

    /// Drops what no later frame needs: each stage waits for its last signal.
    fn forget(&mut self) {
        for (number, stage) in self.stages.iter_mut().enumerate() {
            let end = stage.signals.last().map_or(0, |signal| signal.end);
            let shift = (end as isize - 1 - stage.grid.first) as usize;
            if shift > 0 {
                let input = (number == 0).then_some(&mut self.input);
                let signals = stage.phases.iter_mut().chain(&mut stage.signals).chain(input);
                signals.for_each(|signal| signal.forget(stage.grid.layout, shift));
                stage.grid.first += shift as isize;
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let signals = self.stages.iter().flat_map(|stage| stage.phases.iter().chain(&stage.signals));
        let signals = signals.chain([&self.input]).map(|signal| signal.values.bytes());
        let residuals = self.stages.iter().map(|stage| stage.residual.bytes());
        signals.chain(residuals).chain(self.offsets.iter().map(Offsets::bytes)).sum()
    }
}

/// `y = relu(conv(x) + residual)` over some frames, in blocks; the zeros between frames stay zero.
#[expect(clippy::too_many_arguments, reason = "the parts of one equation")]
fn convolve(
    run: &mut Execution,
    conv: &Conv,
    offsets: &Offsets,
    grid: Grid,
    x: &[f32],
    residual: Option<&[f32]>,
    y: &mut Buffer,
    frames: Range<usize>,
) {
    let (arch, layout, weights) = (run.arch, grid.layout, conv.weights.plain());
    let (first, last) = (grid.position(frames.start), grid.position(frames.end));
    let (y, epilogue) = (Disjoint::new(y), conv.epilogue(residual));
    run.layer(conv.layer, (last - first).div_ceil(weights.block()), |block| {
        let from = first + block * weights.block();
        let width = weights.block().min(last - from);
        let at = layout.start + from;
        let place = Place { x: at - (layout.pitch + 1), y: at, pitch: layout.size, width };
        // SAFETY: each task has its own positions of y; nothing else uses what is beyond the last frame.
        unsafe { weights.apply(arch, offsets, x, &[], place, &epilogue, y) };
        let gap = (layout.height + layout.pitch - from % layout.pitch) % layout.pitch;
        for row in (0..weights.rows()).take_while(|_| gap < width) {
            // SAFETY: a row of the positions that this task has just written.
            let y = unsafe { y.part(place.y + row * layout.size, width) };
            (gap..width).step_by(layout.pitch).for_each(|at| y[at] = 0.0);
        }
    });
}

/// Appends the new frames of a signal to its phases: even and odd rows of even and odd frames, as four channels.
fn split(from: Grid, x: &Signal, channels: usize, to: Grid, phases: &mut Signal) {
    for channel in 0..channels {
        let x_channel = &x.values[channel * from.layout.size..][..from.layout.size];
        let y = &mut phases.values[4 * channel * to.layout.size..][..4 * to.layout.size];
        for frame in phases.end..x.end {
            let x = &x_channel[from.at(frame)..][..from.layout.height];
            for row_phase in 0..2 {
                let at = (2 * row_phase + frame % 2) * to.layout.size + to.at(frame / 2);
                let (rows, rest) = y[at..at + to.layout.pitch].split_at_mut(x[row_phase..].len().div_ceil(2));
                rows.iter_mut().zip(x[row_phase..].iter().step_by(2)).for_each(|(to, &from)| *to = from);
                rest.fill(0.0);
            }
        }
    }
    phases.end = x.end;
}

/// Appends the new frames of the last signal to the history.
fn record(stage: &Stage, channels: usize, history: &mut History) {
    let (grid, Some(signal)) = (stage.grid, stage.signals.last()) else { return };
    for frame in history.end..signal.end {
        let rows = |channel| &signal.values[channel * grid.layout.size + grid.at(frame)..][..grid.layout.height];
        history.push((0..channels).flat_map(rows).copied());
    }
}

/// Statistics of a window.
pub(super) fn embed(
    network: &ResNet,
    run: &mut Execution,
    work: &mut ResNetWorkspace,
    history: &History,
    window: Range<usize>,
    embedding: &mut [f32],
) {
    let (from, pitch) = history.place(window.start);
    let rows = network.stages[3].channels * network.stages[3].height;
    let statistics = &mut work.statistics;
    statistics.resize(2 * rows, 0.0);
    let (means, deviations) = statistics.split_at_mut(rows);
    let pieces = Pieces { count: 1, step: 0, pitch, length: window.len() };
    math::moments(run.arch, &history.values()[from..], pieces, 0, Deviation::Raised, means, deviations);
    network.linear.apply(run, statistics, embedding);
}
