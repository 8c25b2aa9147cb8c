//! ECAPA-TDNN. Time is cut into strips of [`BLOCK`] frames that lie one after the other, `[strip][channel][frame]`:
//! what a pointwise convolution needs of a strip is contiguous and stays in the cache. Dilated convolutions read a copy
//! with the neighbouring frames on both sides.

use bregman_base::{Buffer, Disjoint};

use super::{Conv, Cost, Layers, Run};
use crate::Result;
use crate::architecture::{BOTTLENECK, FRAME_CHANNELS, SCALE};
use crate::file::StoredLayer;
use crate::kernels::math::{self, Pieces};
use crate::kernels::{BLOCK, Linear, Offsets, Place};

/// A row with neighbours: [`MARGIN`] numbers, of which the last are those before the strip, the strip, and those after
/// it in the next row's margin.
const HALO_PITCH: usize = MARGIN + BLOCK;
const MARGIN: usize = Buffer::LINE;

pub(crate) struct Ecapa {
    channels: usize,
    features: usize,
    first: Halo,
    blocks: Vec<Block>,
    aggregate: Strip,
    hidden: Strip,
    /// Number of the layer `hidden`, and its columns for the utterance's mean and deviation.
    context: Option<Linear>,
    logits: Strip,
    linear: (usize, Linear),
}

/// A pointwise convolution over strips.
struct Strip {
    conv: Conv,
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
struct Halo {
    conv: Conv,
    offsets: Offsets,
    /// Neighbours on each side.
    reach: usize,
}

impl Halo {
    fn new(conv: Conv, kernel: usize, dilation: usize) -> Self {
        let offsets = conv.offsets(|column| column / kernel * HALO_PITCH + column % kernel * dilation);
        Self { conv, offsets, reach: kernel / 2 * dilation }
    }
}

/// `y = x + se(f₂(res2(f₀(x))))`
struct Block {
    first: Strip,
    res2: Vec<Halo>,
    last: Strip,
    squeeze: (usize, Linear),
    excite: (usize, Linear),
}

/// The memory of one execution.
#[derive(Default)]
pub(crate) struct Workspace {
    /// Rows with neighbours: the features, then parts of Res2.
    halo: Buffer,
    /// `[strip][4 · channels]`: outputs of the first layer and of the blocks.
    outputs: Buffer,
    /// `[strip][2 · channels]`: within a block, the first convolution's output and Res2's.
    middle: Buffer,
    /// `[strip][channels]`: the last convolution's output.
    last: Buffer,
    /// `[strip][FRAME_CHANNELS]`
    frames: Buffer,
    /// `[strip][BOTTLENECK]`
    hidden: Buffer,
    /// `[strip][FRAME_CHANNELS]`
    logits: Buffer,
    /// `[strip][channels]`: sums over the frames of a strip.
    sums: Vec<f32>,
    mean: Vec<f32>,
    squeezed: Vec<f32>,
    gate: Vec<f32>,
    moments: Vec<f32>,
    share: Vec<f32>,
    statistics: Vec<f32>,
}

impl Workspace {
    fn reserve(&mut self, network: &Ecapa, strips: usize) {
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
            .sum()
    }
}

fn halo_stride(rows: usize) -> usize {
    rows * HALO_PITCH + MARGIN
}

/// Frames `[0, frames)` cut into strips.
#[derive(Clone, Copy)]
struct Strips {
    frames: usize,
}

impl Strips {
    fn count(self) -> usize {
        self.frames.div_ceil(BLOCK)
    }

    /// Frames of a strip.
    fn width(self, strip: usize) -> usize {
        BLOCK.min(self.frames - strip * BLOCK)
    }
}

impl Ecapa {
    pub(crate) fn new<'b>(
        channels: usize,
        features: usize,
        global_context: bool,
        stored: &mut std::slice::Iter<'b, StoredLayer<'b>>,
    ) -> Result<Self> {
        let layers = &mut Layers { stored, next: 0 };
        let first = Halo::new(layers.conv()?, 5, 1);
        let blocks = (0..3).map(|block| Block::new(layers, channels, block)).collect::<Result<_>>()?;
        let aggregate = Strip::new(layers.conv()?, |channel| channels + channel);
        let (number, stored) = layers.take();
        let hidden = Strip::new(Conv::of_columns(number, stored, 0..FRAME_CHANNELS)?, |channel| channel);
        let context =
            global_context.then(|| Linear::new(stored, FRAME_CHANNELS..3 * FRAME_CHANNELS, false)).transpose()?;
        let logits = Strip::new(layers.conv()?, |channel| channel);
        let (number, stored) = layers.take();
        let linear = (number, Linear::new(stored, 0..2 * FRAME_CHANNELS, true)?);
        Ok(Self { channels, features, first, blocks, aggregate, hidden, context, logits, linear })
    }

