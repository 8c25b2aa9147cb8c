//! ResNet with temporal statistics pooling. A channel is a plane whose rows follow each other with one zero between
//! them, and zeros before and after: one flat signal, on which a 3×3 convolution is nine shifts. For a stride of two
//! the input is first split into its four phases (even and odd rows and columns), on which the same holds.

use bregman_base::{Buffer, Disjoint};
use bregman_network::{Deviation, ResNetLayers, ResNetStage};

use super::{Conv, Execution, Layers, Product};
use crate::Result;
use crate::kernels::math::{self, Pieces};
use crate::kernels::{BLOCK, Offsets, Place};

pub(crate) struct ResNet {
    pub(super) features: usize,
    pub(super) stages: [ResNetStage; 4],
    /// How many the file has.
    pub(super) layers: usize,
    pub(super) stem: Conv,
    pub(super) blocks: Vec<ResNetBlock>,
    pub(super) linear: Product,
}

/// `y = relu(conv₂(relu(conv₁(x))) + shortcut(x))`
pub(super) struct ResNetBlock {
    pub(super) stage: usize,
    /// Whether the stage begins here with a stride of two.
    pub(super) strided: bool,
    pub(super) first: Conv,
    pub(super) second: Conv,
    pub(super) shortcut: Option<Conv>,
}

/// How a channel of a stage lies in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plane {
    height: usize,
    pub(super) width: usize,
    /// Numbers from one row to the next: its width and a zero.
    pub(super) pitch: usize,
    /// Where position (0, 0) lies.
    pub(super) start: usize,
    /// Numbers from one channel to the next.
    pub(super) size: usize,
}

impl Plane {
    fn new(height: usize, width: usize) -> Self {
        let pitch = width + 1;
        let line = Buffer::LINE;
        let start = (pitch + 1).next_multiple_of(line);
        // a zero row after the last one, or room for the last vector
        let size = (start + height * pitch + (pitch + 1).max(line)).next_multiple_of(line);
        // channels a multiple of 4 KiB apart would share a few sets of the cache
        Self { height, width, pitch, start, size: size + if size.is_multiple_of(256) { line } else { 0 } }
    }

    fn positions(self) -> usize {
        self.height * self.pitch
    }

    /// Numbers of `channels`, and of a block beyond.
    fn buffer(self, channels: usize) -> usize {
        channels * self.size + BLOCK + self.pitch + 1
    }

    /// Where offset 0, the tap (−1, −1), points to at position `q`.
    fn origin(self, q: usize) -> usize {
        self.start + q - (self.pitch + 1)
    }

    /// Offset of a tap in channel `channel`, both taps from 0 to 2.
    fn tap(self, channel: usize, row: usize, column: usize) -> usize {
        channel * self.size + row * self.pitch + column
    }

    /// Offset of a tap of stride two in the phases of channel `channel`: rows 2i − 1, 2i, 2i + 1 are row i − 1 of the
    /// odd phase, row i of the even one, row i of the odd one.
    fn strided_tap(self, channel: usize, row: usize, column: usize) -> usize {
        let [(row_phase, row), (column_phase, column)] = [row, column].map(|tap| ((tap + 1) % 2, usize::from(tap > 0)));
        self.tap(4 * channel + 2 * row_phase + column_phase, row, column)
    }
}

/// The memory of one execution.
#[derive(Default)]
pub(crate) struct ResNetWorkspace {
    /// Frames for which planes and offsets are made.
    frames: usize,
    pub(super) planes: [Plane; 4],
    /// Of every convolution, by its number in the file.
    offsets: Vec<Offsets>,
    input: Buffer,
    /// Three activations of each stage: they take turns as input, middle and output.
    pub(super) stages: [[Buffer; 3]; 4],
    /// Inputs of the stages 1 to 3 in phases.
    phases: [Buffer; 3],
    pub(super) statistics: Vec<f32>,
}

