//! ECAPA-TDNN. Time is cut into strips of [`BLOCK`] frames that lie one after the other, `[strip][channel][frame]`:
//! what a pointwise convolution needs of a strip is contiguous and stays in the cache. Dilated convolutions read a copy
//! with the neighbouring frames on both sides.

use bregman_base::{Buffer, Disjoint};
use bregman_network::{EcapaConfig, LayerKind, LayerSpec, SeRes2Layers};

use super::{Conv, Execution, Layers, Product};
use crate::Result;
use crate::kernels::math::{self, POOL_EPSILON, Pieces};
use crate::kernels::{BLOCK, Offsets, Place};

/// A row with neighbours: [`MARGIN`] numbers, of which the last are those before the strip, the strip, and those after
/// it in the next row's margin.
const HALO_PITCH: usize = MARGIN + BLOCK;
const MARGIN: usize = Buffer::LINE;
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

/// A pointwise convolution over strips.
pub(super) struct Strip {
    pub(super) conv: Conv,
    offsets: Offsets,
}

impl Strip {
    /// `row` says in which row of its strip a channel lies.
    fn new(conv: Conv, row: impl Fn(usize) -> usize) -> Self {
        let offsets = conv.offsets(|channel| row(channel) * BLOCK);
        Self { conv, offsets }
    }
}

/// A dilated convolution over strips with neighbours.
pub(super) struct Halo {
    pub(super) conv: Conv,
    offsets: Offsets,
    #[cfg_attr(not(feature = "audio"), expect(dead_code, reason = "windows that overlap come with audio"))]
    pub(super) kernel: usize,
    #[cfg_attr(not(feature = "audio"), expect(dead_code, reason = "windows that overlap come with audio"))]
    pub(super) dilation: usize,
    /// Neighbours on each side.
    pub(super) reach: usize,
}

impl Halo {
    fn new(layers: &mut Layers, spec: &LayerSpec) -> Result<Self> {
        let LayerKind::Conv1d { kernel, dilation, .. } = spec.kind else {
            unreachable!("{} is a convolution over time", spec.name)
        };
        let conv = layers.coded_conv(spec)?;
        let offsets = conv.offsets(|column| column / kernel * HALO_PITCH + column % kernel * dilation);
        Ok(Self { conv, offsets, kernel, dilation, reach: kernel / 2 * dilation })
    }
}

/// `y = x + se(f₂(res2(f₀(x))))`
pub(super) struct EcapaBlock {
    pub(super) first: Strip,
    pub(super) res2: Vec<Halo>,
    pub(super) last: Strip,
    squeeze: Product,
    excite: Product,
}

/// The memory of one execution.
#[derive(Default)]
pub(crate) struct EcapaWorkspace {
    /// Rows with neighbours: the features, then parts of Res2.
    halo: Buffer,
    /// `[strip][4 · channels]`: outputs of the first layer and of the blocks.
    pub(super) outputs: Buffer,
    /// `[strip][2 · channels]`: within a block, the first convolution's output and Res2's.
    middle: Buffer,
    /// `[strip][channels]`: the last convolution's output.
    pub(super) last: Buffer,
    /// `[strip][FRAME_CHANNELS]`
    frames: Buffer,
    /// `[strip][BOTTLENECK]`
    hidden: Buffer,
    /// `[strip][FRAME_CHANNELS]`
    logits: Buffer,
    /// Of each strip, what a layer in whole numbers reads.
    codes: Vec<u8>,
    /// `[strip][channels]`: sums over the frames of a strip.
    pub(super) sums: Vec<f32>,
    mean: Vec<f32>,
    squeezed: Vec<f32>,
    gate: Vec<f32>,
    moments: Vec<f32>,
    share: Vec<f32>,
    statistics: Vec<f32>,
}

