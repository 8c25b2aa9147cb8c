//! ECAPA-TDNN, WeSpeaker's and SpeechBrain's. Time is cut into strips of [`BLOCK`] frames that lie one after the other,
//! `[strip][channel][frame]`: what a pointwise convolution needs of a strip is contiguous and stays in the cache.
//! Dilated convolutions read a copy with the neighbouring frames on both sides.

use bregman_base::{Buffer, Disjoint};
use bregman_network::{Deviation, EcapaConfig, EcapaLayers, LayerKind, LayerSpec, Padding, SeRes2Layers};

use super::{Conv, Execution, Layers, Product};
use crate::Result;
use crate::kernels::math::{self, Pieces};
use crate::kernels::{BLOCK, Offsets, Place, Store};

/// A row with neighbours: [`MARGIN`] numbers, of which the last are those before the strip, the strip, and those after
/// it in the next row's margin.
const HALO_PITCH: usize = MARGIN + BLOCK;
const MARGIN: usize = Buffer::LINE;
const BOTTLENECK: usize = EcapaConfig::BOTTLENECK;
pub(super) const SCALE: usize = EcapaConfig::SCALE;

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
    /// What lies beyond the ends.
    pub(super) padding: Padding,
}

impl Halo {
    fn new(layers: &mut Layers, spec: &LayerSpec) -> Result<Self> {
        let LayerKind::Conv1d { kernel, dilation, .. } = spec.kind else {
            unreachable!("{} is a convolution over time", spec.name)
        };
        let conv = layers.coded_conv(spec)?;
        let offsets = conv.offsets(|column| column / kernel * HALO_PITCH + column % kernel * dilation);
        Ok(Self { conv, offsets, kernel, dilation, reach: kernel / 2 * dilation, padding: spec.padding })
    }
}

