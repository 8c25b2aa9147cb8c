//! CAM++. The two-dimensional head runs on [`RowPlane`]s, everything after it on signals: a channel is a row of frames
//! with zeros before and after it, so that a dilated convolution is a few shifts. What a dense layer reads is
//! normalised into a strip of [`STRIP`] frames right before its products.

mod head;
mod plane;

use bregman_base::{Buffer, Disjoint};
use bregman_network::{CampPlusConfig, CampPlusLayers, DenseBlockLayers, DenseLayer, Deviation, LayerKind, LayerSpec};
use pulp::Arch;

use super::maps::Map;
use super::{Conv, Execution, Layers, Product};
use crate::Result;
use crate::kernels::math::{self, Pieces};
use crate::kernels::winograd::Scratch;
use crate::kernels::{Offsets, Place, STRIP};
use head::{Head, Taps};
use plane::RowPlane;

const SEGMENT: usize = CampPlusConfig::SEGMENT;
/// Zeros before a row of frames.
const MARGIN: usize = Buffer::LINE;

pub(crate) struct CampPlus {
    features: usize,
    /// How many the file has.
    layers: usize,
    head: Head,
    first: Conv,
    blocks: Vec<Block>,
    linear: Product,
}

struct Block {
    layers: Vec<Unit>,
    /// Channels behind its last layer.
    channels: usize,
    transit: NormConv,
}

/// A dense layer.
struct Unit {
    first: NormConv,
    local: Conv,
    dilation: usize,
    squeeze: Product,
    excite: Product,
}

/// `y = conv(relu(scale · x + shift))`, pointwise.
struct NormConv {
    before: [Vec<f32>; 2],
    conv: Conv,
    offsets: Offsets,
}

/// How the rows of a signal lie in memory.
#[derive(Clone, Copy, Default)]
struct Signal {
    frames: usize,
    /// Numbers from one row to the next: zeros, then frames, up to a whole line.
    pitch: usize,
}

impl Signal {
    fn new(frames: usize) -> Self {
        Self { frames, pitch: MARGIN + frames.next_multiple_of(Buffer::LINE) }
    }

    /// Numbers of `rows`, and of a block beyond.
    fn buffer(self, rows: usize) -> usize {
        rows * self.pitch + MARGIN + STRIP
    }

    fn blocks(self) -> usize {
        self.frames.div_ceil(STRIP)
    }

    /// Where the products of a block lie that begin `reach` frames before it and go to `row`.
    fn place(self, block: usize, reach: usize, row: usize) -> Place {
        let from = block * STRIP;
        let width = STRIP.min(self.frames - from);
        Place { x: MARGIN + from - reach, y: row * self.pitch + MARGIN + from, pitch: self.pitch, width }
    }

    /// First frame and number of frames of each segment.
    fn segments(self) -> impl Iterator<Item = [usize; 2]> {
        (0..self.frames).step_by(SEGMENT).map(move |from| [from, SEGMENT.min(self.frames - from)])
    }
}

/// The memory of one execution.
#[derive(Default)]
pub(crate) struct CampPlusWorkspace {
    /// Frames of features for which all this is made.
    frames: usize,
    planes: [RowPlane; 4],
    signal: Signal,
    /// Of every convolution with taps, by its number in the file.
    offsets: Vec<Offsets>,
    input: Buffer,
    /// Three activations of each stage of the head: they take turns as input, middle and output.
    maps: [[Map; 3]; 4],
    scratch: Scratch,
    /// Even and odd frames of every row of the head's output.
    halves: Buffer,
    /// Of each block its input and what each layer adds; then what is pooled.
    signals: Vec<Buffer>,
    /// `[block][channels]`: what a dense layer or a transition reads, normalised.
    strips: Buffer,
    hidden: Buffer,
    vectors: Vectors,
}