    pub(crate) fn costs(&self) -> Vec<Cost> {
        let linear = |linear: &Linear| Cost { dense: false, bytes: linear.bytes(), live: linear.live() };
        let mut costs = vec![self.first.conv.cost()];
        for block in &self.blocks {
            costs.push(block.first.conv.cost());
            costs.extend(block.res2.iter().map(|part| part.conv.cost()));
            costs.extend([block.last.conv.cost(), linear(&block.squeeze.1), linear(&block.excite.1)]);
        }
        let mut hidden = self.hidden.conv.cost();
        if let Some(context) = &self.context {
            hidden.bytes += context.bytes();
            hidden.live += context.live();
        }
        costs.extend([self.aggregate.conv.cost(), hidden, self.logits.conv.cost(), linear(&self.linear.1)]);
        costs
    }

    pub(crate) fn forward(&self, run: &mut Run, work: &mut Workspace, features: &[f32], embedding: &mut [f32]) {
        let strips = Strips { frames: features.len() / self.features };
        work.reserve(self, strips.count());
        let (channels, arch) = (self.channels, run.arch);

        // the first layer, from features with neighbours
        let stride = halo_stride(self.features);
        let (halo, outputs) = (Disjoint::new(&mut work.halo), Disjoint::new(&mut work.outputs));
        run.layer(self.first.conv.layer, strips.count(), |strip| {
            // SAFETY: each task has its own strip of both buffers.
            let input = unsafe { halo.part(strip * stride, stride) };
            transpose(features, self.features, strip, self.first.reach, input);
            // SAFETY: as above.
            unsafe { self.first.apply(arch, input, strips.width(strip), 4 * channels * BLOCK * strip, outputs) };
        });
        for (number, block) in self.blocks.iter().enumerate() {
            self.block(run, work, strips, number, block);
        }
        self.pool(run, work, strips);
        let (number, linear) = &self.linear;
        run.timed(*number, |_| linear.apply(&work.statistics, embedding));
    }

    /// One SE-Res2Block up to its gate; the gate is applied by [`Ecapa::gated`].
    fn block(&self, run: &mut Run, work: &mut Workspace, strips: Strips, number: usize, block: &Block) {
        let (channels, arch, width) = (self.channels, run.arch, self.channels / SCALE);
        let (outputs, middle, last) =
            (Disjoint::new(&mut work.outputs), Disjoint::new(&mut work.middle), Disjoint::new(&mut work.last));
        let input = 4 * channels * BLOCK;
        run.layer(block.first.conv.layer, strips.count(), |strip| {
            // SAFETY: each task has its own strip of both buffers.
            unsafe {
                let x = outputs.read(input * strip, input);
                block.first.apply(arch, x, true, strips.width(strip), 2 * channels * BLOCK * strip, middle);
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
                // SAFETY: each task has its own strip of `middle`.
                unsafe { part.apply(arch, sums, strips.width(strip), y, middle) };
            });
        }

        let sums = Disjoint::new(&mut work.sums);
        run.layer(block.last.conv.layer, strips.count(), |strip| {
            let (from, length) = (channels * BLOCK * strip, channels * BLOCK);
            // SAFETY: each task has its own strip of all buffers.
            let (x, sums) = unsafe { (middle.read(2 * from, 2 * length), sums.part(strip * channels, channels)) };
            // SAFETY: as above.
            unsafe { block.last.apply(arch, x, true, strips.width(strip), from, last) };
            // SAFETY: as above.
            let y = unsafe { last.read(from, length) };
            math::row_sums(arch, y, BLOCK, strips.width(strip), sums);
        });

        work.mean.fill(0.0);
        for sums in work.sums.chunks_exact(channels) {
            work.mean.iter_mut().zip(sums).for_each(|(mean, sum)| *mean += sum / strips.frames as f32);
        }
        run.timed(block.squeeze.0, |_| block.squeeze.1.apply(&work.mean, &mut work.squeezed));
        work.squeezed.iter_mut().for_each(|value| *value = value.max(0.0));
        run.timed(block.excite.0, |_| block.excite.1.apply(&work.squeezed, &mut work.gate));
        math::sigmoids(arch, &mut work.gate);

        // y = x + gate · f₂
        let gate = &work.gate;
        run.layer(block.excite.0, strips.count(), |strip| {
            let (from, length) = (input * strip + number * channels * BLOCK, channels * BLOCK);
            // SAFETY: each task has its own strip; x and y are different rows of it.
            let (x, y, last) = unsafe {
                (
                    outputs.read(from, length),
                    outputs.part(from + length, length),
                    last.read(channels * BLOCK * strip, length),
                )
            };
            math::gated(arch, x, last, gate, y);
        });
    }

