//! Blocks of dense layers, each on the channels of all before it. What a layer reads is normalised into a strip of
//! [`STRIP`] frames right before its products.

use bregman_base::{Buffer, Disjoint};
use bregman_network::{DenseBlockLayers, DenseLayer, LayerKind, LayerSpec};
use pulp::Arch;

use super::super::{Conv, Execution, Layers, Product};
use super::signal::{MARGIN, Shifted, Signal};
use crate::Result;
use crate::kernels::{Offsets, Place, STRIP, math};

/// Dense layers and what halves their channels.
pub(super) struct Block {
    layers: Vec<Unit>,
    /// Channels behind its last layer.
    pub(super) channels: usize,
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

/// The memory of dense layers, which use it one after the other.
#[derive(Default)]
pub(super) struct DenseWorkspace {
    /// Of each dense layer in turn.
    offsets: Vec<Offsets>,
    /// `[block][channels]`: what a dense layer or a transition reads, normalised.
    strips: Buffer,
    hidden: Buffer,
    context: Context,
}

/// Means of what a dense layer has hidden, and what becomes of them: a value per channel.
#[derive(Default)]
struct Context {
    total: Vec<f32>,
    /// `[segment][channel]`
    sums: Vec<f32>,
    squeezed: Vec<f32>,
    gate: Vec<f32>,
}

impl DenseWorkspace {
    /// Prepares for `blocks`, of at most `widest` channels.
    pub(super) fn reserve(&mut self, blocks: &[Block], signal: Signal, widest: usize) {
        let units = || blocks.iter().flat_map(|block| &block.layers);
        let hidden = units().map(|unit| unit.first.conv.weights.rows()).max().unwrap_or(0);
        self.strips.grow(signal.blocks() * widest * STRIP);
        self.hidden.grow(signal.buffer(hidden));
        self.hidden.fill(0.0); // the zeros around rows lie elsewhere now
        self.offsets.resize_with(units().count(), Offsets::default);
        for (unit, offsets) in units().zip(&mut self.offsets) {
            let offset = |column: usize| column / 3 * signal.pitch + column % 3 * unit.dilation;
            unit.local.weights.resolve(offset, offsets);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.offsets.iter().map(Offsets::bytes).sum::<usize>() + self.strips.bytes() + self.hidden.bytes()
    }
}

impl Block {
    pub(super) fn new(layers: &mut Layers, specs: &DenseBlockLayers) -> Result<Self> {
        Ok(Self {
            layers: specs.layers.iter().map(|layer| Unit::new(layers, layer)).collect::<Result<_>>()?,
            channels: specs.transit.inputs[0],
            transit: NormConv::new(layers, &specs.transit)?,
        })
    }

    /// Channels of its output.
    pub(super) fn outputs(&self) -> usize {
        self.transit.conv.weights.rows()
    }

    /// Dense layers of the block.
    pub(super) fn len(&self) -> usize {
        self.layers.len()
    }

    /// Reads the first rows of `frames`, which has room for what each layer adds; `before` counts the dense layers of
    /// earlier blocks.
    pub(super) fn apply(
        &self,
        run: &mut Execution,
        signal: Signal,
        before: usize,
        frames: &mut Buffer,
        work: &mut DenseWorkspace,
        y: &mut Buffer,
    ) {
        for (number, unit) in self.layers.iter().enumerate() {
            unit.apply(run, signal, before + number, frames, work);
        }
        self.transit.apply(run, signal, frames, &mut work.strips, y);
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
    fn apply(
        &self,
        run: &mut Execution,
        signal: Signal,
        number: usize,
        frames: &mut Buffer,
        work: &mut DenseWorkspace,
    ) {
        let DenseWorkspace { offsets, strips, hidden, context } = work;
        self.first.apply(run, signal, frames, strips, hidden);
        let (rows, inputs) = (self.first.conv.weights.rows(), self.first.before[0].len());
        for row in hidden.chunks_exact_mut(signal.pitch).take(rows) {
            row[MARGIN + signal.frames..].fill(0.0); // whole vectors were written
        }
        let local = Shifted { conv: &self.local, offsets: &offsets[number], reach: self.dilation };
        local.apply(run, signal, hidden, inputs, frames);
        run.timed(self.squeeze.layer, |run| context.sum(run.arch, signal, hidden, rows));
        let outputs = self.local.weights.rows();
        context.squeezed.resize(self.squeeze.linear.rows(), 0.0);
        context.gate.resize(outputs, 0.0);
        let masked = &mut frames[inputs * signal.pitch..][..outputs * signal.pitch];
        let Context { total, sums, squeezed, gate } = context;
        for ([from, length], means) in signal.segments().zip(sums.chunks_exact_mut(rows)) {
            let totals = means.iter_mut().zip(&*total);
            totals.for_each(|(sum, total)| *sum = *sum / length as f32 + total / signal.frames as f32);
            self.squeeze.apply(run, means, squeezed);
            squeezed.iter_mut().for_each(|value| *value = value.max(0.0));
            self.excite.apply(run, squeezed, gate);
            run.timed(self.excite.layer, |run| {
                math::sigmoids(run.arch, gate);
                math::scale_pieces(run.arch, masked, signal.pitch, MARGIN + from, length, gate);
            });
        }
    }
}

impl Context {
    /// Sums of each segment and of all frames.
    fn sum(&mut self, arch: Arch, signal: Signal, x: &[f32], rows: usize) {
        let Self { total, sums, .. } = self;
        total.clear();
        total.resize(rows, 0.0);
        sums.resize(signal.segments().count() * rows, 0.0);
        for ([from, length], sums) in signal.segments().zip(sums.chunks_exact_mut(rows)) {
            math::piece_sums(arch, x, signal.pitch, MARGIN + from, length, sums);
            total.iter_mut().zip(&*sums).for_each(|(total, sum)| *total += sum);
        }
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