/// One value per channel.
#[derive(Default)]
struct Vectors {
    total: Vec<f32>,
    /// `[segment][channel]`
    sums: Vec<f32>,
    squeezed: Vec<f32>,
    gate: Vec<f32>,
    statistics: Vec<f32>,
}

impl CampPlusWorkspace {
    /// Prepares for utterances of `frames` frames; nothing to do where the last one had as many.
    fn reserve(&mut self, network: &CampPlus, frames: usize) {
        if self.frames == frames {
            return;
        }
        self.frames = frames;
        let height = network.features;
        self.planes = [0, 1, 2, 3].map(|stage| RowPlane::new(height >> stage, frames));
        let signal = Signal::new(frames.div_ceil(2));
        self.signal = signal;
        let zeroed = |buffer: &mut Buffer, length| {
            buffer.grow(length);
            buffer.fill(0.0); // the zeros around planes and rows lie elsewhere now
        };
        zeroed(&mut self.input, self.planes[0].buffer(1));
        self.maps.iter_mut().flatten().for_each(Map::forget);
        zeroed(&mut self.halves, signal.buffer(2 * network.head.channels * self.planes[3].height()));
        let last = network.blocks.last().expect("a CAM++ has blocks").transit.conv.weights.rows();
        let rows: Vec<usize> = network.blocks.iter().map(|block| block.channels).chain([last]).collect();
        self.signals.resize_with(rows.len(), Buffer::default);
        self.signals.iter_mut().zip(&rows).for_each(|(buffer, &rows)| zeroed(buffer, signal.buffer(rows)));
        let widest = rows.iter().max().expect("there are blocks");
        zeroed(&mut self.strips, signal.blocks() * widest * STRIP);
        let units = || network.blocks.iter().flat_map(|block| &block.layers);
        let hidden = units().map(|unit| unit.first.conv.weights.rows()).max().unwrap_or(0);
        zeroed(&mut self.hidden, signal.buffer(hidden));
        self.vectors.statistics.resize(2 * last, 0.0);
        self.resolve(network);
    }

    /// Where the taps of all convolutions lie.
    fn resolve(&mut self, network: &CampPlus) {
        let (planes, signal) = (self.planes, self.signal);
        self.offsets.resize_with(network.layers, Offsets::default);
        let mut resolve = |conv: &Conv, offset: Taps| {
            if conv.weights.winograd().is_none() {
                conv.weights.resolve(offset, &mut self.offsets[conv.layer]);
            }
        };
        network.head.each_tap(&planes, &mut resolve);
        // frames 2t − 2 … 2t + 2 are even and odd ones around t, of which the first reach one back
        let half = |tap: usize| (tap % 2 * signal.pitch, tap / 2);
        resolve(&network.first, &|column| {
            let (phase, shift) = half(column % 5);
            column / 5 * 2 * signal.pitch + phase + shift
        });
        for unit in network.blocks.iter().flat_map(|block| &block.layers) {
            resolve(&unit.local, &|column| column / 3 * signal.pitch + column % 3 * unit.dilation);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let offsets: usize = self.offsets.iter().map(Offsets::bytes).sum();
        let single = [&self.input, &self.halves, &self.strips, &self.hidden];
        let maps: usize = self.maps.iter().flatten().map(Map::bytes).sum();
        let buffers = self.signals.iter().chain(single);
        offsets + maps + self.scratch.bytes() + buffers.map(Buffer::bytes).sum::<usize>()
    }
}

impl CampPlus {
    pub(super) fn new(specs: &CampPlusLayers, features: usize, layers: &mut Layers) -> Result<Self> {
        Ok(Self {
            features,
            layers: layers.stored.len(),
            head: Head::new(layers, &specs.head)?,
            first: layers.conv(&specs.first)?,
            blocks: specs.blocks.iter().map(|block| Block::new(layers, block)).collect::<Result<_>>()?,
            linear: layers.linear(&specs.linear)?,
        })
    }

