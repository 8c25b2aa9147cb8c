//! ResNet with temporal statistics pooling. A channel is a plane whose rows follow each other with one zero between
//! them, and zeros before and after: one flat signal, on which a 3×3 convolution is nine shifts. For a stride of two
//! the input is first split into its four phases (even and odd rows and columns), on which the same holds.

use bregman_base::{Buffer, Disjoint};
use bregman_network::{Deviation, ResNetLayers, ResNetStage};
use pulp::Arch;

use super::maps::{self, Map, Shape};
use super::wave::{MOST, Wave};
use super::{Conv, Execution, Layers, Product};
use crate::Result;
use crate::kernels::math::{self, Pieces};
use crate::kernels::winograd::{Grid, Rows, Scratch};
use crate::kernels::{BLOCK, Input, Offsets, Place, Store};

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

    /// How maps of `channels` lie in memory.
    pub(super) fn shape(self, channels: usize) -> Shape {
        let rows = Rows { start: self.start, pitch: self.pitch, channel: self.size };
        let grid = Grid::new(self.height, self.width);
        Shape { channels, rows, length: self.buffer(channels).next_multiple_of(Buffer::LINE), grid }
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
            convolve(run, conv, &offsets[conv.layer], plane, x, None, y);
        };
        let mut apply =
            |run: &mut Execution, conv: &Conv, plane: Plane, x: &mut Map, residual: Option<&mut Map>, y: &mut Map| {
                let shape = plane.shape(conv.weights.rows());
                if let Some(winograd) = conv.weights.winograd() {
                    maps::convolve(run, conv, winograd, [shape; 2], x, residual, y, scratch);
                } else {
                    let (x, residual) = (x.rows(run, shape), residual.map(|residual| residual.rows(run, shape)));
                    convolve(run, conv, &offsets[conv.layer], plane, x, residual, y.rows_to_write(shape));
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

/// The convolutions of a stage, all but the splitting in phases, where these are plain ones.
#[derive(Clone, Copy)]
struct Chain<'a> {
    plane: Plane,
    shape: Shape,
    wave: Wave,
    links: [Option<Link<'a>>; MOST],
    /// The map with the output.
    output: usize,
}

/// `y = relu(conv(x) + residual)` of maps of a stage.
#[derive(Clone, Copy)]
struct Link<'a> {
    conv: &'a Conv,
    offsets: &'a Offsets,
    /// None for what the stage begins with.
    x: Option<usize>,
    residual: Option<usize>,
    y: usize,
}

/// Bytes of a map beyond which a stage's layers [advance together](Wave): below, it stays in the second-level cache.
const LARGE: usize = 1 << 20;
/// Bytes that layers which advance together may have between the first of them and the last, for the same reason.
const SPAN: usize = 3 << 18;

impl ResNet {
    /// The convolutions of a stage, if it pays that they advance together.
    fn chain<'a>(
        &'a self,
        run: &Execution,
        planes: &[Plane; 4],
        offsets: &'a [Offsets],
        stage: usize,
    ) -> Option<Chain<'a>> {
        let (plane, channels) = (planes[stage], self.stages[stage].channels);
        let (mut links, mut count, mut current) = ([None; MOST], 0, 0);
        let mut add = |conv: &'a Conv, x: Option<usize>, residual: Option<usize>, y: usize| {
            *links.get_mut(count)? = Some(Link { conv, offsets: &offsets[conv.layer], x, residual, y });
            count += 1;
            conv.weights.winograd().is_none().then_some(())
        };
        if stage == 0 {
            add(&self.stem, None, None, current)?;
        }
        for block in self.blocks.iter().filter(|block| block.stage == stage) {
            if block.strided {
                add(&block.first, None, None, 1)?;
                add(block.shortcut.as_ref()?, None, None, 0)?;
                add(&block.second, Some(1), Some(0), 2)?;
                current = 2;
            } else {
                add(&block.first, Some(current), None, 1)?;
                add(&block.second, Some(1), Some(current), 2 - current)?;
                current = 2 - current;
            }
        }
        let block = links[0].as_ref()?.conv.weights.block();
        let blocks = plane.positions().div_ceil(block);
        let wave = Wave { layers: count, blocks, reach: (plane.pitch + 1).div_ceil(block) };
        let shape = plane.shape(channels);
        let span = 4 * (count + 1) * (plane.pitch + 1 + block) * channels;
        let pays = 4 * shape.length > LARGE && span <= SPAN && wave.suits(run.threads());
        pays.then_some(Chain { plane, shape, wave, links, output: current })
    }
}

