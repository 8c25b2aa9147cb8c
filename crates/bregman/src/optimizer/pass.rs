//! One pass over memory: gradient in; dual, moments and weights out; zeros and norm counted.
//!
//! A tensor is cut into chunks for the threads, a chunk into blocks that stay in the first-level cache. On each block
//! the update rule runs and passes every new value through the prox on its way to θ (a loop of its own for that made
//! LinBreg a quarter slower: its cache misses overlap with nothing); then the block's groups are shrunk or its mask
//! applied, where there are any, and its zeros counted. These small loops know nothing of each other, yet every array
//! crosses the memory bus once. Chunks depend only on the shapes and their tallies are added in order, so the results
//! are the same on any number of threads.

use std::ops::Range;

use bregman_base::lanes;
use pulp::{Arch, NullaryFnOnce};
use rayon::prelude::*;

use crate::penalty::{Shrinkage, soft};

/// Elements per chunk: enough work for a task, small enough to balance 15 M weights over many threads.
const CHUNK: usize = 1 << 16;
/// Elements per block: five arrays of it fit into 32 KiB.
const BLOCK: usize = 1 << 10;

/// How one optimizer turns a gradient into new values, all coefficients of the step worked out.
pub(crate) trait Update: Copy + Send + Sync {
    /// Advances one block and writes θ ← `shrink`(x), x being the variable it steps in. State it does not keep is
    /// empty.
    fn advance(self, block: Block<'_>, shrink: impl Fn(f32) -> f32 + Copy);
}

/// The same stretch of a tensor's gradient, weights and state.
pub(crate) struct Block<'a> {
    pub(crate) g: Gradient<'a>,
    pub(crate) theta: &'a mut [f32],
    pub(crate) p: &'a mut [f32],
    pub(crate) m: &'a mut [f32],
    pub(crate) v: &'a mut [f32],
}

/// A gradient that can only be read with 0 in the place of NaN and infinity, so that none of them ever gets into a
/// state.
#[derive(Clone, Copy)]
pub(crate) struct Gradient<'a>(pub(crate) &'a [f32]);

impl Gradient<'_> {
    #[inline(always)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = f32> {
        self.0.iter().map(|&g| lanes::finite_or_zero(g))
    }
}

/// What stands between the variable the optimizer steps in and the weights.
#[derive(Clone, Copy)]
pub(crate) enum After<'a> {
    /// θ ← scale·prox(x).
    Prox(Prox),
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
            After::Prox(prox) => prox.shrinkage.group_len(),
            After::Mask(_) => 1,
        }
    }
}

/// What a pass counts on the way.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Tally {
    pub(crate) zeros: u64,
    pub(crate) sum_squares: f64,
    /// Index of the first gradient that is not finite.
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
    let mut chunks: Vec<Chunk<'_, U>> =
        jobs.into_iter().enumerate().flat_map(|(tensor, job)| chunks_of(tensor, job)).collect();
    let arch = Arch::new();
    chunks.par_iter_mut().for_each(|chunk| arch.dispatch(Vectorised(chunk)));

    let mut tallies = vec![Tally::default(); tensors];
    for chunk in &chunks {
        let tally = &mut tallies[chunk.tensor];
        tally.zeros += chunk.tally.zeros;
        tally.sum_squares += chunk.tally.sum_squares;
        tally.non_finite = tally.non_finite.or(chunk.tally.non_finite);
    }
    tallies
}

/// A chunk to be run with the widest vectors of this CPU. A closure would not do: it is not inlined into the code that
/// pulp compiles for those.
struct Vectorised<'a, 'b, U>(&'a mut Chunk<'b, U>);

impl<U: Update> NullaryFnOnce for Vectorised<'_, '_, U> {
    type Output = ();
    #[inline(always)]
    fn call(self) {
        self.0.run();
    }
}