    /// Attentive statistics of the aggregated blocks.
    fn pool(&self, run: &mut Run, work: &mut Workspace, strips: Strips) {
        let (channels, arch) = (self.channels, run.arch);
        let (frames, hidden, logits) =
            (Disjoint::new(&mut work.frames), Disjoint::new(&mut work.hidden), Disjoint::new(&mut work.logits));
        let outputs = &*work.outputs;
        let strip_of = |rows: usize, strip: usize| rows * BLOCK * strip;
        run.layer(self.aggregate.conv.layer, strips.count(), |strip| {
            let x = &outputs[strip_of(4 * channels, strip)..][..4 * channels * BLOCK];
            // SAFETY: each task has its own strip.
            unsafe {
                self.aggregate.apply(arch, x, true, strips.width(strip), strip_of(FRAME_CHANNELS, strip), frames)
            };
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
                math::moments(arch, x, pieces, chunk * CHUNK, means, deviations);
            });
            run.timed(self.hidden.conv.layer, |_| context.apply(&work.moments, &mut work.share));
        }

        let share = &work.share;
        run.layer(self.hidden.conv.layer, strips.count(), |strip| {
            let x = &x[strip_of(FRAME_CHANNELS, strip)..][..FRAME_CHANNELS * BLOCK];
            let from = strip_of(BOTTLENECK, strip);
            // SAFETY: each task has its own strip.
            unsafe { self.hidden.apply(arch, x, false, strips.width(strip), from, hidden) };
            // SAFETY: as above.
            let hidden = unsafe { hidden.part(from, BOTTLENECK * BLOCK) };
            math::shifted_tanh(arch, hidden, BLOCK, share);
        });
        run.layer(self.logits.conv.layer, strips.count(), |strip| {
            // SAFETY: each task has its own strip.
            unsafe {
                let x = hidden.read(strip_of(BOTTLENECK, strip), BOTTLENECK * BLOCK);
                self.logits.apply(arch, x, false, strips.width(strip), strip_of(FRAME_CHANNELS, strip), logits);
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

impl Block {
    fn new(layers: &mut Layers, channels: usize, number: usize) -> Result<Self> {
        // input: block 0 reads the rows of the first layer, block 1 those of block 0, …
        let first = Strip::new(layers.conv()?, |channel| number * channels + channel);
        let res2 = (0..SCALE - 1).map(|_| Ok(Halo::new(layers.conv()?, 3, number + 2))).collect::<Result<_>>()?;
        // the last part of Res2 is its input's
        let passed = channels / SCALE * (SCALE - 1);
        let last = Strip::new(layers.conv()?, |channel| if channel < passed { channels + channel } else { channel });
        let mut linear = |columns: usize| -> Result<(usize, Linear)> {
            let (number, stored) = layers.take();
            Ok((number, Linear::new(stored, 0..columns, true)?))
        };
        Ok(Self { first, res2, last, squeeze: linear(channels)?, excite: linear(BOTTLENECK)? })
    }
}

impl Strip {
    /// # Safety
    /// Nobody else may use the strip of `y` that begins at `at`.
    unsafe fn apply(&self, arch: pulp::Arch, x: &[f32], relu: bool, width: usize, at: usize, y: Disjoint) {
        let place = Place { x: 0, y: at, pitch: BLOCK, width };
        // SAFETY: as the caller promises.
        unsafe { self.conv.weights.apply(arch, &self.offsets, x, place, &self.conv.store(relu, None), y) };
    }
}

impl Halo {
    /// # Safety
    /// As [`Strip::apply`].
    unsafe fn apply(&self, arch: pulp::Arch, x: &[f32], width: usize, at: usize, y: Disjoint) {
        let place = Place { x: MARGIN - self.reach, y: at, pitch: BLOCK, width };
        // SAFETY: as the caller promises.
        unsafe { self.conv.weights.apply(arch, &self.offsets, x, place, &self.conv.store(true, None), y) };
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
