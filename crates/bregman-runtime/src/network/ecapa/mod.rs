//! ECAPA-TDNN, WeSpeaker's and SpeechBrain's. Time is cut into strips of [`STRIP`] frames that lie one after the other,
//! `[strip][channel][frame]`: what a pointwise convolution needs of a strip is contiguous and stays in the cache.
//! Dilated convolutions read a copy with the neighbouring frames on both sides.

mod pool;
mod strips;
mod workspace;

use bregman_base::Disjoint;
use bregman_network::{Deviation, EcapaConfig, EcapaLayers, SeRes2Layers};

use super::{Conv, Execution, Layers, Product};
use crate::Result;
use crate::kernels::{Offsets, STRIP, math};
use strips::{HALO_PITCH, MARGIN, Strip, halo_stride, transpose, with_neighbours};
pub(super) use strips::{Halo, Strips};
pub(crate) use workspace::EcapaWorkspace;

const BOTTLENECK: usize = EcapaConfig::BOTTLENECK;
pub(super) const SCALE: usize = EcapaConfig::SCALE;
/// Outputs that are kept: as many as there are blocks.
pub(super) const SLOTS: usize = 3;

/// Where the output of a block lies. Its input, which block 0 has from the first layer, lies in slot `number`; that of
/// the first layer is no longer needed when the last block comes.
pub(super) fn slot(number: usize) -> usize {
    (number + 1) % SLOTS
}

pub(crate) struct Ecapa {
    pub(super) channels: usize,
    pub(super) features: usize,
    /// Channels of the last frame layer.
    pooled: usize,
    pub(super) first: Halo,
    pub(super) blocks: Vec<EcapaBlock>,
    aggregate: Strip,
    hidden: Strip,
    /// The columns of `hidden` for the utterance's mean and deviation, with its bias.
    context: Option<Product>,
    logits: Strip,
    deviation: Deviation,
    linear: Product,
    /// Room for codes that a strip needs.
    codes: usize,
}

/// `y = x + se(f₂(res2(f₀(x))))`
pub(super) struct EcapaBlock {
    pub(super) first: Strip,
    pub(super) res2: Vec<Halo>,
    /// The part of Res2 that its first convolution reads.
    pub(super) first_part: usize,
    /// The one that passes.
    #[cfg_attr(not(feature = "audio"), expect(dead_code, reason = "windows that overlap come with audio"))]
    pub(super) passes: usize,
    pub(super) last: Strip,
    squeeze: Product,
    excite: Product,
}

impl Ecapa {
    pub(super) fn new(specs: &EcapaLayers, features: usize, layers: &mut Layers) -> Result<Self> {
        let channels = specs.first.outputs;
        let hidden = &specs.attention.hidden;
        let of_frames = hidden.inputs[0];
        let of_moments = hidden.inputs.get(1).map(|&moments| of_frames..of_frames + moments);
        let block = |(number, specs): (usize, &SeRes2Layers)| EcapaBlock::new(layers, specs, channels, number);
        let mut ecapa = Self {
            channels,
            features,
            pooled: specs.aggregate.outputs,
            blocks: specs.blocks.iter().enumerate().map(block).collect::<Result<_>>()?,
            first: Halo::new(layers, &specs.first)?,
            aggregate: Strip::new(layers.coded_conv(&specs.aggregate)?, |channel| {
                slot(channel / channels) * channels + channel % channels
            }),
            hidden: Strip::new(layers.coded_conv_of(hidden, 0..of_frames)?, |channel| channel),
            context: of_moments.map(|columns| layers.linear_of(hidden, columns, true)).transpose()?,
            logits: Strip::new(layers.coded_conv(&specs.attention.logits)?, |channel| channel),
            deviation: specs.attention.deviation,
            linear: layers.linear(&specs.linear)?,
            codes: 0,
        };
        ecapa.codes = ecapa.layers().map(|(conv, offsets)| conv.weights.codes(offsets)).max().unwrap_or(0);
        Ok(ecapa)
    }