impl EcapaWorkspace {
    pub(super) fn reserve(&mut self, network: &Ecapa, strips: usize) {
        let (channels, widest) = (network.channels, network.features.max(network.channels / SCALE));
        self.halo.grow(strips * halo_stride(widest));
        for (buffer, rows) in [
            (&mut self.outputs, 4 * channels),
            (&mut self.middle, 2 * channels),
            (&mut self.last, channels),
            (&mut self.frames, FRAME_CHANNELS),
            (&mut self.hidden, BOTTLENECK),
            (&mut self.logits, FRAME_CHANNELS),
        ] {
            buffer.grow(strips * rows * BLOCK);
        }
        self.codes.resize(self.codes.len().max(strips * network.codes), 0);
        let vectors = [
            (&mut self.sums, strips * channels),
            (&mut self.mean, channels),
            (&mut self.squeezed, BOTTLENECK),
            (&mut self.gate, channels),
            (&mut self.moments, 2 * FRAME_CHANNELS),
            (&mut self.share, BOTTLENECK),
            (&mut self.statistics, 2 * FRAME_CHANNELS),
        ];
        vectors.into_iter().for_each(|(vector, length)| vector.resize(length, 0.0));
    }

    pub(crate) fn bytes(&self) -> usize {
        [&self.halo, &self.outputs, &self.middle, &self.last, &self.frames, &self.hidden, &self.logits]
            .iter()
            .map(|b| b.bytes())
            .sum::<usize>()
            + self.codes.len()
    }
}

fn halo_stride(rows: usize) -> usize {
    rows * HALO_PITCH + MARGIN
}

/// Frames `[0, frames)` cut into strips.
#[derive(Clone, Copy)]
pub(super) struct Strips {
    pub(super) frames: usize,
}

impl Strips {
    pub(super) fn count(self) -> usize {
        self.frames.div_ceil(BLOCK)
    }

    /// Frames of a strip.
    pub(super) fn width(self, strip: usize) -> usize {
        BLOCK.min(self.frames - strip * BLOCK)
    }
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

    /// Attentive statistics of the aggregated blocks.
    fn pool(&self, run: &mut Execution, work: &mut EcapaWorkspace, strips: Strips) {
        let (channels, arch) = (self.channels, run.arch);
        let (frames, hidden, logits) =
            (Disjoint::new(&mut work.frames), Disjoint::new(&mut work.hidden), Disjoint::new(&mut work.logits));
        let (outputs, codes) = (&*work.outputs, Disjoint::new(&mut work.codes));
        // SAFETY: the caller's task has its own strip.
        let codes = |strip: usize| unsafe { codes.part(strip * self.codes, self.codes) };
        let strip_of = |rows: usize, strip: usize| rows * BLOCK * strip;
        run.layer(self.aggregate.conv.layer, strips.count(), |strip| {
            let x = &outputs[strip_of(4 * channels, strip)..][..4 * channels * BLOCK];
            let at = strip_of(FRAME_CHANNELS, strip);
            // SAFETY: each task has its own strip.
            unsafe { self.aggregate.apply(arch, x, codes(strip), strips.width(strip), at, frames) };
        });

        // SAFETY: nobody writes the frames from here on.
        let x = unsafe { frames.read(0, strip_of(FRAME_CHANNELS, strips.count())) };
        let pieces =
            Pieces { count: strips.count(), step: FRAME_CHANNELS * BLOCK, pitch: BLOCK, length: strips.frames };
        if let Some(context) = &self.context {
            let moments = Disjoint::new(&mut work.moments);
            run.layer(self.hidden.conv.layer, FRAME_CHANNELS / CHUNK, |chunk| {
                // SAFETY: each task has its own channels.
                let [means, deviations] = unsafe { own_channels(moments, chunk) };
                math::moments(arch, x, pieces, chunk * CHUNK, POOL_EPSILON, means, deviations);
            });
            context.apply(run, &work.moments, &mut work.share);
        }

        let share = &work.share;
        run.layer(self.hidden.conv.layer, strips.count(), |strip| {
            let x = &x[strip_of(FRAME_CHANNELS, strip)..][..FRAME_CHANNELS * BLOCK];
            let from = strip_of(BOTTLENECK, strip);
            // SAFETY: each task has its own strip.
            unsafe { self.hidden.apply(arch, x, codes(strip), strips.width(strip), from, hidden) };
            // SAFETY: as above.
            let hidden = unsafe { hidden.part(from, BOTTLENECK * BLOCK) };
            math::shifted_tanh(arch, hidden, BLOCK, share);
        });
        run.layer(self.logits.conv.layer, strips.count(), |strip| {
            // SAFETY: each task has its own strip.
            unsafe {
                let x = hidden.read(strip_of(BOTTLENECK, strip), BOTTLENECK * BLOCK);
                let at = strip_of(FRAME_CHANNELS, strip);
                self.logits.apply(arch, x, codes(strip), strips.width(strip), at, logits);
            }
        });

        // SAFETY: nobody writes the logits from here on.
        let logits = unsafe { logits.read(0, strip_of(FRAME_CHANNELS, strips.count())) };
        let statistics = Disjoint::new(&mut work.statistics);
        run.layer(self.logits.conv.layer, FRAME_CHANNELS / CHUNK, |chunk| {
            // SAFETY: each task has its own channels.
            let [means, deviations] = unsafe { own_channels(statistics, chunk) };
            math::attended(arch, x, logits, pieces, chunk * CHUNK, means, deviations);
        });
    }
}

