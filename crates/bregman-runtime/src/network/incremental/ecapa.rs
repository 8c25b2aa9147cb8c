//! ECAPA-TDNN's first layer and first block up to its gate, frame after frame.
//!
//! Res2 is a chain, yᵢ = fᵢ(xᵢ + yᵢ₋₁), and each fᵢ looks a few frames ahead: each part ends a few frames before the
//! one before it. All signals are rows over time, and each row's end is counted on its own.

use std::ops::Range;

use bregman_base::Disjoint;
use bregman_network::Padding;

use super::super::ecapa::{Ecapa, EcapaWorkspace, Halo, SCALE, SLOTS, Strips, row_after_res2};
use super::super::{Conv, Execution};
use super::{History, ROUND, SLACK};
use crate::kernels::{Offsets, Place, STRIP, math};

/// Parts of Res2 with a convolution.
const PARTS: usize = SCALE - 1;

/// Columns of a row: those that wait for later parts, a round and a vector.
const PITCH: usize = 64 + ROUND + SLACK;

/// A few rows over time, of which the last columns are kept.
struct Tape {
    values: Vec<f32>,
    /// The frame in column 0: before the beginning lie zeros, or mirrored frames.
    first: isize,
    padding: Padding,
}

impl Tape {
    fn new(rows: usize, before: usize, padding: Padding) -> Self {
        Self { values: vec![0.0; rows * PITCH + STRIP], first: -(before as isize), padding }
    }

    fn column(&self, frame: usize) -> usize {
        (frame as isize - self.first) as usize
    }

    /// Drops frames before `frame`.
    fn forget(&mut self, frame: isize) {
        let surplus = usize::try_from(frame - self.first).unwrap_or(0);
        if surplus > 0 {
            self.values.chunks_exact_mut(PITCH).for_each(|row| row.copy_within(surplus.., 0));
            self.first = frame;
        }
    }

    /// What lies in `count` columns before frame 0, of which more than `count` are here.
    fn begin(&mut self, count: usize) {
        if self.padding == Padding::Reflected {
            let first = self.column(0);
            for row in self.values.chunks_exact_mut(PITCH) {
                (1..=count).for_each(|k| row[first - k] = row[first + k]);
            }
        }
    }

    /// What lies in `count` columns from `frame` on, the first beyond the end.
    fn end(&mut self, frame: usize, count: usize) {
        let column = self.column(frame);
        for row in self.values.chunks_exact_mut(PITCH) {
            match self.padding {
                Padding::Zeros => row[column..column + count].fill(0.0),
                Padding::Reflected => (0..count).for_each(|k| row[column + k] = row[column - 2 - k]),
            }
        }
    }
}

/// One beyond the last frame of every signal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ends {
    heard: usize,
    /// Of the first layer.
    first: usize,
    /// Of the block's first convolution.
    middle: usize,
    /// Of the inputs of Res2's convolutions.
    sums: [usize; PARTS],
    /// Of their outputs.
    parts: [usize; PARTS],
}

pub(super) struct EcapaFront {
    features: Tape,
    sums: Vec<Tape>,
    /// `[2 · channels]`: the first convolution's output and Res2's.
    middle: Tape,
    ends: Ends,
    first: Offsets,
    block_first: Offsets,
    parts: Vec<Offsets>,
    last: Offsets,
    /// What a layer in whole numbers reads.
    codes: Vec<u8>,
}

impl EcapaFront {
    /// Frames after a frame that its output depends on.
    pub(super) fn context(network: &Ecapa) -> usize {
        network.first.reach + network.blocks[0].res2.iter().map(|part| part.reach).sum::<usize>()
    }

