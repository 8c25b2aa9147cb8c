//! What controllers and variants ask of the duals, answered where they are: counts of their keys, and corrections where
//! λ moves. To the last bit what `bregman` computes on slices.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use bregman::Shrinkage;
use bregman::optimizer::{Correction, DualKey, Duals};
use bregman::select::Digit;
use bytemuck::Zeroable;

use super::gpu::Gpu;
use super::layout::kernel_struct;
use super::memory::Scratch;
use super::multi::STRETCH;
use super::step::Placed;
use super::{DeviceArrays, DeviceBuffer, Launch};
use crate::Result;

/// Counting access to the duals of an optimizer's arrays.
pub(super) struct DeviceDuals<'a> {
    device: &'a Arc<Gpu>,
    /// Which jobs are a tensor's.
    of_tensor: Vec<Range<u32>>,
    jobs: &'a DeviceBuffer,
    /// The jobs of a call, and what it counts.
    working: RefCell<[&'a mut DeviceBuffer; 2]>,
}

/// Memory for that, kept with the arrays: an allocation during training would make captured steps be captured again.
pub(super) struct Working {
    jobs: Scratch,
    chosen: Scratch,
    counts: Scratch,
    /// A mask on its way.
    pub(super) mask: Scratch,
    /// How gradients pull at thresholds.
    pub(super) pulls: Scratch,
}

impl Default for Working {
    fn default() -> Self {
        Self {
            jobs: Scratch::new(),
            chosen: Scratch::new(),
            counts: Scratch::new(),
            mask: Scratch::new(),
            pulls: Scratch::new(),
        }
    }
}

/// `MOST_BINS` of kernels/duals.cu.
const MOST_BINS: usize = 1 << 11;

kernel_struct! {
    /// A block's part of a tensor's dual, and what is done with it.
    DualJob {
        p: u64 = "float *",
        theta: u64 = "const float *",
        /// a·√n
        weight: f64 = "double",
        ratio: f32 = "float",
        delta: f32 = "float",
        bound: f32 = "float",
        shrinkage: u32 = "Shrinkage",
        group: u32 = "u32",
        length: u32 = "u32",
    }
}

/// A tensor's dual cut into whole groups; `job` is what all of them share.
fn cut(placed: &Placed, theta: u64, shrinkage: Shrinkage, job: DualJob) -> impl Iterator<Item = DualJob> {
    let (p, length, group) = (placed.p.pointer(), placed.p.bytes() / 4, shrinkage.group_len());
    let step = (STRETCH / group).max(1) * group;
    (0..length).step_by(step).map(move |start| DualJob {
        p: p + start as u64 * 4,
        theta: theta + start as u64 * 4,
        shrinkage: shrinkage.code(),
        group: group as u32,
        length: step.min(length - start) as u32,
        ..job
    })
}

impl DeviceArrays {
    pub(super) fn count_duals(&mut self, keys: &[DualKey]) -> Result<DeviceDuals<'_>> {
        assert_eq!(keys.len(), self.tensors.len(), "tensors of an optimizer");
        let (mut jobs, mut of_tensor) = (Vec::new(), Vec::new());
        for (placed, &DualKey { shrinkage, weight }) in self.tensors.iter().zip(keys) {
            let first = jobs.len() as u32;
            jobs.extend(cut(placed, 0, shrinkage, DualJob { weight, ..Zeroable::zeroed() }));
            of_tensor.push(first..jobs.len() as u32);
        }
        let working = &mut self.working;
        let chosen = working.chosen.at_least(&self.device, jobs.len() * 4)?;
        let counts = working.counts.at_least(&self.device, MOST_BINS * 8)?;
        let table = working.jobs.at_least(&self.device, size_of_val(&*jobs))?;
        table.upload(&jobs)?;
        Ok(DeviceDuals { device: &self.device, of_tensor, jobs: table, working: RefCell::new([chosen, counts]) })
    }

    pub(super) fn correct_duals(&mut self, theta: &[&DeviceBuffer], corrections: &[Option<Correction>]) -> Result<()> {
        assert!(theta.len() == self.tensors.len() && corrections.len() == theta.len(), "tensors of an optimizer");
        let mut jobs = Vec::new();
        for ((placed, theta), correction) in self.tensors.iter().zip(theta).zip(corrections) {
            let Some(Correction { shrinkage, ratio, delta, bound }) = *correction else { continue };
            let job = DualJob { ratio, delta, bound, ..Zeroable::zeroed() };
            jobs.extend(cut(placed, theta.pointer(), shrinkage, job));
        }
        let table = self.working.jobs.at_least(&self.device, size_of_val(&*jobs))?;
        table.upload(&jobs)?;
        // SAFETY: a block per job, each inside of its tensor's dual and weights.
        unsafe { self.device.kernel("correct_duals").arg(table.pointer()).run([jobs.len() as u32, 1], [256, 1], 0) }
    }
}

impl Duals for DeviceDuals<'_> {
    fn histogram(&self, tensors: &[usize], digit: Digit, bins: &mut [u64]) -> bregman::Result<()> {
        let Digit { prefix, shift, width } = digit;
        assert!(bins.len() == 1 << width && bins.len() <= MOST_BINS, "bins of a digit");
        Ok(self.count(tensors, bins, |jobs, chosen, bins| {
            let launch = self.device.kernel("dual_histogram").arg(jobs).arg(chosen);
            launch.arg(prefix).arg(shift).arg(width).arg(bins)
        })?)
    }

    fn live_at(&self, tensors: &[usize], lambda: f64) -> bregman::Result<u64> {
        let mut count = [0];
        self.count(tensors, &mut count, |jobs, chosen, count| {
            self.device.kernel("dual_non_zeros").arg(jobs).arg(chosen).arg(lambda).arg(count)
        })?;
        Ok(count[0])
    }
}

impl DeviceDuals<'_> {
    /// Runs a kernel over the jobs of these tensors; it adds to `counts`.
    fn count<'a>(
        &'a self,
        tensors: &[usize],
        counts: &mut [u64],
        kernel: impl Fn(u64, u64, u64) -> Launch<'a>,
    ) -> Result<()> {
        let jobs: Vec<u32> = tensors.iter().flat_map(|&tensor| self.of_tensor[tensor].clone()).collect();
        let [chosen, counted] = &mut *self.working.borrow_mut();
        chosen.upload(&jobs)?;
        counted.upload(counts)?;
        let launch = kernel(self.jobs.pointer(), chosen.pointer(), counted.pointer());
        // SAFETY: a block per job, each inside of its tensor's dual; as many counts as the kernel has bins.
        unsafe { launch.run([jobs.len() as u32, 1], [256, 1], 0)? };
        counted.download(counts)
    }
}