impl ResNetWorkspace {
    /// Prepares for utterances of `frames` frames; nothing to do where the last one had as many.
    fn reserve(&mut self, network: &ResNet, frames: usize) {
        if self.frames == frames {
            return;
        }
        self.frames = frames;
        self.planes = network.stages.map(|stage| Plane::new(stage.height, frames.div_ceil(stage.step)));
        let zeroed = |buffer: &mut Buffer, length| {
            buffer.grow(length);
            buffer.fill(0.0); // the zeros around the planes lie elsewhere now
        };
        zeroed(&mut self.input, self.planes[0].buffer(1));
        for (stage, (plane, buffers)) in self.planes.iter().zip(&mut self.stages).enumerate() {
            let channels = network.stages[stage].channels;
            buffers.iter_mut().for_each(|buffer| zeroed(buffer, plane.buffer(channels)));
            if stage > 0 {
                zeroed(&mut self.phases[stage - 1], plane.buffer(4 * network.stages[stage - 1].channels));
            }
        }
        let last = network.stages[3];
        self.statistics.resize(2 * last.channels * last.height, 0.0);
        self.offsets.resize_with(network.layers, Offsets::default);
        let mut resolve =
            |conv: &Conv, offset: &dyn Fn(usize) -> usize| conv.weights.resolve(offset, &mut self.offsets[conv.layer]);
        let plane = self.planes[0];
        resolve(&network.stem, &|column| plane.tap(0, column / 3, column % 3));
        for block in &network.blocks {
            let plane = self.planes[block.stage];
            let straight = |column: usize| plane.tap(column / 9, column % 9 / 3, column % 3);
            if block.strided {
                resolve(&block.first, &|column| plane.strided_tap(column / 9, column % 9 / 3, column % 3));
            } else {
                resolve(&block.first, &straight);
            }
            resolve(&block.second, &straight);
            if let Some(shortcut) = &block.shortcut {
                if block.strided {
                    resolve(shortcut, &|channel| plane.strided_tap(channel, 1, 1));
                } else {
                    resolve(shortcut, &|channel| plane.tap(channel, 1, 1));
                }
            }
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let offsets: usize = self.offsets.iter().map(Offsets::bytes).sum();
        let buffers = self.stages.iter().flatten().chain(&self.phases).chain([&self.input]);
        offsets + buffers.map(Buffer::bytes).sum::<usize>()
    }
}

impl ResNet {
    pub(super) fn new(specs: &ResNetLayers, features: usize, layers: &mut Layers) -> Result<Self> {
        let mut blocks = Vec::new();
        for block in &specs.blocks {
            blocks.push(ResNetBlock {
                stage: block.stage,
                strided: block.stride != [1, 1],
                first: layers.conv(&block.first)?,
                second: layers.conv(&block.second)?,
                shortcut: block.shortcut.as_ref().map(|shortcut| layers.conv(shortcut)).transpose()?,
            });
        }
        let (stem, linear) = (layers.conv(&specs.stem)?, layers.linear(&specs.linear)?);
        Ok(Self { features, stages: specs.stages, layers: layers.stored.len(), stem, blocks, linear })
    }

    pub(crate) fn forward(
        &self,
        run: &mut Execution,
        work: &mut ResNetWorkspace,
        features: &[f32],
        embedding: &mut [f32],
    ) {
        let last = self.convolutions(run, work, features);
        let ResNetWorkspace { planes, stages, statistics, .. } = work;
        pool(run, planes[3], self.stages[3].channels, &stages[3][last], statistics);
        self.linear.apply(run, statistics, embedding);
    }