/// The tally of weights as they stand.
pub(crate) fn tally(theta: &[f32]) -> Tally {
    let add = |a: Tally, b: Tally| Tally { zeros: a.zeros + b.zeros, sum_squares: a.sum_squares + b.sum_squares, ..a };
    let chunk = |part: &[f32]| part.chunks(BLOCK).map(tally_block).fold(Tally::default(), add);
    theta.chunks(CHUNK).map(chunk).fold(Tally::default(), add)
}

#[inline(always)]
fn tally_block(theta: &[f32]) -> Tally {
    Tally { zeros: lanes::zeros(theta) as u64, sum_squares: f64::from(lanes::sum_of_squares(theta)), non_finite: None }
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
        fn cut(slice: &mut [f32], at: usize) -> (&mut [f32], &mut [f32]) {
            slice.split_at_mut(at.min(slice.len()))
        }
        let (g, g_rest) = self.g.0.split_at(at.min(self.g.0.len()));
        let (theta, theta_rest) = cut(self.theta, at);
        let (p, p_rest) = cut(self.p, at);
        let (m, m_rest) = cut(self.m, at);
        let (v, v_rest) = cut(self.v, at);
        (
            Block { g: Gradient(g), theta, p, m, v },
            Block { g: Gradient(g_rest), theta: theta_rest, p: p_rest, m: m_rest, v: v_rest },
        )
    }
}

impl<U: Update> Chunk<'_, U> {
    /// Chooses the loop once per chunk, so that it holds no branch.
    #[inline(always)]
    fn run(&mut self) {
        match self.job.after {
            After::Prox(Prox { shrinkage: Shrinkage::Identity, scale, .. }) => self.blocks(|x| x * scale, |_, _, _| {}),
            After::Prox(Prox { shrinkage: Shrinkage::Soft, threshold, scale }) => {
                self.blocks(|x| soft(x, threshold) * scale, |_, _, _| {})
            }
            After::Prox(Prox { shrinkage, threshold, scale }) => {
                self.blocks(|x| x, |theta, _, _| shrinkage.shrink(theta, threshold, scale));
            }
            After::Mask(mask) => self.blocks(
                |x| x,
                |theta, m, range| {
                    let keep = |(x, &keep): (&mut f32, &bool)| *x = if keep { *x } else { 0.0 };
                    theta.iter_mut().zip(&mask[range.clone()]).for_each(keep);
                    m.iter_mut().zip(&mask[range]).for_each(keep);
                },
            ),
        }
    }

    /// Block by block: update with `shrink` on every element, then `finish` on the weights and the momentum, then
    /// count.
    #[inline(always)]
    fn blocks(&mut self, shrink: impl Fn(f32) -> f32 + Copy, finish: impl Fn(&mut [f32], &mut [f32], Range<usize>)) {
        fn part(slice: &mut [f32], range: Range<usize>) -> &mut [f32] {
            if slice.is_empty() { slice } else { &mut slice[range] }
        }
        let Job { update, after, slices } = &mut self.job;
        let (len, step) = (slices.theta.len(), whole_groups(BLOCK, after.group_len()));
        for start in (0..len).step_by(step) {
            let range = start..(start + step).min(len);
            let g = if slices.g.0.is_empty() { slices.g.0 } else { &slices.g.0[range.clone()] };
            let theta = &mut slices.theta[range.clone()];
            let (p, m, v) =
                (part(slices.p, range.clone()), part(slices.m, range.clone()), part(slices.v, range.clone()));
            update.advance(Block { g: Gradient(g), theta, p, m, v }, shrink);
            finish(theta, m, range);
            // after the update, when the block's gradient is in the cache
            if !lanes::all_finite(g) && self.tally.non_finite.is_none() {
                let first = g.iter().position(|x| !x.is_finite());
                self.tally.non_finite = first.map(|index| self.offset + start + index);
            }
            let counted = tally_block(theta);
            self.tally.zeros += counted.zeros;
            self.tally.sum_squares += counted.sum_squares;
        }
    }
}