    pub(super) fn new(network: &Ecapa, history: &History) -> Self {
        let (channels, block) = (network.channels, &network.blocks[0]);
        let (_, pitch) = history.place(0);
        let shifted = |halo: &Halo| {
            halo.conv.offsets(|column| column / halo.kernel * PITCH + column % halo.kernel * halo.dilation)
        };
        let tape = |rows: usize, of: &Halo| Tape::new(rows, of.reach, of.padding);
        Self {
            features: tape(network.features, &network.first),
            sums: block.res2.iter().map(|part| tape(channels / SCALE, part)).collect(),
            middle: Tape::new(2 * channels, 0, Padding::Zeros),
            ends: Ends::default(),
            first: shifted(&network.first),
            block_first: block.first.conv.offsets(|channel| channel * pitch),
            parts: block.res2.iter().map(shifted).collect(),
            last: block.last.conv.offsets(|channel| row_after_res2(block.passes, channels, channel) * PITCH),
            codes: Vec::new(),
        }
    }

    /// Takes at most [`ROUND`] frames.
    pub(super) fn advance(&mut self, network: &Ecapa, run: &mut Execution, frames: &[f32], history: &mut History) {
        let count = frames.len() / network.features;
        for (frame, values) in frames.chunks_exact(network.features).enumerate() {
            let column = self.features.column(self.ends.heard + frame);
            values.iter().enumerate().for_each(|(bin, &value)| self.features.values[bin * PITCH + column] = value);
        }
        self.ends.heard += count;
        self.work(network, run, history, false);
        self.features.forget(self.ends.first as isize - network.first.reach as isize);
        for ((tape, part), &end) in self.sums.iter_mut().zip(&network.blocks[0].res2).zip(&self.ends.parts) {
            tape.forget(end as isize - part.reach as isize);
        }
        self.middle.forget(history.end as isize);
    }

    /// Computes the last frames as if the recording ended here, and says how far it had come.
    pub(super) fn finish(&mut self, network: &Ecapa, run: &mut Execution, history: &mut History) -> Ends {
        let ends = self.ends;
        self.work(network, run, history, true);
        ends
    }

    pub(super) fn rewind(&mut self, ends: Ends) {
        self.ends = ends;
    }

    /// Every signal as far as it can be computed, or to the end of a recording that is over.
    fn work(&mut self, network: &Ecapa, run: &mut Execution, history: &mut History, over: bool) {
        let (channels, block, arch) = (network.channels, &network.blocks[0], run.arch);
        let until = |end: usize, reach: usize| if over { end } else { end.saturating_sub(reach) };
        let ends = &mut self.ends;
        history.reserve(ends.heard - history.end);

        if over {
            self.features.end(ends.heard, network.first.reach);
        }
        let to = until(ends.heard, network.first.reach);
        if ends.first == 0 && to > 0 {
            self.features.begin(network.first.reach);
        }
        let at = |frame| self.features.column(frame) - network.first.reach;
        let (column, pitch) = history.place(ends.first);
        let start = ends.first;
        apply(
            arch,
            (&network.first.conv, &self.first),
            &mut self.codes,
            &self.features.values,
            history.values_mut(),
            start..to,
            |frame| Place { x: at(frame), y: column + frame - start, pitch, width: 0 },
        );
        ends.first = ends.first.max(to);

        let (column, _) = history.place(ends.middle);
        let (start, middle) = (ends.middle, self.middle.first);
        let in_middle = |frame: usize| (frame as isize - middle) as usize;
        let values = &mut self.middle.values;
        apply(
            arch,
            (&block.first.conv, &self.block_first),
            &mut self.codes,
            history.values(),
            values,
            start..ends.first,
            |frame| Place { x: column + frame - start, y: in_middle(frame), pitch: PITCH, width: 0 },
        );
        ends.middle = ends.first;

        let width = channels / SCALE;
        for (i, part) in block.res2.iter().enumerate() {
            let sums = &mut self.sums[i];
            let ready = if i == 0 { ends.middle } else { ends.middle.min(ends.parts[i - 1]) };
            let frames = ready - ends.sums[i];
            let (from, to) = (in_middle(ends.sums[i]), sums.column(ends.sums[i]));
            for channel in 0..width {
                let to = &mut sums.values[channel * PITCH + to..][..frames];
                let row = (block.first_part + i) * width + channel;
                let x = &values[row * PITCH + from..][..frames];
                if i == 0 {
                    to.copy_from_slice(x);
                } else {
                    let y = &values[(channels + row - width) * PITCH + from..][..frames];
                    to.iter_mut().zip(x).zip(y).for_each(|((sum, x), y)| *sum = x + y);
                }
            }
            ends.sums[i] = ready;
            if over {
                sums.end(ready, part.reach);
            }
            let (to, row) = (until(ready, part.reach), (channels + (block.first_part + i) * width) * PITCH);
            if ends.parts[i] == 0 && to > 0 {
                sums.begin(part.reach);
            }
            apply(
                arch,
                (&part.conv, &self.parts[i]),
                &mut self.codes,
                &sums.values,
                values,
                ends.parts[i]..to,
                |frame| Place { x: sums.column(frame) - part.reach, y: row + in_middle(frame), pitch: PITCH, width: 0 },
            );
            ends.parts[i] = ends.parts[i].max(to);
        }

        let (start, to) = (history.end, ends.parts[PARTS - 1]);
        let (column, pitch) = history.place(start);
        apply(
            arch,
            (&block.last.conv, &self.last),
            &mut self.codes,
            values,
            history.values_mut(),
            start..to,
            |frame| Place { x: in_middle(frame), y: channels * pitch + column + frame - start, pitch, width: 0 },
        );
        history.end = to;
    }

