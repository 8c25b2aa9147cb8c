//! Batch norms over the batches of all ranks together: their statistics are summed on the way.
//!
//! Ranks may have parts of a batch that differ in size. A rank's gradient is that of the mean over its own part, which
//! enters the whole batch with the part's share; sums are therefore weighted with the number of values.

use rayon::prelude::*;

use super::Cpu;
use crate::{Result, Shape};

/// Mean and biased variance of every channel, over all ranks.
pub(super) struct JointMoments {
    /// Values of a channel.
    pub(super) count: usize,
    pub(super) moments: Vec<(f32, f32)>,
}

/// Two sums over the gradients of every channel.
pub(super) struct JointSums {
    /// Values of a channel, over all ranks.
    pub(super) count: usize,
    /// This rank's.
    pub(super) own: Vec<[f32; 2]>,
    /// All ranks', in the units of this rank's gradients.
    pub(super) all: Vec<[f32; 2]>,
}

impl Cpu {
    /// The moments of all ranks from `own`, this rank's of a channel; `None` where norms are by rank.
    pub(super) fn joint_moments(
        &self,
        shape: Shape,
        own: impl Fn(usize) -> (f32, f32) + Sync + Send,
    ) -> Result<Option<JointMoments>> {
        if !self.joint_norms {
            return Ok(None);
        }
        let n = shape.plane() as f64;
        let own: Vec<(f32, f32)> = (0..shape.channels).into_par_iter().map(own).collect();
        let weighted = own.iter().flat_map(|&(mean, variance)| {
            let (mean, variance) = (f64::from(mean), f64::from(variance));
            [n * mean, n * (variance + mean * mean)]
        });
        let mut sums: Vec<f64> = weighted.chain([n]).collect();
        self.ranks.sum(&mut sums)?;
        let count = sums[2 * shape.channels];
        let moments = sums[..2 * shape.channels].chunks_exact(2).map(|sums| {
            let (mean, square) = (sums[0] / count, sums[1] / count);
            (mean as f32, (square - mean * mean).max(0.0) as f32)
        });
        Ok(Some(JointMoments { count: count as usize, moments: moments.collect() }))
    }

    /// The sums of all ranks from `own`, this rank's of a channel; `None` where norms are by rank.
    pub(super) fn joint_sums(
        &self,
        shape: Shape,
        own: impl Fn(usize) -> [f32; 2] + Sync + Send,
    ) -> Result<Option<JointSums>> {
        if !self.joint_norms {
            return Ok(None);
        }
        let n = shape.plane() as f64;
        let own: Vec<[f32; 2]> = (0..shape.channels).into_par_iter().map(own).collect();
        let mut sums: Vec<f64> = own.iter().flatten().map(|&sum| n * f64::from(sum)).chain([n]).collect();
        self.ranks.sum(&mut sums)?;
        let count = sums[2 * shape.channels] as usize;
        let all = sums[..2 * shape.channels].chunks_exact(2);
        let all = all.map(|sums| [(sums[0] / n) as f32, (sums[1] / n) as f32]).collect();
        Ok(Some(JointSums { count, own, all }))
    }
}
