//! One pass over memory: gradient in; dual, moments and weights out; zeros and norm counted.
//!
//! A tensor is cut into chunks for the threads, a chunk into blocks that stay in the first-level cache. On each block
//! the update rule runs, then what follows it (a prox or a mask), then the count: three small loops that know nothing of
//! each other, yet every array crosses the memory bus once. Chunks depend only on the shapes and their tallies are added
//! in order, so the results are the same on any number of threads.

use pulp::Arch;
use rayon::prelude::*;

use crate::lanes;
use crate::penalty::Shrinkage;

/// Elements per chunk: enough work for a task, small enough to balance 15 M weights over many threads.
const CHUNK: usize = 1 << 16;
/// Elements per block: five arrays of it fit into 32 KiB.
const BLOCK: usize = 1 << 10;

/// How one optimizer turns a gradient into new values, all coefficients of the step worked out.
pub(crate) trait Update: Copy + Send + Sync {
    /// Advances one block. Slices of state the optimizer does not keep are empty.
    fn advance(self, block: Block<'_>);
}

/// The same stretch of a tensor's gradient, weights and state.
pub(crate) struct Block<'a> {
    pub(crate) g: &'a [f32],
    pub(crate) theta: &'a mut [f32],
    pub(crate) p: &'a mut [f32],
    pub(crate) m: &'a mut [f32],
    pub(crate) v: &'a mut [f32],
}

/// What happens to a tensor's weights after the update.
#[derive(Clone, Copy)]
pub(crate) enum After<'a> {
    /// Nothing: dense training.
    Nothing,
    /// θ ← scale·prox(p): the Bregman optimizers.
    ProxOfDual(Prox),
    /// θ ← prox(θ): proximal gradient descent.
    ProxOfWeights(Prox),
    /// θ ← 0 outside the mask, and the momentum with it: pruning.
    Mask(&'a [bool]),
}

/// A prox with its numbers.
#[derive(Clone, Copy)]
pub(crate) struct Prox {
    pub(crate) shrinkage: Shrinkage,
    pub(crate) threshold: f32,
    pub(crate) scale: f32,
}

impl After<'_> {
    fn group_len(self) -> usize {
        match self {
            After::ProxOfDual(prox) | After::ProxOfWeights(prox) => prox.shrinkage.group_len(),
            After::Nothing | After::Mask(_) => 1,
        }
    }
}

/// What a pass counts on the way.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Tally {
    pub(crate) zeros: u64,
    pub(crate) sum_squares: f64,
    /// Index of the first non-finite gradient; its block was left as it was.
    pub(crate) non_finite: Option<usize>,
}

/// One tensor's share of a pass.
pub(crate) struct Job<'a, U> {
    pub(crate) update: U,
    pub(crate) after: After<'a>,
    pub(crate) slices: Block<'a>,
}

struct Chunk<'a, U> {
    tensor: usize,
    offset: usize,
    job: Job<'a, U>,
    tally: Tally,
}

/// Runs all jobs and returns a tally per tensor.
pub(crate) fn run<U: Update>(jobs: Vec<Job<'_, U>>) -> Vec<Tally> {
    let tensors = jobs.len();
    let mut chunks: Vec<Chunk<'_, U>> = jobs.into_iter().enumerate().flat_map(|(tensor, job)| chunks_of(tensor, job)).collect();
    let arch = Arch::new();
    chunks.par_iter_mut().for_each(|chunk| arch.dispatch(|| chunk.run()));

    let mut tallies = vec![Tally::default(); tensors];
    for chunk in &chunks {
        let tally = &mut tallies[chunk.tensor];
        tally.zeros += chunk.tally.zeros;
        tally.sum_squares += chunk.tally.sum_squares;
        tally.non_finite = tally.non_finite.or(chunk.tally.non_finite);
    }
    tallies
}

/// The tally of weights as they stand.
pub(crate) fn tally(theta: &[f32]) -> Tally {
    let add = |a: Tally, b: Tally| Tally { zeros: a.zeros + b.zeros, sum_squares: a.sum_squares + b.sum_squares, ..a };
    let chunk = |part: &[f32]| part.chunks(BLOCK).map(tally_block).fold(Tally::default(), add);
    theta.chunks(CHUNK).map(chunk).fold(Tally::default(), add)
}