    pub(crate) fn forward(
        &self,
        run: &mut Execution,
        work: &mut CampPlusWorkspace,
        features: &[f32],
        embedding: &mut [f32],
    ) {
        work.reserve(self, features.len() / self.features);
        work.planes[0].transpose(features, self.features, &mut work.input);
        self.head.forward(run, &work.planes, &work.offsets, &work.input, &mut work.maps, &mut work.scratch);
        let CampPlusWorkspace { planes, signal, offsets, maps, halves, signals, strips, hidden, vectors, .. } = work;
        let signal = *signal;
        run.timed(self.first.layer, |run| {
            let (plane, channels) = (planes[3], self.head.channels);
            split(plane, channels, maps[3][0].rows(run, plane.shape(channels)), signal, halves);
        });
        shifted(run, &self.first, &offsets[self.first.layer], signal, 1, halves, 0, &mut signals[0]);
        for (number, block) in self.blocks.iter().enumerate() {
            let (here, next) = signals[number..].split_at_mut(1);
            let frames = &mut here[0];
            for unit in &block.layers {
                unit.apply(run, signal, &offsets[unit.local.layer], frames, strips, hidden, vectors);
            }
            block.transit.apply(run, signal, frames, strips, &mut next[0]);
        }
        let last = signals.last().expect("there are blocks");
        let half = vectors.statistics.len() / 2;
        let (means, deviations) = vectors.statistics.split_at_mut(half);
        let pieces = Pieces { count: 1, step: 0, pitch: signal.pitch, length: signal.frames };
        math::moments(run.arch, &last[MARGIN..], pieces, 0, Deviation::Plain, means, deviations);
        self.linear.apply(run, &vectors.statistics, embedding);
    }
}

/// Even and odd frames of every row of every channel.
fn split(plane: RowPlane, channels: usize, x: &[f32], signal: Signal, halves: &mut [f32]) {
    let rows = (0..channels).flat_map(|channel| plane.rows(x, channel));
    for (row, both) in rows.zip(halves.chunks_exact_mut(2 * signal.pitch)) {
        let (even, odd) = both.split_at_mut(signal.pitch);
        let (pairs, rest) = row.as_chunks::<2>();
        for (i, pair) in pairs.iter().enumerate() {
            (even[MARGIN + i], odd[MARGIN + i]) = (pair[0], pair[1]);
        }
        rest.iter().for_each(|&value| even[MARGIN + pairs.len()] = value);
    }
}

/// A convolution with taps, the first `reach` frames before its output; writes the rows of `y` from `row` on.
#[allow(clippy::too_many_arguments)]
fn shifted(
    run: &mut Execution,
    conv: &Conv,
    offsets: &Offsets,
    signal: Signal,
    reach: usize,
    x: &[f32],
    row: usize,
    y: &mut Buffer,
) {
    let (arch, y, epilogue) = (run.arch, Disjoint::new(y), conv.epilogue(None));
    run.layer(conv.layer, signal.blocks(), |block| {
        // SAFETY: each task has its own frames of y.
        unsafe { conv.weights.apply(arch, offsets, x, &[], signal.place(block, reach, row), &epilogue, y) };
    });
}

impl Block {
    fn new(layers: &mut Layers, specs: &DenseBlockLayers) -> Result<Self> {
        Ok(Self {
            layers: specs.layers.iter().map(|layer| Unit::new(layers, layer)).collect::<Result<_>>()?,
            channels: specs.transit.inputs[0],
            transit: NormConv::new(layers, &specs.transit)?,
        })
    }
}

impl Unit {
    fn new(layers: &mut Layers, specs: &DenseLayer) -> Result<Self> {
        let LayerKind::Conv1d { dilation, .. } = specs.local.kind else {
            unreachable!("{} is a convolution over time", specs.local.name)
        };
        Ok(Self {
            first: NormConv::new(layers, &specs.first)?,
            local: layers.conv(&specs.local)?,
            dilation,
            squeeze: layers.linear(&specs.squeeze)?,
            excite: layers.linear(&specs.excite)?,
        })
    }

