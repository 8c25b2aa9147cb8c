//! Convolutions over maps, frame after frame. All signals of a stage begin with the same frame, because a residual must
//! lie as the output does.

use std::ops::Range;

use bregman_base::{Buffer, Disjoint};
use bregman_network::ResNetStage;

use super::super::basic_block::BasicBlock;
use super::super::{Conv, Execution};
use super::ROUND;
use super::grid::{Grid, Layout, Signal};
use crate::kernels::{Offsets, Place};

/// The convolutions of a network: those of [`BasicBlock`]s between a first and, perhaps, a last one.
pub(super) struct MapLayers<'a> {
    pub(super) stages: &'a [ResNetStage],
    pub(super) stem: &'a Conv,
    pub(super) blocks: &'a [BasicBlock],
    /// With a stride over rows; the only layer of the last stage.
    pub(super) last: Option<&'a Conv>,
    /// Whether strides halve the frames, too, and not the rows only.
    pub(super) halves_frames: bool,
}

impl MapLayers<'_> {
    /// The last frame on which the first frame of the output depends up to `end`, where what comes later depends on
    /// the output's frames up to `end`.
    pub(super) fn context(&self, end: usize) -> usize {
        let before = |end: usize, block: &BasicBlock| {
            if block.strided && self.halves_frames { 2 * (end + 1) + 1 } else { end + 2 }
        };
        self.blocks.iter().rev().fold(end + usize::from(self.last.is_some()), before) + 1
    }

    /// Phases of a channel behind a stride.
    fn phases(&self) -> usize {
        if self.halves_frames { 4 } else { 2 }
    }

    /// Every convolution.
    fn convolutions(&self) -> impl Iterator<Item = &Conv> {
        let blocks =
            self.blocks.iter().flat_map(|block| [&block.first, &block.second].into_iter().chain(&block.shortcut));
        [self.stem].into_iter().chain(blocks).chain(self.last)
    }
}

/// One stage.
struct Stage {
    grid: Grid,
    /// Its input where that has a stride: the stage before in phases of even and odd rows and frames. Their end counts
    /// frames of that stage.
    phases: Option<Signal>,
    /// Shortcut of the strided block.
    residual: Option<Signal>,
    /// The stem's output where there are no phases, then middle and output of each block; or the output of the last
    /// layer.
    signals: Vec<Signal>,
}

/// Ends of all signals.
pub(super) type Ends = Vec<usize>;

pub(super) struct MapFront {
    input: Signal,
    stages: Vec<Stage>,
    /// Of every convolution, by its number in the file.
    offsets: Vec<Offsets>,
}

impl MapFront {
    pub(super) fn new(layers: &MapLayers) -> Self {
        let (mut stages, mut tail) = (Vec::new(), 1);
        for (number, stage) in layers.stages.iter().enumerate() {
            let blocks = layers.blocks.iter().filter(|block| block.stage == number).count();
            // what waits for later frames, a round, and at the end what no longer waits
            let layout = Layout::new(stage.height, ROUND / stage.step + 4 * blocks + tail + 8);
            tail = (tail + 2 * blocks) / if layers.halves_frames { 2 } else { 1 } + 2;
            let signal = |channels| Signal::new(layout, channels);
            let phases = (number > 0).then(|| signal(layers.phases() * layers.stages[number - 1].channels));
            let strided = layers.blocks.iter().any(|block| block.stage == number && block.strided);
            let residual = strided.then(|| signal(stage.channels));
            let alone = usize::from(number == 0 || blocks == 0); // the stem, or the last layer
            let signals = (0..2 * blocks + alone).map(|_| signal(stage.channels)).collect();
            stages.push(Stage { grid: Grid { layout, first: -1 }, phases, residual, signals });
        }
        let input = Signal::new(stages[0].grid.layout, 1);
        let mut front = Self { input, stages, offsets: Vec::new() };
        front.resolve(layers);
        front
    }

    fn resolve(&mut self, layers: &MapLayers) {
        let count = layers.convolutions().map(|conv| conv.layer + 1).max().unwrap_or(0);
        self.offsets.resize_with(count, Offsets::default);
        let mut resolve = |conv: &Conv, offset: &dyn Fn(usize) -> usize| {
            conv.weights.plain().resolve(offset, &mut self.offsets[conv.layer]);
        };
        let (stages, halved) = (&self.stages, layers.halves_frames);
        let square = |stage: usize, strided: bool| {
            let layout = stages[stage].grid.layout;
            move |column: usize| {
                let (channel, row, frame) = (column / 9, column % 9 / 3, column % 3);
                if strided { layout.strided_tap(halved, channel, row, frame) } else { layout.tap(channel, row, frame) }
            }
        };
        resolve(layers.stem, &square(0, false));
        for block in layers.blocks {
            resolve(&block.first, &square(block.stage, block.strided));
            resolve(&block.second, &square(block.stage, false));
            if let Some(shortcut) = &block.shortcut {
                let layout = stages[block.stage].grid.layout;
                resolve(shortcut, &|channel| layout.strided_tap(halved, channel, 1, 1));
            }
        }
        if let Some(last) = layers.last {
            resolve(last, &square(stages.len() - 1, true));
        }
    }