    pub(super) fn bytes(&self) -> usize {
        let tapes = self.sums.iter().chain([&self.features, &self.middle]).map(|tape| 4 * tape.values.len());
        let offsets = self.parts.iter().chain([&self.first, &self.block_first, &self.last]).map(Offsets::bytes);
        tapes.sum::<usize>() + offsets.sum::<usize>() + self.codes.len()
    }
}

/// Frames of a convolution in blocks; `place` says where a block that begins with a frame lies.
fn apply(
    arch: pulp::Arch,
    (conv, offsets): (&Conv, &Offsets),
    codes: &mut Vec<u8>,
    x: &[f32],
    y: &mut [f32],
    frames: Range<usize>,
    place: impl Fn(usize) -> Place,
) {
    let y = Disjoint::new(y);
    codes.resize(codes.len().max(conv.weights.codes(offsets)), 0);
    for from in frames.clone().step_by(STRIP) {
        let place = Place { width: STRIP.min(frames.end - from), ..place(from) };
        conv.weights.encode_block(arch, offsets, x, place.x, codes);
        // SAFETY: nobody else has y.
        unsafe { conv.weights.apply(arch, offsets, x, codes, place, &conv.store(None), y) };
    }
}

/// From the first block's gate on, over a window.
pub(super) fn embed(
    network: &Ecapa,
    run: &mut Execution,
    work: &mut EcapaWorkspace,
    history: &History,
    window: Range<usize>,
    embedding: &mut [f32],
) {
    let (channels, arch) = (network.channels, run.arch);
    let strips = Strips { frames: window.len() };
    work.reserve(network, strips.count());
    for strip in 0..strips.count() {
        let (from, width) = (window.start + strip * STRIP, strips.width(strip));
        // outputs of the first layer, and of the last convolution in the first block
        let outputs = &mut work.outputs[SLOTS * channels * STRIP * strip..][..2 * channels * STRIP];
        for (row, to) in outputs.chunks_exact_mut(STRIP).enumerate() {
            to[..width].copy_from_slice(&history.row(row, from)[..width]);
        }
        let last = &outputs[channels * STRIP..];
        math::row_sums(arch, last, STRIP, width, &mut work.sums[strip * channels..][..channels]);
    }
    network.gate(run, work, strips, 0, &network.blocks[0]);
    network.after_the_first_block(run, work, strips, embedding);
}
