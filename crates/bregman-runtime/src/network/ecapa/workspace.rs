//! The memory of one execution.

use bregman_base::Buffer;

use super::strips::halo_stride;
use super::{BOTTLENECK, Ecapa, FRAME_CHANNELS, SCALE};
use crate::kernels::BLOCK;

/// The memory of one execution.
#[derive(Default)]
pub(crate) struct EcapaWorkspace {
    /// Rows with neighbours: the features, then parts of Res2.
    pub(super) halo: Buffer,
    /// `[strip][4 · channels]`: outputs of the first layer and of the blocks.
    pub(in crate::network) outputs: Buffer,
    /// `[strip][2 · channels]`: within a block, the first convolution's output and Res2's.
    pub(super) middle: Buffer,
    /// `[strip][channels]`: the last convolution's output.
    pub(in crate::network) last: Buffer,
    /// `[strip][FRAME_CHANNELS]`
    pub(super) frames: Buffer,
    /// `[strip][BOTTLENECK]`
    pub(super) hidden: Buffer,
    /// `[strip][FRAME_CHANNELS]`
    pub(super) logits: Buffer,
    /// Of each strip, what a layer in whole numbers reads.
    pub(super) codes: Vec<u8>,
    /// `[strip][channels]`: sums over the frames of a strip.
    pub(in crate::network) sums: Vec<f32>,
    pub(super) mean: Vec<f32>,
    pub(super) squeezed: Vec<f32>,
    pub(super) gate: Vec<f32>,
    pub(super) moments: Vec<f32>,
    pub(super) share: Vec<f32>,
    pub(super) statistics: Vec<f32>,
}

impl EcapaWorkspace {
    pub(in crate::network) fn reserve(&mut self, network: &Ecapa, strips: usize) {
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