    /// Every convolution.
    fn layers(&self) -> impl Iterator<Item = (&Conv, &Offsets)> {
        let halos = self.blocks.iter().flat_map(|block| &block.res2).chain([&self.first]);
        let strips = self.blocks.iter().flat_map(|block| [&block.first, &block.last]);
        let strips = strips.chain([&self.aggregate, &self.hidden, &self.logits]);
        halos.map(|halo| (&halo.conv, &halo.offsets)).chain(strips.map(|strip| (&strip.conv, &strip.offsets)))
    }

    pub(crate) fn forward(
        &self,
        run: &mut Execution,
        work: &mut EcapaWorkspace,
        features: &[f32],
        embedding: &mut [f32],
    ) {
        let strips = self.before_the_first_gate(run, work, features);
        self.gate(run, work, strips, 0, &self.blocks[0]);
        self.after_the_first_block(run, work, strips, embedding);
    }

    /// The part that is local: the first layer, from features with neighbours, and the first block up to its gate.
    pub(super) fn before_the_first_gate(
        &self,
        run: &mut Execution,
        work: &mut EcapaWorkspace,
        features: &[f32],
    ) -> Strips {
        let strips = Strips { frames: features.len() / self.features };
        work.reserve(self, strips.count());
        let (channels, arch) = (self.channels, run.arch);
        let stride = halo_stride(self.features);
        let (halo, outputs) = (Disjoint::new(&mut work.halo), Disjoint::new(&mut work.outputs));
        let codes = Disjoint::new(&mut work.codes);
        run.layer(self.first.conv.layer, strips.count(), |strip| {
            // SAFETY: each task has its own strip of both buffers.
            let input = unsafe { halo.part(strip * stride, stride) };
            transpose(features, self.features, strip, &self.first, input);
            // SAFETY: each task has its own strip of codes and outputs.
            unsafe {
                let codes = codes.part(strip * self.codes, self.codes);
                self.first.apply(arch, input, codes, strips.width(strip), SLOTS * channels * STRIP * strip, outputs);
            }
        });
        self.block(run, work, strips, 0, &self.blocks[0]);
        strips
    }

    pub(super) fn after_the_first_block(
        &self,
        run: &mut Execution,
        work: &mut EcapaWorkspace,
        strips: Strips,
        embedding: &mut [f32],
    ) {
        for (number, block) in self.blocks.iter().enumerate().skip(1) {
            self.block(run, work, strips, number, block);
            self.gate(run, work, strips, number, block);
        }
        self.pool(run, work, strips);
        self.linear.apply(run, &work.statistics, embedding);
    }

    /// One SE-Res2Block up to its gate, and the sums over time that the gate needs.
    fn block(&self, run: &mut Execution, work: &mut EcapaWorkspace, strips: Strips, number: usize, block: &EcapaBlock) {
        let (channels, arch, width) = (self.channels, run.arch, self.channels / SCALE);
        let (outputs, middle) = (Disjoint::new(&mut work.outputs), Disjoint::new(&mut work.middle));
        let (input, codes) = (SLOTS * channels * STRIP, Disjoint::new(&mut work.codes));
        run.layer(block.first.conv.layer, strips.count(), |strip| {
            // SAFETY: each task has its own strip of all buffers.
            unsafe {
                let x = outputs.read(input * strip, input);
                let codes = codes.part(strip * self.codes, self.codes);
                block.first.apply(arch, x, codes, strips.width(strip), 2 * channels * STRIP * strip, middle);
            }
        });

        // yᵢ = fᵢ(xᵢ + yᵢ₋₁): reads both parts of the neighbouring strips, writes the own one
        let (halo, stride) = (Disjoint::new(&mut work.halo), halo_stride(width));
        for (number, part) in block.res2.iter().enumerate() {
            let i = block.first_part + number;
            run.layer(part.conv.layer, strips.count(), |strip| {
                // SAFETY: each task has its own strip of `halo`.
                let sums = unsafe { halo.part(strip * stride, stride) };
                // SAFETY: parts before this one are complete; what is written now is part i of Res2's half, which
                // no task reads.
                let row = |strip: usize, half: usize, row: usize| unsafe {
                    middle.read(((2 * strip + half) * channels + row) * STRIP, STRIP)
                };
                for channel in 0..width {
                    let before = |strip: usize, range: std::ops::Range<usize>, sums: &mut [f32]| {
                        let x = &row(strip, 0, i * width + channel)[range.clone()];
                        if number == 0 {
                            sums.copy_from_slice(x);
                        } else {
                            let y = &row(strip, 1, (i - 1) * width + channel)[range];
                            sums.iter_mut().zip(x).zip(y).for_each(|((sum, x), y)| *sum = x + y);
                        }
                    };
                    with_neighbours(
                        strips,
                        strip,
                        part,
                        &mut sums[channel * HALO_PITCH..][..HALO_PITCH + MARGIN],
                        before,
                    );
                }
                let y = ((2 * strip + 1) * channels + i * width) * STRIP;
                // SAFETY: each task has its own strip of `middle` and of `codes`.
                unsafe {
                    let codes = codes.part(strip * self.codes, self.codes);
                    part.apply(arch, sums, codes, strips.width(strip), y, middle);
                }
            });
        }

        let sums = Disjoint::new(&mut work.sums);
        run.layer(block.last.conv.layer, strips.count(), |strip| {
            let (to, length) = ((SLOTS * strip + slot(number)) * channels * STRIP, channels * STRIP);
            // SAFETY: each task has its own strip of all buffers.
            let (x, sums) =
                unsafe { (middle.read(2 * length * strip, 2 * length), sums.part(strip * channels, channels)) };
            // SAFETY: each task has its own strip of codes and outputs.
            unsafe {
                let codes = codes.part(strip * self.codes, self.codes);
                block.last.apply(arch, x, codes, strips.width(strip), to, outputs);
            }
            // SAFETY: the strip of outputs that this task has just written.
            let y = unsafe { outputs.read(to, length) };
            math::row_sums(arch, y, STRIP, strips.width(strip), sums);
        });
    }

