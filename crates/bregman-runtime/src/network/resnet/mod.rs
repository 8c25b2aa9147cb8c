//! ResNet with temporal statistics pooling. A channel is a plane whose rows follow each other with one zero between
//! them, and zeros before and after: one flat signal, on which a 3×3 convolution is nine shifts. For a stride of two
//! the input is first split into its four phases (even and odd rows and columns), on which the same holds.

mod chain;
mod plane;

use bregman_base::Buffer;
use bregman_network::{Deviation, ResNetLayers, ResNetStage};

use super::basic_block::BasicBlock;
use super::maps::{self, Map};
use super::{Conv, Execution, Layers, Product};
use crate::Result;
use crate::kernels::Offsets;
use crate::kernels::math::{self, Pieces};
use crate::kernels::winograd::Scratch;
use plane::{Plane, PlaneConv, split};

pub(crate) struct ResNet {
    pub(super) features: usize,
    pub(super) stages: [ResNetStage; 4],
    /// How many the file has.
    pub(super) layers: usize,
    pub(super) stem: Conv,
    pub(super) blocks: Vec<BasicBlock>,
    pub(super) linear: Product,
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
    pub(super) stages: [[Map; 3]; 4],
    /// Inputs of the stages 1 to 3 in phases.
    phases: [Buffer; 3],
    scratch: Scratch,
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
        for (stage, (plane, maps)) in self.planes.iter().zip(&mut self.stages).enumerate() {
            maps.iter_mut().for_each(Map::forget);
            if stage > 0 {
                zeroed(&mut self.phases[stage - 1], plane.buffer(4 * network.stages[stage - 1].channels));
            }
        }
        let last = network.stages[3];
        self.statistics.resize(2 * last.channels * last.height, 0.0);
        self.offsets.resize_with(network.layers, Offsets::default);
        let mut resolve = |conv: &Conv, offset: &dyn Fn(usize) -> usize| {
            if conv.weights.winograd().is_none() {
                conv.weights.resolve(offset, &mut self.offsets[conv.layer]);
            }
        };
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
        let maps: usize = self.stages.iter().flatten().map(Map::bytes).sum();
        let buffers = self.phases.iter().chain([&self.input]);
        offsets + maps + self.scratch.bytes() + buffers.map(Buffer::bytes).sum::<usize>()
    }
}

impl ResNet {
    pub(super) fn new(specs: &ResNetLayers, features: usize, layers: &mut Layers) -> Result<Self> {
        let blocks =
            specs.blocks.iter().map(|block| BasicBlock::new(layers, block, block.stage)).collect::<Result<_>>()?;
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
        let (plane, channels) = (planes[3], self.stages[3].channels);
        pool(run, plane, channels, stages[3][last].rows(run, plane.shape(channels)), statistics);
        self.linear.apply(run, statistics, embedding);
    }

    /// The part that is local; says which map of the last stage is its output.
    pub(super) fn convolutions(&self, run: &mut Execution, work: &mut ResNetWorkspace, features: &[f32]) -> usize {
        let frames = features.len() / self.features;
        work.reserve(self, frames);
        let ResNetWorkspace { planes, offsets, input, stages, phases, scratch, .. } = work;

        let plane = planes[0];
        let to = &mut **input;
        for (frame, values) in features.chunks_exact(self.features).enumerate() {
            values.iter().enumerate().for_each(|(bin, &value)| to[plane.start + bin * plane.pitch + frame] = value);
        }
        let plain = |run: &mut Execution, conv: &Conv, plane: Plane, x: &[f32], y: &mut Map| {
            let y = y.rows_to_write(plane.shape(conv.weights.rows()));
            PlaneConv { conv, offsets: &offsets[conv.layer], plane }.apply(run, x, None, y);
        };
        let mut apply =
            |run: &mut Execution, conv: &Conv, plane: Plane, x: &mut Map, residual: Option<&mut Map>, y: &mut Map| {
                let shape = plane.shape(conv.weights.rows());
                if let Some(winograd) = conv.weights.winograd() {
                    maps::convolve(run, conv, winograd, [shape; 2], x, residual, y, scratch);
                } else {
                    let (x, residual) = (x.rows(run, shape), residual.map(|residual| residual.rows(run, shape)));
                    let plain = PlaneConv { conv, offsets: &offsets[conv.layer], plane };
                    plain.apply(run, x, residual, y.rows_to_write(shape));
                }
            };
        let mut current = 0; // which of the three maps is the block's input
        let together = self.chain(run, planes, offsets, 0).inspect(|chain| chain.run(run, input, &mut stages[0]));
        match together {
            Some(chain) => current = chain.output,
            None => plain(run, &self.stem, plane, input, &mut stages[0][current]),
        }
        let mut computed = together.map(|_| 0); // the stage that is
        for block in &self.blocks {
            if computed == Some(block.stage) {
                continue;
            }
            let plane = planes[block.stage];
            let (before, here) = stages.split_at_mut(block.stage);
            let here = &mut here[0];
            if block.strided {
                let x = &mut phases[block.stage - 1];
                let (from, inputs) = (planes[block.stage - 1], self.stages[block.stage - 1].channels);
                run.timed(block.first.layer, |run| {
                    let rows = before[block.stage - 1][current].rows(run, from.shape(inputs));
                    split(run, from, plane, inputs, rows, x);
                });
                if let Some(chain) = self.chain(run, planes, offsets, block.stage) {
                    chain.run(run, x, here);
                    (current, computed) = (chain.output, Some(block.stage));
                    continue;
                }
                let [residual, middle, y] = here;
                plain(run, &block.first, plane, x, middle);
                if let Some(shortcut) = &block.shortcut {
                    plain(run, shortcut, plane, x, residual);
                }
                apply(run, &block.second, plane, middle, Some(residual), y);
                current = 2;
            } else {
                // input and output take turns in maps 0 and 2
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
