//! ECAPA-TDNN. Time is cut into strips of [`BLOCK`] frames that lie one after the other, `[strip][channel][frame]`:
//! what a pointwise convolution needs of a strip is contiguous and stays in the cache. Dilated convolutions read a copy
//! with the neighbouring frames on both sides.

mod pool;
mod strips;
mod workspace;

use bregman_base::Disjoint;
use bregman_network::{EcapaConfig, SeRes2Layers};

use super::{Conv, Execution, Layers, Product};
use crate::Result;
use crate::kernels::{BLOCK, Offsets, math};
use strips::{HALO_PITCH, MARGIN, Strip, halo_stride, transpose, with_neighbours};
pub(super) use strips::{Halo, Strips};
pub(crate) use workspace::EcapaWorkspace;

const FRAME_CHANNELS: usize = EcapaConfig::FRAME_CHANNELS;
const BOTTLENECK: usize = EcapaConfig::BOTTLENECK;
pub(super) const SCALE: usize = EcapaConfig::SCALE;

pub(crate) struct Ecapa {
    pub(super) channels: usize,
    pub(super) features: usize,
    pub(super) first: Halo,
    pub(super) blocks: Vec<EcapaBlock>,
    aggregate: Strip,
    hidden: Strip,
    /// The columns of `hidden` for the utterance's mean and deviation.
    context: Option<Product>,
    logits: Strip,
    linear: Product,
    /// Room for codes that a strip needs.
    codes: usize,
}

/// `y = x + se(f₂(res2(f₀(x))))`
pub(super) struct EcapaBlock {
    pub(super) first: Strip,
    pub(super) res2: Vec<Halo>,
    pub(super) last: Strip,
    squeeze: Product,
    excite: Product,
}

