//! What controllers and variants ask of the duals, answered where they lie: counts of their keys, and corrections where
//! λ moves. To the last bit what the crate `bregman` computes on slices.

use std::cell::RefCell;
use std::ops::Range;

use super::memory::Scratch;
use super::update::{Placed, STRETCH};
use super::{Arrays, Buffer, Cuda, Shrinkage};
use crate::Result;

/// How the dual of one tensor follows a change of λ: see `Correction` in the crate `bregman`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Correction {
    /// What lives and dies together.
    pub shrinkage: Shrinkage,
    /// λ̃/λ.
    pub ratio: f32,
    /// δ.
    pub delta: f32,
    /// What duals of the dead are projected onto, if they are.
    pub bound: Option<f32>,
}

/// The part of a key that is counted by: see `Digit` in the crate `bregman`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digit {
    /// The bits above, already settled.
    pub prefix: u32,
    /// How many bits lie below.
    pub shift: u32,
    /// How many bits it has: 11 at most.
    pub width: u32,
}

/// Counting access to the duals of an optimizer's arrays.
pub struct Duals<'a> {
    cuda: &'a Cuda,
    /// Which jobs are a tensor's.
    of_tensor: Vec<Range<u32>>,
    jobs: &'a Buffer,
    /// The jobs of a call, and what it counts.
    working: RefCell<[&'a mut Buffer; 2]>,
}

/// Memory for that, kept with the arrays: recorded steps need not be recorded again because something was allocated.
pub(super) struct Working {
    jobs: Scratch,
    chosen: Scratch,
    counts: Scratch,
}

impl Default for Working {
    fn default() -> Self {
        Self { jobs: Scratch::new(), chosen: Scratch::new(), counts: Scratch::new() }
    }
}

/// `MOST_BINS` of kernels/duals.cu.
const MOST_BINS: usize = 1 << 11;

/// `Dual` of kernels/duals.cu.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Job {
    p: u64,
    theta: u64,
    weight: f64,
    ratio: f32,
    delta: f32,
    bound: f32,
    shrinkage: u32,
    group: u32,
    length: u32,
    projects: u32,
    /// C's structure ends on a multiple of eight, too.
    padding: u32,
}

/// A tensor's dual cut into whole groups; `job` is what all of them share.
fn cut(placed: &Placed, theta: u64, shrinkage: Shrinkage, job: Job) -> impl Iterator<Item = Job> {
    let (p, length) = (placed.floats[0].pointer(), placed.floats[0].bytes() / 4);
    let step = (STRETCH / shrinkage.group()).max(1) * shrinkage.group();
    (0..length).step_by(step).map(move |start| Job {
        p: p + start as u64 * 4,
        theta: theta + start as u64 * 4,
        shrinkage: shrinkage.code(),
        group: shrinkage.group() as u32,
        length: step.min(length - start) as u32,
        ..job
    })
}

impl Cuda {
    /// Access to the duals of `arrays`, of which each tensor has its kind of shrinkage and weight a·√n.
    ///
    /// # Errors
    /// Too little memory.
    pub fn duals<'a>(&'a self, arrays: &'a mut Arrays, tensors: &[(Shrinkage, f64)]) -> Result<Duals<'a>> {
        assert_eq!(tensors.len(), arrays.tensors.len(), "tensors of an optimizer");
        let (mut jobs, mut of_tensor) = (Vec::new(), Vec::new());
        for (placed, &(shrinkage, weight)) in arrays.tensors.iter().zip(tensors) {
            let first = jobs.len() as u32;
            jobs.extend(cut(placed, 0, shrinkage, Job { weight, ..bytemuck::Zeroable::zeroed() }));
            of_tensor.push(first..jobs.len() as u32);
        }
        let working = &mut arrays.working;
        let chosen = working.chosen.at_least(&self.device, jobs.len() * 4)?;
        let counts = working.counts.at_least(&self.device, MOST_BINS * 8)?;
        let table = working.jobs.at_least(&self.device, size_of_val(&*jobs))?;
        table.upload(&jobs)?;
        Ok(Duals { cuda: self, of_tensor, jobs: table, working: RefCell::new([chosen, counts]) })
    }

    /// Moves the duals along with λ, where they have to.
    ///
    /// # Errors
    /// A lost device.
    pub fn correct(
        &self,
        arrays: &mut Arrays,
        theta: &[&mut Buffer],
        corrections: &[Option<Correction>],
    ) -> Result<()> {
        assert!(theta.len() == arrays.tensors.len() && corrections.len() == theta.len(), "tensors of an optimizer");
        let mut jobs = Vec::new();
        for ((placed, theta), correction) in arrays.tensors.iter().zip(theta).zip(corrections) {
            let Some(Correction { shrinkage, ratio, delta, bound }) = *correction else { continue };
            let (projects, bound) = (u32::from(bound.is_some()), bound.unwrap_or(0.0));
            jobs.extend(cut(
                placed,
                theta.pointer(),
                shrinkage,
                Job { ratio, delta, bound, projects, ..bytemuck::Zeroable::zeroed() },
            ));
        }
        let table = arrays.working.jobs.at_least(&self.device, size_of_val(&*jobs))?;
        table.upload(&jobs)?;
        // SAFETY: a block per job, each inside of its tensor's dual and weights.
        unsafe { self.device.kernel("correct_duals").arg(table.pointer()).run([jobs.len() as u32, 1], [256, 1], 0) }
    }
}

impl Duals<'_> {
    /// Adds the size of every group of these tensors whose key has the digit's prefix to the bin of its digit.
    ///
    /// # Errors
    /// A lost device.
    pub fn histogram(&self, tensors: &[usize], digit: Digit, bins: &mut [u64]) -> Result<()> {
        let Digit { prefix, shift, width } = digit;
        assert!(bins.len() == 1 << width && bins.len() <= MOST_BINS, "bins of a digit");
        self.count(tensors, bins, |jobs, chosen, bins| {
            let launch = self.cuda.device.kernel("dual_histogram").arg(jobs).arg(chosen);
            launch.arg(prefix).arg(shift).arg(width).arg(bins)
        })
    }

    /// How many weights of these tensors would live at `lambda`.
    ///
    /// # Errors
    /// A lost device.
    pub fn live_at(&self, tensors: &[usize], lambda: f64) -> Result<u64> {
        let mut live = [0];
        self.count(tensors, &mut live, |jobs, chosen, live| {
            self.cuda.device.kernel("dual_live").arg(jobs).arg(chosen).arg(lambda).arg(live)
        })?;
        Ok(live[0])
    }

    /// Runs a kernel over the jobs of these tensors; it adds to `counts`.
    fn count<'a>(
        &'a self,
        tensors: &[usize],
        counts: &mut [u64],
        kernel: impl Fn(u64, u64, u64) -> super::Launch<'a>,
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
