//! The memory of one execution.

use bregman_base::Buffer;

use super::strips::halo_stride;
use super::{BOTTLENECK, Ecapa, SCALE, SLOTS};
use crate::kernels::STRIP;

/// The memory of one execution.
#[derive(Default)]
pub(crate) struct EcapaWorkspace {
    /// Rows with neighbours: the features, then parts of Res2.
    pub(super) halo: Buffer,
    /// `[strip][slot][channels]`: outputs of the first layer and of the blocks; of a block that is not gated yet, those
    /// of its last convolution. Once they are aggregated, `[strip][pooled]`: the weight of each frame.
    pub(in crate::network) outputs: Buffer,
    /// `[strip][2 · channels]`: within a block, the first convolution's output and Res2's. After the last block,
    /// `[strip][pooled]`: what is pooled.
    pub(super) middle: Buffer,
    /// `[strip][BOTTLENECK]`
    pub(super) hidden: Buffer,
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
        let (channels, pooled) = (network.channels, network.pooled);
        let widest = network.features.max(channels / SCALE);
        self.halo.grow(strips * halo_stride(widest));
        for (buffer, rows) in [
            (&mut self.outputs, pooled.max(SLOTS * channels)),
            (&mut self.middle, pooled.max(2 * channels)),
            (&mut self.hidden, BOTTLENECK),
        ] {
            buffer.grow(strips * rows * STRIP);
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
        let buffers = [&self.halo, &self.outputs, &self.middle, &self.hidden];
        buffers.into_iter().map(Buffer::bytes).sum::<usize>() + self.codes.len()
    }
}