    /// One beyond the last frame of the output.
    pub(super) fn end(&self) -> usize {
        self.output().1.end
    }

    /// A frame of the output that was not [dropped](MapFront::forget): the rows of each channel.
    pub(super) fn frame(&self, frame: usize) -> impl Iterator<Item = f32> {
        let (grid, signal) = self.output();
        let (at, height) = (grid.at(frame), grid.layout.height);
        signal.channels(grid.layout).flat_map(move |channel| channel[at..at + height].iter().copied())
    }

    fn output(&self) -> (Grid, &Signal) {
        let stage = self.stages.last().expect("there are stages");
        (stage.grid, stage.signals.last().expect("every stage has a signal"))
    }

    /// Takes at most [`ROUND`] frames.
    pub(super) fn push(&mut self, frames: &[f32]) {
        let grid = self.stages[0].grid;
        for frame in frames.chunks_exact(grid.layout.height) {
            let (row, rest) = self.input.values[grid.at(self.input.end)..].split_at_mut(grid.layout.height);
            row.copy_from_slice(frame);
            rest[0] = 0.0;
            self.input.end += 1;
        }
    }

    /// How far every signal has come.
    pub(super) fn ends(&mut self) -> Ends {
        self.each_end().map(|end| *end).collect()
    }

    pub(super) fn rewind(&mut self, ends: Ends) {
        self.each_end().zip(ends).for_each(|(end, before)| *end = before);
    }

    fn each_end(&mut self) -> impl Iterator<Item = &mut usize> {
        let signals = self.stages.iter_mut().flat_map(|stage| stage.phases.iter_mut().chain(&mut stage.signals));
        std::iter::once(&mut self.input).chain(signals).map(|signal| &mut signal.end)
    }

    /// Every signal as far as it can be computed, or to the end of a recording that is over.
    pub(super) fn work(&mut self, layers: &MapLayers, run: &mut Execution, over: bool) {
        let Self { input, stages, offsets } = self;
        let mut apply = |conv: &Conv, grid, x: &[f32], residual: Option<&[f32]>, y: &mut Signal, to: usize| {
            if to > y.end {
                convolve(run, conv, &offsets[conv.layer], grid, x, residual, &mut y.values, y.end..to);
                y.end = to;
            }
        };
        let Stage { grid, signals, .. } = &mut stages[0];
        let to = input.ready(*grid, over);
        apply(layers.stem, *grid, &input.values, None, &mut signals[0], to);
        let mut current = 0; // which signal of its stage is the block's input
        for block in layers.blocks {
            let (before, here) = stages.split_at_mut(block.stage);
            if block.strided {
                let (grid, to) = here[0].take_phases(&before[block.stage - 1], current, layers, over);
                let Stage { phases, residual, signals, .. } = &mut here[0];
                let x = &phases.as_ref().expect("a stage with a stride has phases").values;
                let [middle, y] = signals.first_chunk_mut().expect("middle and output of the first block");
                apply(&block.first, grid, x, None, middle, to);
                let to = middle.ready(grid, over);
                let (shortcut, residual) = block.shortcut.as_ref().zip(residual.as_mut()).expect("a stride has both");
                residual.end = y.end;
                apply(shortcut, grid, x, None, residual, to);
                apply(&block.second, grid, &middle.values, Some(&residual.values), y, to);
                current = 1;
            } else {
                let Stage { grid, signals, .. } = &mut here[0];
                let [x, middle, y] = signals[current..].first_chunk_mut().expect("input, middle and output of a block");
                let to = x.ready(*grid, over);
                apply(&block.first, *grid, &x.values, None, middle, to);
                let to = middle.ready(*grid, over);
                apply(&block.second, *grid, &middle.values, Some(&x.values), y, to);
                current += 2;
            }
        }
        if let (Some(last), Some((stage, before))) = (layers.last, stages.split_last_mut()) {
            let (grid, to) = stage.take_phases(&before[before.len() - 1], current, layers, over);
            let x = &stage.phases.as_ref().expect("a stage with a stride has phases").values;
            apply(last, grid, x, None, &mut stage.signals[0], to);
        }
    }

    /// Drops what no later frame needs: each stage waits for its last signal.
    pub(super) fn forget(&mut self) {
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
        let stages = self.stages.iter();
        let signals = stages.flat_map(|stage| stage.phases.iter().chain(&stage.residual).chain(&stage.signals));
        let signals = signals.chain([&self.input]).map(|signal| signal.values.bytes());
        signals.chain(self.offsets.iter().map(Offsets::bytes)).sum()
    }
}

impl Stage {
    /// Takes the new frames of signal `number` of the stage before in phases. Gives where this stage's frames lie and
    /// how many a convolution of the phases has.
    fn take_phases(&mut self, before: &Stage, number: usize, layers: &MapLayers, over: bool) -> (Grid, usize) {
        let (grid, phases) = (self.grid, self.phases.as_mut().expect("a stage with a stride has phases"));
        phases.split(grid, &before.signals[number], before.grid, layers.halves_frames);
        (grid, if layers.halves_frames { phases.ready_in_phases(grid, over) } else { phases.ready(grid, over) })
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
