//! CAM++. The two-dimensional head runs on [`RowPlane`](plane::RowPlane)s, everything after it on
//! [`Signal`](signal::Signal)s.

mod dense;
mod head;
mod plane;
mod signal;

use bregman_base::Buffer;
use bregman_network::{CampPlusLayers, Deviation};

use super::{Conv, Execution, Layers, Product};
use crate::Result;
use crate::kernels::Offsets;
use crate::kernels::math::{self, Pieces};
use dense::{Block, DenseWorkspace};
pub(super) use head::Head;
use head::HeadWorkspace;
use plane::RowPlane;
pub(super) use signal::MARGIN;
use signal::{Shifted, Signal};

pub(crate) struct CampPlus {
    pub(super) features: usize,
    pub(super) head: Head,
    /// From all rows of the head to frames, every other one.
    pub(super) first: Conv,
    blocks: Vec<Block>,
    linear: Product,
}

/// The memory of one execution.
#[derive(Default)]
pub(crate) struct CampPlusWorkspace {
    front: FrontWorkspace,
    pub(super) signal: Signal,
    /// Of each block its input and what each layer adds; then what is pooled.
    pub(super) signals: Vec<Buffer>,
    dense: DenseWorkspace,
    statistics: Vec<f32>,
}

/// The memory of the local part.
#[derive(Default)]
struct FrontWorkspace {
    /// Frames of features for which it is made.
    frames: usize,
    head: HeadWorkspace,
    /// Even and odd frames of every row of the head's output.
    halves: Buffer,
    /// Of the first layer.
    offsets: Offsets,
}

impl FrontWorkspace {
    /// Prepares for utterances of `frames` frames; nothing to do where the last one had as many.
    fn reserve(&mut self, network: &CampPlus, frames: usize) {
        if self.frames == frames {
            return;
        }
        self.frames = frames;
        self.head.reserve(&network.head, frames);
        let signal = Signal::new(frames.div_ceil(2));
        self.halves.grow(signal.buffer(2 * network.head.rows()));
        self.halves.fill(0.0); // the zeros around rows lie elsewhere now
        network.first.weights.resolve(|column| tap(column, signal.pitch), &mut self.offsets);
    }
}

/// Where a column of the first layer lies in rows of even and odd frames, `pitch` apart: of the frames 2t − 2 … 2t + 2
/// the even ones are t − 1, t and t + 1 of their row, the odd ones t − 1 and t.
pub(super) fn tap(column: usize, pitch: usize) -> usize {
    let (channel, tap) = (column / 5, column % 5);
    (2 * channel + tap % 2) * pitch + tap / 2
}

impl CampPlusWorkspace {
    /// Prepares for all behind the first layer, on `frames` frames of its output; nothing to do where the last
    /// utterance had as many.
    pub(super) fn reserve(&mut self, network: &CampPlus, frames: usize) {
        if self.signal.frames == frames {
            return;
        }
        let signal = Signal::new(frames);
        self.signal = signal;
        let last = network.blocks.last().expect("a CAM++ has blocks").outputs();
        let rows: Vec<usize> = network.blocks.iter().map(|block| block.channels).chain([last]).collect();
        self.signals.resize_with(rows.len(), Buffer::default);
        for (buffer, &rows) in self.signals.iter_mut().zip(&rows) {
            buffer.grow(signal.buffer(rows));
            buffer.fill(0.0); // the zeros around rows lie elsewhere now
        }
        let widest = rows.iter().max().expect("there are blocks");
        self.dense.reserve(&network.blocks, signal, *widest);
        self.statistics.resize(2 * last, 0.0);
    }

    pub(crate) fn bytes(&self) -> usize {
        let FrontWorkspace { head, halves, offsets, .. } = &self.front;
        let signals: usize = self.signals.iter().map(Buffer::bytes).sum();
        head.bytes() + halves.bytes() + offsets.bytes() + signals + self.dense.bytes()
    }
}

impl CampPlus {
    pub(super) fn new(specs: &CampPlusLayers, features: usize, layers: &mut Layers) -> Result<Self> {
        Ok(Self {
            features,
            head: Head::new(layers, &specs.head, features)?,
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
        self.before_the_first_mask(run, work, features);
        self.after_the_first_layer(run, work, embedding);
    }

    /// The part that is local: the head and the first layer, which writes the input of the first block.
    pub(super) fn before_the_first_mask(&self, run: &mut Execution, work: &mut CampPlusWorkspace, features: &[f32]) {
        let frames = features.len() / self.features;
        work.reserve(self, frames.div_ceil(2));
        work.front.reserve(self, frames);
        let CampPlusWorkspace { front: FrontWorkspace { head, halves, offsets, .. }, signal, signals, .. } = work;
        self.head.forward(run, head, features);
        run.timed(self.first.layer, |run| {
            let (plane, channels) = (head.planes[3], self.head.stages[3].channels);
            split(plane, channels, head.output(run, &self.head), *signal, halves);
        });
        let first = Shifted { conv: &self.first, offsets, reach: 1 };
        first.apply(run, *signal, halves, 0, &mut signals[0]);
    }

    /// The rest, which looks at all frames.
    pub(super) fn after_the_first_layer(
        &self,
        run: &mut Execution,
        work: &mut CampPlusWorkspace,
        embedding: &mut [f32],
    ) {
        let CampPlusWorkspace { signal, signals, dense, statistics, .. } = work;
        let (signal, mut before) = (*signal, 0);
        for (number, block) in self.blocks.iter().enumerate() {
            let (here, next) = signals[number..].split_at_mut(1);
            block.apply(run, signal, before, &mut here[0], dense, &mut next[0]);
            before += block.len();
        }
        let last = signals.last().expect("there are blocks");
        let half = statistics.len() / 2;
        let (means, deviations) = statistics.split_at_mut(half);
        let pieces = Pieces { count: 1, step: 0, pitch: signal.pitch, length: signal.frames };
        math::moments(run.arch, &last[MARGIN..], pieces, 0, Deviation::Plain, means, deviations);
        self.linear.apply(run, statistics, embedding);
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