impl Chain<'_> {
    /// From what the stage begins with to the map of its output.
    fn run(&self, run: &mut Execution, first: &[f32], maps: &mut [Map; 3]) {
        let (arch, plane) = (run.arch, self.plane);
        let maps = maps.each_mut().map(|map| Disjoint::new(map.rows_to_write(self.shape)));
        let link = |layer: usize| self.links[layer].as_ref().expect("as many as layers");
        self.wave.run(
            run,
            |layer| link(layer).conv.layer,
            |layer, block| {
                let Link { conv, offsets, x, residual, y } = *link(layer);
                let x = x.map_or(first.into(), |x| maps[x].into());
                let store = Store { residual: residual.map(|map| maps[map].into()), ..conv.store(None) };
                // SAFETY: each call has its own positions of y; whoever reads a map there is done or waits, as `Wave`
                // says.
                unsafe { convolve_block(arch, conv, offsets, plane, block, x, &store, maps[y]) };
            },
        );
    }
}

/// `y = relu(conv(x) + residual)` over all positions of a plane, in blocks; the zeros between rows stay zero.
fn convolve(
    run: &mut Execution,
    conv: &Conv,
    offsets: &Offsets,
    plane: Plane,
    x: &[f32],
    residual: Option<&[f32]>,
    y: &mut [f32],
) {
    let (arch, y, store) = (run.arch, Disjoint::new(y), conv.store(residual));
    run.layer(conv.layer, plane.positions().div_ceil(conv.weights.block()), |block| {
        // SAFETY: each task has its own positions of y.
        unsafe { convolve_block(arch, conv, offsets, plane, block, x.into(), &store, y) };
    });
}

/// One block of [`convolve`].
///
/// # Safety
/// Nobody else may use the block in `y`, nor write what it needs of `x` and the residual.
#[expect(clippy::too_many_arguments, reason = "two buffers and where they are read")]
unsafe fn convolve_block(
    arch: Arch,
    conv: &Conv,
    offsets: &Offsets,
    plane: Plane,
    block: usize,
    x: Input,
    store: &Store,
    y: Disjoint,
) {
    let (from, positions) = (block * conv.weights.block(), plane.positions());
    let width = conv.weights.block().min(positions - from);
    let place = Place { x: plane.origin(from), y: plane.start + from, pitch: plane.size, width };
    // SAFETY: as the caller promises.
    unsafe { conv.weights.apply(arch, offsets, x, &[], place, store, y) };
    let gap = from + (plane.width + plane.pitch - from % plane.pitch) % plane.pitch;
    let end = (from + conv.weights.block()).min(positions.next_multiple_of(Buffer::LINE));
    if gap >= end {
        return;
    }
    for row in 0..conv.weights.rows() {
        // SAFETY: as above.
        let y = unsafe { y.part(place.y + row * plane.size, end - from) };
        (gap..from + width).step_by(plane.pitch).for_each(|at| y[at - from] = 0.0);
        y[width..].fill(0.0);
    }
}

/// Even and odd rows and columns of every channel, as four planes of half the size.
fn split(run: &Execution, from: Plane, to: Plane, channels: usize, x: &[f32], y: &mut Buffer) {
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
