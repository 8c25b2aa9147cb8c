//! Attentive statistics: mean and deviation over time, each frame with a weight of its own per channel.

use bregman_base::Disjoint;

use super::super::Execution;
use super::strips::Strips;
use super::{BOTTLENECK, Ecapa, EcapaWorkspace, FRAME_CHANNELS};
use crate::kernels::BLOCK;
use crate::kernels::math::{self, POOL_EPSILON, Pieces};

/// Channels that a task of the pooling takes.
const CHUNK: usize = FRAME_CHANNELS / 16;

impl Ecapa {
    /// Attentive statistics of the aggregated blocks.
    pub(super) fn pool(&self, run: &mut Execution, work: &mut EcapaWorkspace, strips: Strips) {
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

/// The part of `[means; deviations]` that belongs to a chunk of channels.
///
/// # Safety
/// Nobody else may use that chunk.
unsafe fn own_channels(vector: Disjoint<'_>, chunk: usize) -> [&mut [f32]; 2] {
    // SAFETY: as the caller promises; the two halves do not overlap.
    unsafe { [vector.part(chunk * CHUNK, CHUNK), vector.part(FRAME_CHANNELS + chunk * CHUNK, CHUNK)] }
}
