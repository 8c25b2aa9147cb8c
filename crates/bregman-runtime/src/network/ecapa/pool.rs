//! Attentive statistics: mean and deviation over time, each frame with a weight of its own per channel.

use bregman_base::Disjoint;

use super::super::Execution;
use super::strips::Strips;
use super::{BOTTLENECK, Ecapa, EcapaWorkspace, SLOTS};
use crate::kernels::STRIP;
use crate::kernels::math::{self, Pieces};

/// Tasks of the pooling; the number of channels is a multiple of it.
const CHUNKS: usize = 16;

impl Ecapa {
    /// Attentive statistics of the aggregated blocks.
    pub(super) fn pool(&self, run: &mut Execution, work: &mut EcapaWorkspace, strips: Strips) {
        let (channels, pooled, arch) = (self.channels, self.pooled, run.arch);
        let (frames, hidden) = (Disjoint::new(&mut work.middle), Disjoint::new(&mut work.hidden));
        let (outputs, codes) = (&*work.outputs, Disjoint::new(&mut work.codes));
        // SAFETY: the caller's task has its own strip.
        let codes = |strip: usize| unsafe { codes.part(strip * self.codes, self.codes) };
        let strip_of = |rows: usize, strip: usize| rows * STRIP * strip;
        run.layer(self.aggregate.conv.layer, strips.count(), |strip| {
            let x = &outputs[strip_of(SLOTS * channels, strip)..][..SLOTS * channels * STRIP];
            let at = strip_of(pooled, strip);
            // SAFETY: each task has its own strip.
            unsafe { self.aggregate.apply(arch, x, codes(strip), strips.width(strip), at, frames) };
        });

        // SAFETY: nothing writes the frames from here on.
        let x = unsafe { frames.read(0, strip_of(pooled, strips.count())) };
        let pieces = Pieces { count: strips.count(), step: pooled * STRIP, pitch: STRIP, length: strips.frames };
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
        let mut epilogue = self.hidden.conv.epilogue(None);
        if self.context.is_some() {
            epilogue.bias = &work.share;
        }
        run.layer(self.hidden.conv.layer, strips.count(), |strip| {
            let x = &x[strip_of(pooled, strip)..][..pooled * STRIP];
            let from = strip_of(BOTTLENECK, strip);
            // SAFETY: each task has its own strip.
            unsafe { self.hidden.apply_with(arch, x, codes(strip), strips.width(strip), from, &epilogue, hidden) };
            // SAFETY: the strip that this task has just written.
            let hidden = unsafe { hidden.part(from, BOTTLENECK * STRIP) };
            math::tanhs(arch, hidden);
        });
        let logits = Disjoint::new(&mut work.outputs); // the outputs of blocks are no longer needed
        run.layer(self.logits.conv.layer, strips.count(), |strip| {
            // SAFETY: each task has its own strip.
            unsafe {
                let x = hidden.read(strip_of(BOTTLENECK, strip), BOTTLENECK * STRIP);
                let at = strip_of(pooled, strip);
                self.logits.apply(arch, x, codes(strip), strips.width(strip), at, logits);
            }
        });

        // SAFETY: nothing writes the logits from here on.
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

/// The part of `[means; deviations]` that belongs to a chunk of channels.
///
/// # Safety
/// Nothing else may use that chunk.
unsafe fn own_channels(vector: Disjoint<'_>, channels: usize, chunk: usize) -> [&mut [f32]; 2] {
    let size = channels / CHUNKS;
    // SAFETY: as the caller promises; the two halves do not overlap.
    unsafe { [vector.part(chunk * size, size), vector.part(channels + chunk * size, size)] }
}