    /// The gate of an SE-Res2Block, from the mean over all frames, and the block's output.
    pub(super) fn gate(
        &self,
        run: &mut Execution,
        work: &mut EcapaWorkspace,
        strips: Strips,
        number: usize,
        block: &EcapaBlock,
    ) {
        let (channels, arch) = (self.channels, run.arch);
        work.mean.fill(0.0);
        for sums in work.sums.chunks_exact(channels) {
            work.mean.iter_mut().zip(sums).for_each(|(mean, sum)| *mean += sum / strips.frames as f32);
        }
        block.squeeze.apply(run, &work.mean, &mut work.squeezed);
        work.squeezed.iter_mut().for_each(|value| *value = value.max(0.0));
        block.excite.apply(run, &work.squeezed, &mut work.gate);
        math::sigmoids(arch, &mut work.gate);

        // y = x + gate · f₂, where f₂ is
        let (outputs, gate) = (Disjoint::new(&mut work.outputs), &work.gate);
        run.layer(block.excite.layer, strips.count(), |strip| {
            let ([from, to], length) = ([number, slot(number)].map(|slot| SLOTS * strip + slot), channels * STRIP);
            // SAFETY: each task has its own strip; x and y are different rows of it.
            let (x, y) = unsafe { (outputs.read(from * length, length), outputs.part(to * length, length)) };
            math::gate(arch, x, gate, y);
        });
    }
}

/// The row in which a channel lies after Res2: what passes is its input's, all else its output's, `channels` later.
pub(super) fn row_after_res2(passes: usize, channels: usize, channel: usize) -> usize {
    if channel / (channels / SCALE) == passes { channel } else { channels + channel }
}

impl EcapaBlock {
    fn new(layers: &mut Layers, specs: &SeRes2Layers, channels: usize, number: usize) -> Result<Self> {
        Ok(Self {
            // input: block 0 reads the rows of the first layer, block 1 those of block 0, …
            first: Strip::new(layers.coded_conv(&specs.first)?, |channel| number * channels + channel),
            res2: specs.res2.iter().map(|spec| Halo::new(layers, spec)).collect::<Result<_>>()?,
            first_part: specs.first_part(),
            passes: specs.passes,
            last: Strip::new(layers.coded_conv(&specs.last)?, |channel| {
                row_after_res2(specs.passes, channels, channel)
            }),
            squeeze: layers.linear(&specs.squeeze)?,
            excite: layers.linear(&specs.excite)?,
        })
    }
}