    /// The part that is local; says which buffer of the last stage has its output.
    pub(super) fn convolutions(&self, run: &mut Execution, work: &mut ResNetWorkspace, features: &[f32]) -> usize {
        let frames = features.len() / self.features;
        work.reserve(self, frames);
        let ResNetWorkspace { planes, offsets, input, stages, phases, .. } = work;

        let plane = planes[0];
        let to = &mut **input;
        for (frame, values) in features.chunks_exact(self.features).enumerate() {
            values.iter().enumerate().for_each(|(bin, &value)| to[plane.start + bin * plane.pitch + frame] = value);
        }
        let apply = |run: &mut Execution, conv: &Conv, plane, x: &Buffer, residual: Option<&Buffer>, y: &mut Buffer| {
            convolve(run, conv, &offsets[conv.layer], plane, x, residual, y);
        };
        let mut current = 0; // which of the three buffers holds the block's input
        apply(run, &self.stem, plane, input, None, &mut stages[0][current]);
        for block in &self.blocks {
            let plane = planes[block.stage];
            let (before, here) = stages.split_at_mut(block.stage);
            let here = &mut here[0];
            if block.strided {
                let x = &mut phases[block.stage - 1];
                let inputs = self.stages[block.stage - 1].channels;
                run.timed(block.first.layer, |run| {
                    split(run, planes[block.stage - 1], plane, inputs, &before[block.stage - 1][current], x);
                });
                let [residual, middle, y] = here;
                apply(run, &block.first, plane, x, None, middle);
                if let Some(shortcut) = &block.shortcut {
                    apply(run, shortcut, plane, x, None, residual);
                }
                apply(run, &block.second, plane, middle, Some(residual), y);
                current = 2;
            } else {
                // input and output take turns in buffers 0 and 2
                let [even, middle, odd] = here;
                let (x, y) = if current == 0 { (even, odd) } else { (odd, even) };
                apply(run, &block.first, plane, x, None, middle);
                apply(run, &block.second, plane, middle, Some(x), y);
                current = 2 - current;
            }
        }
        current
    }
}

/// `y = relu(conv(x) + residual)` over all positions of a plane, in blocks; the zeros between rows stay zero.
fn convolve(
    run: &mut Execution,
    conv: &Conv,
    offsets: &Offsets,
    plane: Plane,
    x: &Buffer,
    residual: Option<&Buffer>,
    y: &mut Buffer,
) {
    let (arch, positions, rows) = (run.arch, plane.positions(), conv.weights.rows());
    let (x, y, store) = (&**x, Disjoint::new(y), conv.store(residual.map(|residual| &**residual)));
    run.layer(conv.layer, positions.div_ceil(BLOCK), |block| {
        let from = block * BLOCK;
        let width = BLOCK.min(positions - from);
        let place = Place { x: plane.origin(from), y: plane.start + from, pitch: plane.size, width };
        // SAFETY: each task has its own positions of y.
        unsafe { conv.weights.apply(arch, offsets, x, &[], place, &store, y) };
        let gap = from + (plane.width + plane.pitch - from % plane.pitch) % plane.pitch;
        let end = (from + BLOCK).min(positions.next_multiple_of(Buffer::LINE));
        if gap >= end {
            return;
        }
        for row in 0..rows {
            // SAFETY: as above.
            let y = unsafe { y.part(place.y + row * plane.size, end - from) };
            (gap..from + width).step_by(plane.pitch).for_each(|at| y[at - from] = 0.0);
            y[width..].fill(0.0);
        }
    });
}

/// Even and odd rows and columns of every channel, as four planes of half the size.
fn split(run: &Execution, from: Plane, to: Plane, channels: usize, x: &Buffer, y: &mut Buffer) {
    let (x, y) = (&**x, Disjoint::new(y));
    run.each(channels, |channel| {
        let x = &x[channel * from.size..][..from.size];
        // SAFETY: each task has its own channel.
        let y = unsafe { y.part(4 * channel * to.size, 4 * to.size) };
        for row in 0..from.height {
            let x = &x[from.start + row * from.pitch..][..from.width];
            let [even, odd] = [0, 1].map(|phase| (2 * (row % 2) + phase) * to.size + to.start + row / 2 * to.pitch);
            let (pairs, rest) = x.as_chunks::<2>();
            for (column, pair) in pairs.iter().enumerate() {
                y[even + column] = pair[0];
                y[odd + column] = pair[1];
            }
            rest.iter().for_each(|&value| y[even + pairs.len()] = value);
        }
    });
}

/// Mean and standard deviation over time of every channel and row, into `[means; deviations]`.
fn pool(run: &Execution, plane: Plane, channels: usize, x: &[f32], statistics: &mut [f32]) {
    let (means, deviations) = statistics.split_at_mut(channels * plane.height);
    let pieces = Pieces { count: 1, step: 0, pitch: plane.pitch, length: plane.width };
    let each = means.chunks_exact_mut(plane.height).zip(deviations.chunks_exact_mut(plane.height));
    for (channel, (means, deviations)) in each.enumerate() {
        math::moments(
            run.arch,
            &x[channel * plane.size + plane.start..],
            pieces,
            0,
            Deviation::Raised,
            means,
            deviations,
        );
    }
}