impl Ecapa {
    pub(super) fn new(config: &EcapaConfig, features: usize, layers: &mut Layers) -> Result<Self> {
        let (specs, channels) = (config.describe(features), config.channels);
        let hidden = &specs.attention.hidden;
        let of_frames = hidden.inputs[0];
        let of_moments = hidden.inputs.get(1).map(|&moments| of_frames..of_frames + moments);
        let block = |(number, specs): (usize, &SeRes2Layers)| EcapaBlock::new(layers, specs, channels, number);
        let mut ecapa = Self {
            channels,
            features,
            blocks: specs.blocks.iter().enumerate().map(block).collect::<Result<_>>()?,
            first: Halo::new(layers, &specs.first)?,
            aggregate: Strip::new(layers.coded_conv(&specs.aggregate)?, |channel| channels + channel),
            hidden: Strip::new(layers.coded_conv_of(hidden, 0..of_frames)?, |channel| channel),
            context: of_moments.map(|columns| layers.linear_of(hidden, columns, false)).transpose()?,
            logits: Strip::new(layers.coded_conv(&specs.attention.logits)?, |channel| channel),
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
            transpose(features, self.features, strip, self.first.reach, input);
            // SAFETY: as above.
            unsafe {
                let codes = codes.part(strip * self.codes, self.codes);
                self.first.apply(arch, input, codes, strips.width(strip), 4 * channels * BLOCK * strip, outputs);
            }
        });
        self.block(run, work, strips, &self.blocks[0]);
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
            self.block(run, work, strips, block);
            self.gate(run, work, strips, number, block);
        }
        self.pool(run, work, strips);
        self.linear.apply(run, &work.statistics, embedding);
    }

    /// One SE-Res2Block up to its gate, and the sums over time that the gate needs.
    fn block(&self, run: &mut Execution, work: &mut EcapaWorkspace, strips: Strips, block: &EcapaBlock) {
        let (channels, arch, width) = (self.channels, run.arch, self.channels / SCALE);
        let (outputs, middle, last) =
            (Disjoint::new(&mut work.outputs), Disjoint::new(&mut work.middle), Disjoint::new(&mut work.last));
        let (input, codes) = (4 * channels * BLOCK, Disjoint::new(&mut work.codes));
        run.layer(block.first.conv.layer, strips.count(), |strip| {
            // SAFETY: each task has its own strip of all buffers.
            unsafe {
                let x = outputs.read(input * strip, input);
                let codes = codes.part(strip * self.codes, self.codes);
                block.first.apply(arch, x, codes, strips.width(strip), 2 * channels * BLOCK * strip, middle);
            }
        });

        // yᵢ = fᵢ(xᵢ + yᵢ₋₁): reads both parts of the neighbouring strips, writes the own one
        let (halo, stride) = (Disjoint::new(&mut work.halo), halo_stride(width));
        for (i, part) in block.res2.iter().enumerate() {
            run.layer(part.conv.layer, strips.count(), |strip| {
                // SAFETY: each task has its own strip of `halo`.
                let sums = unsafe { halo.part(strip * stride, stride) };
                // SAFETY: parts before this one are complete; what is written now is part i of Res2's half, which
                // nobody reads.
                let row = |strip: usize, half: usize, row: usize| unsafe {
                    middle.read(((2 * strip + half) * channels + row) * BLOCK, BLOCK)
                };
                for channel in 0..width {
                    let before = |strip: usize, range: std::ops::Range<usize>, sums: &mut [f32]| {
                        let x = &row(strip, 0, i * width + channel)[range.clone()];
                        if i == 0 {
                            sums.copy_from_slice(x);
                        } else {
                            let y = &row(strip, 1, (i - 1) * width + channel)[range];
                            sums.iter_mut().zip(x).zip(y).for_each(|((sum, x), y)| *sum = x + y);
                        }
                    };
                    with_neighbours(
                        strips,
                        strip,
                        part.reach,
                        &mut sums[channel * HALO_PITCH..][..HALO_PITCH + MARGIN],
                        before,
                    );
                }
                let y = ((2 * strip + 1) * channels + i * width) * BLOCK;
                // SAFETY: each task has its own strip of `middle` and of `codes`.
                unsafe {
                    let codes = codes.part(strip * self.codes, self.codes);
                    part.apply(arch, sums, codes, strips.width(strip), y, middle);
                }
            });
        }

        let sums = Disjoint::new(&mut work.sums);
        run.layer(block.last.conv.layer, strips.count(), |strip| {
            let (from, length) = (channels * BLOCK * strip, channels * BLOCK);
            // SAFETY: each task has its own strip of all buffers.
            let (x, sums) = unsafe { (middle.read(2 * from, 2 * length), sums.part(strip * channels, channels)) };
            // SAFETY: as above.
            unsafe {
                let codes = codes.part(strip * self.codes, self.codes);
                block.last.apply(arch, x, codes, strips.width(strip), from, last);
            }
            // SAFETY: as above.
            let y = unsafe { last.read(from, length) };
            math::row_sums(arch, y, BLOCK, strips.width(strip), sums);
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

        // y = x + gate · f₂
        let (outputs, last, gate) = (Disjoint::new(&mut work.outputs), &*work.last, &work.gate);
        run.layer(block.excite.layer, strips.count(), |strip| {
            let (from, length) = ((4 * strip + number) * channels * BLOCK, channels * BLOCK);
            // SAFETY: each task has its own strip; x and y are different rows of it.
            let (x, y) = unsafe { (outputs.read(from, length), outputs.part(from + length, length)) };
            math::gated(arch, x, &last[channels * BLOCK * strip..][..length], gate, y);
        });
    }
}

impl EcapaBlock {
    fn new(layers: &mut Layers, specs: &SeRes2Layers, channels: usize, number: usize) -> Result<Self> {
        // the last part of Res2 is its input's
        let passed = channels / SCALE * (SCALE - 1);
        Ok(Self {
            // input: block 0 reads the rows of the first layer, block 1 those of block 0, …
            first: Strip::new(layers.coded_conv(&specs.first)?, |channel| number * channels + channel),
            res2: specs.res2.iter().map(|spec| Halo::new(layers, spec)).collect::<Result<_>>()?,
            last: Strip::new(layers.coded_conv(&specs.last)?, |channel| {
                if channel < passed { channels + channel } else { channel }
            }),
            squeeze: layers.linear(&specs.squeeze)?,
            excite: layers.linear(&specs.excite)?,
        })
    }
}