/// Channels that a task of the pooling takes.
const CHUNK: usize = FRAME_CHANNELS / 16;

/// The part of `[means; deviations]` that belongs to a chunk of channels.
///
/// # Safety
/// Nobody else may use that chunk.
unsafe fn own_channels(vector: Disjoint<'_>, chunk: usize) -> [&mut [f32]; 2] {
    // SAFETY: as the caller promises; the two halves do not overlap.
    unsafe { [vector.part(chunk * CHUNK, CHUNK), vector.part(FRAME_CHANNELS + chunk * CHUNK, CHUNK)] }
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

impl Strip {
    /// # Safety
    /// Nobody else may use the strip of `y` that begins at `at`.
    unsafe fn apply(&self, arch: pulp::Arch, x: &[f32], codes: &mut [u8], width: usize, at: usize, y: Disjoint) {
        let place = Place { x: 0, y: at, pitch: BLOCK, width };
        // SAFETY: as the caller promises.
        unsafe { self.conv.apply(arch, &self.offsets, x, codes, place, y) };
    }
}

impl Halo {
    /// # Safety
    /// As [`Strip::apply`].
    unsafe fn apply(&self, arch: pulp::Arch, x: &[f32], codes: &mut [u8], width: usize, at: usize, y: Disjoint) {
        let place = Place { x: MARGIN - self.reach, y: at, pitch: BLOCK, width };
        // SAFETY: as the caller promises.
        unsafe { self.conv.apply(arch, &self.offsets, x, codes, place, y) };
    }
}

/// Fills a row with neighbours: `copy(strip, frames, to)` gives frames of a strip; zeros lie outside of the utterance.
#[inline(always)]
fn with_neighbours(
    strips: Strips,
    strip: usize,
    reach: usize,
    row: &mut [f32],
    copy: impl Fn(usize, std::ops::Range<usize>, &mut [f32]),
) {
    let width = strips.width(strip);
    let (before, rest) = row.split_at_mut(MARGIN);
    let (own, after) = rest.split_at_mut(width);
    let before = &mut before[MARGIN - reach..];
    if strip > 0 {
        copy(strip - 1, BLOCK - reach..BLOCK, before);
    } else {
        before.fill(0.0);
    }
    if width == BLOCK {
        copy(strip, 0..BLOCK, own);
    } else {
        copy(strip, 0..width, own);
    }
    // the next strip may be shorter than the reach
    let next = if strip + 1 < strips.count() { reach.min(strips.width(strip + 1)) } else { 0 };
    if next > 0 {
        copy(strip + 1, 0..next, &mut after[..next]);
    }
    // whole vectors are read, up to the end of the block and `reach` more
    after[next..BLOCK - width + reach].fill(0.0);
}

/// Features `[frame][bin]` as rows `[bin][frame]` of one strip with neighbours.
fn transpose(features: &[f32], bins: usize, strip: usize, reach: usize, rows: &mut [f32]) {
    for column in 0..BLOCK + 2 * reach {
        let frame = (strip * BLOCK + column)
            .checked_sub(reach)
            .and_then(|frame| features.get(frame * bins..(frame + 1) * bins));
        for bin in 0..bins {
            rows[bin * HALO_PITCH + MARGIN - reach + column] = frame.map_or(0.0, |frame| frame[bin]);
        }
    }
}