/// `y = x + se(f₂(res2(f₀(x))))`
pub(super) struct EcapaBlock {
    pub(super) first: Strip,
    pub(super) res2: Vec<Halo>,
    /// The part of Res2 that its first convolution reads.
    pub(super) first_part: usize,
    /// The one that passes.
    pub(super) passes: usize,
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
    /// `[strip][pooled]`
    frames: Buffer,
    /// `[strip][BOTTLENECK]`
    hidden: Buffer,
    /// `[strip][pooled]`
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
        let (channels, pooled) = (network.channels, network.pooled);
        let widest = network.features.max(channels / SCALE);
        self.halo.grow(strips * halo_stride(widest));
        for (buffer, rows) in [
            (&mut self.outputs, 4 * channels),
            (&mut self.middle, 2 * channels),
            (&mut self.last, channels),
            (&mut self.frames, pooled),
            (&mut self.hidden, BOTTLENECK),
            (&mut self.logits, pooled),
        ] {
            buffer.grow(strips * rows * BLOCK);
        }
        self.codes.resize(self.codes.len().max(strips * network.codes), 0);
        let vectors = [
            (&mut self.sums, strips * channels),
            (&mut self.mean, channels),
            (&mut self.squeezed, BOTTLENECK),
            (&mut self.gate, channels),
            (&mut self.moments, 2 * pooled),
            (&mut self.share, BOTTLENECK),
            (&mut self.statistics, 2 * pooled),
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
            aggregate: Strip::new(layers.coded_conv(&specs.aggregate)?, |channel| channels + channel),
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
        for (number, part) in block.res2.iter().enumerate() {
            let i = block.first_part + number;
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
        let (channels, pooled, arch) = (self.channels, self.pooled, run.arch);
        let (frames, hidden, logits) =
            (Disjoint::new(&mut work.frames), Disjoint::new(&mut work.hidden), Disjoint::new(&mut work.logits));
        let (outputs, codes) = (&*work.outputs, Disjoint::new(&mut work.codes));
        // SAFETY: the caller's task has its own strip.
        let codes = |strip: usize| unsafe { codes.part(strip * self.codes, self.codes) };
        let strip_of = |rows: usize, strip: usize| rows * BLOCK * strip;
        run.layer(self.aggregate.conv.layer, strips.count(), |strip| {
            let x = &outputs[strip_of(4 * channels, strip)..][..4 * channels * BLOCK];
            let at = strip_of(pooled, strip);
            // SAFETY: each task has its own strip.
            unsafe { self.aggregate.apply(arch, x, codes(strip), strips.width(strip), at, frames) };
        });

        // SAFETY: nobody writes the frames from here on.
        let x = unsafe { frames.read(0, strip_of(pooled, strips.count())) };
        let pieces = Pieces { count: strips.count(), step: pooled * BLOCK, pitch: BLOCK, length: strips.frames };
        let chunk_size = pooled / CHUNKS;
        if let Some(context) = &self.context {
            let moments = Disjoint::new(&mut work.moments);
            run.layer(self.hidden.conv.layer, CHUNKS, |chunk| {
                // SAFETY: each task has its own channels.
                let [means, deviations] = unsafe { own_channels(moments, pooled, chunk) };
                math::moments(arch, x, pieces, chunk * chunk_size, self.deviation, means, deviations);
            });
            context.apply(run, &work.moments, &mut work.share);
        }

        // what the context adds is the same in all frames: it is there from the start, with the bias
        let mut store = self.hidden.conv.store(None);
        if self.context.is_some() {
            store.bias = &work.share;
        }
        run.layer(self.hidden.conv.layer, strips.count(), |strip| {
            let x = &x[strip_of(pooled, strip)..][..pooled * BLOCK];
            let from = strip_of(BOTTLENECK, strip);
            // SAFETY: each task has its own strip.
            unsafe { self.hidden.apply_with(arch, x, codes(strip), strips.width(strip), from, &store, hidden) };
            // SAFETY: as above.
            let hidden = unsafe { hidden.part(from, BOTTLENECK * BLOCK) };
            math::tanhs(arch, hidden);
        });
        run.layer(self.logits.conv.layer, strips.count(), |strip| {
            // SAFETY: each task has its own strip.
            unsafe {
                let x = hidden.read(strip_of(BOTTLENECK, strip), BOTTLENECK * BLOCK);
                let at = strip_of(pooled, strip);
                self.logits.apply(arch, x, codes(strip), strips.width(strip), at, logits);
            }
        });

        // SAFETY: nobody writes the logits from here on.
        let logits = unsafe { logits.read(0, strip_of(pooled, strips.count())) };
        let statistics = Disjoint::new(&mut work.statistics);
        run.layer(self.logits.conv.layer, CHUNKS, |chunk| {
            // SAFETY: each task has its own channels.
            let [means, deviations] = unsafe { own_channels(statistics, pooled, chunk) };
            let epsilon = self.deviation.epsilon();
            math::attended(arch, x, logits, pieces, chunk * chunk_size, epsilon, means, deviations);
        });
    }
}

/// Tasks of the pooling; the number of channels is a multiple of it.
const CHUNKS: usize = 16;

/// The part of `[means; deviations]` that belongs to a chunk of channels.
///
/// # Safety
/// Nobody else may use that chunk.
unsafe fn own_channels(vector: Disjoint<'_>, channels: usize, chunk: usize) -> [&mut [f32]; 2] {
    let size = channels / CHUNKS;
    // SAFETY: as the caller promises; the two halves do not overlap.
    unsafe { [vector.part(chunk * size, size), vector.part(channels + chunk * size, size)] }
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

impl Strip {
    /// # Safety
    /// Nobody else may use the strip of `y` that begins at `at`.
    unsafe fn apply(&self, arch: pulp::Arch, x: &[f32], codes: &mut [u8], width: usize, at: usize, y: Disjoint) {
        // SAFETY: as the caller promises.
        unsafe { self.apply_with(arch, x, codes, width, at, &self.conv.store(None), y) };
    }

    /// As [`Strip::apply`], with another way to memory.
    ///
    /// # Safety
    /// As [`Strip::apply`].
    #[allow(clippy::too_many_arguments)]
    unsafe fn apply_with(
        &self,
        arch: pulp::Arch,
        x: &[f32],
        codes: &mut [u8],
        width: usize,
        at: usize,
        store: &Store,
        y: Disjoint,
    ) {
        let place = Place { x: 0, y: at, pitch: BLOCK, width };
        // SAFETY: as the caller promises.
        unsafe { self.conv.apply_with(arch, &self.offsets, x, codes, place, store, y) };
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

/// Fills a row with neighbours: `copy(strip, frames, to)` gives frames of a strip. Outside of the utterance lie zeros,
/// or its frames mirrored, of which there are more than the reach.
#[inline(always)]
fn with_neighbours(
    strips: Strips,
    strip: usize,
    &Halo { reach, padding, .. }: &Halo,
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
    if padding == Padding::Reflected {
        if strip == 0 {
            before.iter_mut().rev().zip(&own[1..]).for_each(|(to, from)| *to = *from);
        }
        for column in next..reach {
            let frame = mirrored(strip * BLOCK + width + column, strips.frames);
            let at = frame % BLOCK;
            copy(frame / BLOCK, at..at + 1, &mut after[column..column + 1]);
        }
    }
}

/// The frame that one beyond the end shows.
fn mirrored(frame: usize, frames: usize) -> usize {
    2 * (frames - 1) - frame
}

/// Features `[frame][bin]` as rows `[bin][frame]` of one strip with neighbours.
fn transpose(features: &[f32], bins: usize, strip: usize, halo: &Halo, rows: &mut [f32]) {
    let (reach, frames) = (halo.reach, features.len() / bins);
    for column in 0..BLOCK + 2 * reach {
        let frame = match ((strip * BLOCK + column).checked_sub(reach), halo.padding) {
            (Some(frame), _) if frame < frames => Some(frame),
            (None, Padding::Reflected) => Some(reach - column),
            // what lies further beyond the end is read with whole vectors and makes no output
            (Some(frame), Padding::Reflected) if frame < frames + reach => Some(mirrored(frame, frames)),
            _ => None,
        };
        let frame = frame.map(|frame| &features[frame * bins..(frame + 1) * bins]);
        for bin in 0..bins {
            rows[bin * HALO_PITCH + MARGIN - reach + column] = frame.map_or(0.0, |frame| frame[bin]);
        }
    }
}