#[inline(always)]
fn tally_block(theta: &[f32]) -> Tally {
    Tally { zeros: lanes::zeros(theta), sum_squares: f64::from(lanes::sum_of_squares(theta)), non_finite: None }
}

/// `len` rounded down to whole groups, one group at least.
fn whole_groups(len: usize, group: usize) -> usize {
    (len / group).max(1) * group
}

/// Cuts a job into chunks of whole groups.
fn chunks_of<U: Update>(tensor: usize, job: Job<'_, U>) -> Vec<Chunk<'_, U>> {
    let Job { update, after, slices: mut rest } = job;
    let (len, step) = (rest.theta.len(), whole_groups(CHUNK, after.group_len()));
    let mut chunks = Vec::with_capacity(len.div_ceil(step));
    for offset in (0..len).step_by(step) {
        let (slices, tail) = rest.split_at(step.min(len - offset));
        rest = tail;
        let after = match after {
            After::Mask(mask) => After::Mask(&mask[offset..offset + slices.theta.len()]),
            after => after,
        };
        chunks.push(Chunk { tensor, offset, job: Job { update, after, slices }, tally: Tally::default() });
    }
    chunks
}

impl<'a> Block<'a> {
    /// Both sides of every slice that is in use.
    fn split_at(self, at: usize) -> (Block<'a>, Block<'a>) {
        fn cut<'a>(slice: &'a mut [f32], at: usize) -> (&'a mut [f32], &'a mut [f32]) {
            slice.split_at_mut(at.min(slice.len()))
        }
        let (g, g_rest) = self.g.split_at(at.min(self.g.len()));
        let (theta, theta_rest) = cut(self.theta, at);
        let (p, p_rest) = cut(self.p, at);
        let (m, m_rest) = cut(self.m, at);
        let (v, v_rest) = cut(self.v, at);
        (Block { g, theta, p, m, v }, Block { g: g_rest, theta: theta_rest, p: p_rest, m: m_rest, v: v_rest })
    }
}

impl<U: Update> Chunk<'_, U> {
    #[inline(always)]
    fn run(&mut self) {
        fn part<'a>(slice: &'a mut [f32], range: std::ops::Range<usize>) -> &'a mut [f32] {
            if slice.is_empty() { slice } else { &mut slice[range] }
        }
        let Job { update, after, slices } = &mut self.job;
        let (len, step) = (slices.theta.len(), whole_groups(BLOCK, after.group_len()));
        for start in (0..len).step_by(step) {
            let range = start..(start + step).min(len);
            let g = if slices.g.is_empty() { slices.g } else { &slices.g[range.clone()] };
            let theta = &mut slices.theta[range.clone()];
            let p = part(slices.p, range.clone());
            let m = part(slices.m, range.clone());
            if lanes::all_finite(g) {
                update.advance(Block { g, theta, p, m, v: part(slices.v, range.clone()) });
            } else if self.tally.non_finite.is_none() {
                let first = g.iter().position(|x| !x.is_finite());
                self.tally.non_finite = first.map(|index| self.offset + start + index);
            }
            match *after {
                After::Nothing => {}
                After::ProxOfDual(Prox { shrinkage, threshold, scale }) => {
                    theta.copy_from_slice(p);
                    shrinkage.shrink(theta, threshold, scale);
                }
                After::ProxOfWeights(Prox { shrinkage, threshold, scale }) => shrinkage.shrink(theta, threshold, scale),
                After::Mask(mask) => {
                    let mask = &mask[range];
                    theta.iter_mut().zip(mask).for_each(|(x, &keep)| *x = if keep { *x } else { 0.0 });
                    m.iter_mut().zip(mask).for_each(|(x, &keep)| *x = if keep { *x } else { 0.0 });
                }
            }
            let counted = tally_block(theta);
            self.tally.zeros += counted.zeros;
            self.tally.sum_squares += counted.sum_squares;
        }
    }
}
