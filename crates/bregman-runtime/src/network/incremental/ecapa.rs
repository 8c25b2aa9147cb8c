//! ECAPA-TDNN's first layer and first block up to its gate, frame after frame.
//!
//! Res2 is a chain, yᵢ = fᵢ(xᵢ + yᵢ₋₁), and each fᵢ looks a few frames ahead: each part ends a few frames before the
//! one before it. All signals are rows over time, and each row's end is counted on its own.

use std::ops::Range;

use bregman_network::Padding;
use pulp::Arch;

use super::super::Execution;
use super::super::ecapa::{Ecapa, EcapaWorkspace, Halo, SCALE, SLOTS, Strips, row_after_res2};
use super::tape::{PITCH, Tape};
use super::{History, convolve};
use crate::kernels::{Offsets, Place, STRIP, math};

/// Parts of Res2 with a convolution.
const PARTS: usize = SCALE - 1;

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
        history.reserve(self.ends.heard - history.end);
        self.first_layer(network, run.arch, history, over);
        self.middle(network, run.arch, history);
        for part in 0..PARTS {
            self.res2(network, run.arch, part, over);
        }
        self.last(network, run.arch, history);
    }

    /// From features to the upper half of the history.
    fn first_layer(&mut self, network: &Ecapa, arch: Arch, history: &mut History, over: bool) {
        let Self { features, ends, codes, first: offsets, .. } = self;
        let reach = network.first.reach;
        if over {
            features.end(ends.heard, reach);
        }
        let (start, to) = (ends.first, if over { ends.heard } else { ends.heard.saturating_sub(reach) });
        if start == 0 && to > 0 {
            features.begin(reach);
        }
        let (column, pitch) = history.place(start);
        let place = |frame| Place { x: features.column(frame) - reach, y: column + frame - start, pitch, width: 0 };
        let layer = (&network.first.conv, &*offsets);
        convolve(arch, layer, codes, &features.values, history.values_mut(), start..to, place);
        ends.first = start.max(to);
    }

    /// The block's first convolution, from the upper half of the history to that of `middle`.
    fn middle(&mut self, network: &Ecapa, arch: Arch, history: &History) {
        let Self { middle, ends, codes, block_first: offsets, .. } = self;
        let (start, first) = (ends.middle, middle.first);
        let (column, _) = history.place(start);
        let place = |frame| {
            let y = (frame as isize - first) as usize;
            Place { x: column + frame - start, y, pitch: PITCH, width: 0 }
        };
        let layer = (&network.blocks[0].first.conv, &*offsets);
        convolve(arch, layer, codes, history.values(), &mut middle.values, start..ends.first, place);
        ends.middle = ends.first;
    }

    /// One part of Res2, within `middle`: its input is a part of the upper half and the part before it of the lower.
    fn res2(&mut self, network: &Ecapa, arch: Arch, i: usize, over: bool) {
        let Self { sums, middle, ends, codes, parts, .. } = self;
        let (sums, part, channels) = (&mut sums[i], &network.blocks[0].res2[i], network.channels);
        let (width, first) = (channels / SCALE, network.blocks[0].first_part);

        let ready = if i == 0 { ends.middle } else { ends.middle.min(ends.parts[i - 1]) };
        let (frames, from, to) = (ready - ends.sums[i], middle.column(ends.sums[i]), sums.column(ends.sums[i]));
        for channel in 0..width {
            let to = &mut sums.values[channel * PITCH + to..][..frames];
            let row = (first + i) * width + channel;
            let x = &middle.values[row * PITCH + from..][..frames];
            if i == 0 {
                to.copy_from_slice(x);
            } else {
                let y = &middle.values[(channels + row - width) * PITCH + from..][..frames];
                to.iter_mut().zip(x).zip(y).for_each(|((sum, x), y)| *sum = x + y);
            }
        }
        ends.sums[i] = ready;
        if over {
            sums.end(ready, part.reach);
        }

        let (start, to) = (ends.parts[i], if over { ready } else { ready.saturating_sub(part.reach) });
        if start == 0 && to > 0 {
            sums.begin(part.reach);
        }
        let (row, first_frame) = ((channels + (first + i) * width) * PITCH, middle.first);
        let place = |frame| {
            let y = row + (frame as isize - first_frame) as usize;
            Place { x: sums.column(frame) - part.reach, y, pitch: PITCH, width: 0 }
        };
        convolve(arch, (&part.conv, &parts[i]), codes, &sums.values, &mut middle.values, start..to, place);
        ends.parts[i] = start.max(to);
    }

    /// The block's last convolution, from `middle` to the lower half of the history.
    fn last(&mut self, network: &Ecapa, arch: Arch, history: &mut History) {
        let Self { middle, ends, codes, last: offsets, .. } = self;
        let (start, to) = (history.end, ends.parts[PARTS - 1]);
        let (column, pitch) = history.place(start);
        let row = network.channels * pitch;
        let place = |frame| Place { x: middle.column(frame), y: row + column + frame - start, pitch, width: 0 };
        let layer = (&network.blocks[0].last.conv, &*offsets);
        convolve(arch, layer, codes, &middle.values, history.values_mut(), start..to, place);
        history.end = to;
    }

    pub(super) fn bytes(&self) -> usize {
        let tapes = self.sums.iter().chain([&self.features, &self.middle]).map(|tape| 4 * tape.values.len());
        let offsets = self.parts.iter().chain([&self.first, &self.block_first, &self.last]).map(Offsets::bytes);
        tapes.sum::<usize>() + offsets.sum::<usize>() + self.codes.len()
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