    /// Reads the first rows of `frames` and writes those behind them.
    #[allow(clippy::too_many_arguments)]
    fn apply(
        &self,
        run: &mut Execution,
        signal: Signal,
        offsets: &Offsets,
        frames: &mut Buffer,
        strips: &mut Buffer,
        hidden: &mut Buffer,
        vectors: &mut Vectors,
    ) {
        self.first.apply(run, signal, frames, strips, hidden);
        let (rows, inputs) = (self.first.conv.weights.rows(), self.first.before[0].len());
        for row in hidden.chunks_exact_mut(signal.pitch).take(rows) {
            row[MARGIN + signal.frames..].fill(0.0); // whole vectors were written
        }
        shifted(run, &self.local, offsets, signal, self.dilation, hidden, inputs, frames);
        run.timed(self.squeeze.layer, |run| sums(run.arch, signal, hidden, rows, vectors));
        let outputs = self.local.weights.rows();
        vectors.squeezed.resize(self.squeeze.linear.rows(), 0.0);
        vectors.gate.resize(outputs, 0.0);
        let masked = &mut frames[inputs * signal.pitch..][..outputs * signal.pitch];
        for ([from, length], context) in signal.segments().zip(vectors.sums.chunks_exact_mut(rows)) {
            let totals = context.iter_mut().zip(&vectors.total);
            totals.for_each(|(sum, total)| *sum = *sum / length as f32 + total / signal.frames as f32);
            self.squeeze.apply(run, context, &mut vectors.squeezed);
            vectors.squeezed.iter_mut().for_each(|value| *value = value.max(0.0));
            self.excite.apply(run, &vectors.squeezed, &mut vectors.gate);
            let gate = &mut vectors.gate;
            run.timed(self.excite.layer, |run| {
                math::sigmoids(run.arch, gate);
                math::scale_pieces(run.arch, masked, signal.pitch, MARGIN + from, length, gate);
            });
        }
    }
}

/// Sums of each segment and of all frames.
fn sums(arch: Arch, signal: Signal, x: &[f32], rows: usize, vectors: &mut Vectors) {
    let Vectors { total, sums, .. } = vectors;
    total.clear();
    total.resize(rows, 0.0);
    sums.resize(signal.segments().count() * rows, 0.0);
    for ([from, length], sums) in signal.segments().zip(sums.chunks_exact_mut(rows)) {
        math::piece_sums(arch, x, signal.pitch, MARGIN + from, length, sums);
        total.iter_mut().zip(&*sums).for_each(|(total, sum)| *total += sum);
    }
}

impl NormConv {
    fn new(layers: &mut Layers, spec: &LayerSpec) -> Result<Self> {
        let before = layers.before(spec)?;
        let conv = layers.conv(spec)?;
        let offsets = conv.offsets(|channel| channel * STRIP);
        Ok(Self { before, conv, offsets })
    }

    /// Reads the first rows of `x`, writes those of `y`.
    fn apply(&self, run: &mut Execution, signal: Signal, x: &Buffer, strips: &mut Buffer, y: &mut Buffer) {
        let (arch, [scale, shift]) = (run.arch, &self.before);
        let (x, y, epilogue) = (&**x, Disjoint::new(y), self.conv.epilogue(None));
        let (length, strips) = (scale.len() * STRIP, Disjoint::new(strips));
        run.layer(self.conv.layer, signal.blocks(), |block| {
            // SAFETY: each task has its own strip.
            let strip = unsafe { strips.part(block * length, length) };
            math::norm_relu(arch, x, signal.pitch, MARGIN + block * STRIP, scale, shift, strip);
            let place = Place { x: 0, ..signal.place(block, 0, 0) };
            // SAFETY: each task has its own frames of y.
            unsafe { self.conv.weights.apply(arch, &self.offsets, &*strip, &[], place, &epilogue, y) };
        });
    }
}
