//! One pass over memory: gradient in; dual, moments and weights out; zeros and norm counted.
//!
//! A tensor is cut into chunks for the threads, a chunk into blocks that stay in the first-level cache. On each block
//! the update rule runs and passes every new value through the prox on its way to θ (a loop of its own for that made
//! LinBreg a quarter slower: its cache misses overlap with nothing); then the block's groups are shrunk or its mask
//! applied, where there are any, and its zeros counted. These small loops know nothing of each other, yet every array
//! crosses the memory bus once. Chunks depend only on the shapes and their counts are added in order, so the results
//! are the same on any number of threads.

use std::ops::Range;

use bregman_base::{lanes, simd};
use pulp::NullaryFnOnce;
use rayon::prelude::*;

use super::engine::{Counted, Prox};
use super::rule::{Advance, Update, UpdateVisitor};
use crate::penalty::{Shrinkage, soft};

/// Elements per chunk: enough work for a task, small enough to balance 15 M weights over many threads.
const CHUNK: usize = 1 << 16;
/// Elements per block: five arrays of it fit into 32 KiB.
const BLOCK: usize = 1 << 10;
/// Elements per line of the cache: a frozen step leaves lines without a live weight in memory.
const LINE: usize = 16;
/// Lines whose live weights are looked for at a time.
const LINES: usize = 64;

/// The same stretch of a tensor's gradient, weights and state.
pub(crate) struct PassBlock<'a> {
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
    fn at(&self, i: usize) -> f32 {
        lanes::finite_or_zero(self.0[i])
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

impl After<'_> {
    fn group_len(self) -> usize {
        match self {
            After::Prox(prox) => prox.shrinkage.group_len(),
            After::Mask(_) => 1,
        }
    }
}

/// One tensor's share of a pass.
pub(crate) struct PassJob<'a> {
    pub(crate) update: Update,
    pub(crate) after: After<'a>,
    /// Whether only weights that are not 0 move.
    pub(crate) frozen: bool,
    pub(crate) slices: PassBlock<'a>,
}

struct Chunk<'a> {
    tensor: usize,
    offset: usize,
    job: PassJob<'a>,
    counted: Counted,
}

/// Runs all jobs and returns what each counted.
pub(crate) fn run(jobs: Vec<PassJob<'_>>) -> Vec<Counted> {
    let tensors = jobs.len();
    let mut chunks: Vec<Chunk<'_>> =
        jobs.into_iter().enumerate().flat_map(|(tensor, job)| chunks_of(tensor, job)).collect();
    let arch = simd::arch();
    chunks.par_iter_mut().for_each(|chunk| arch.dispatch(Vectorised(chunk)));

    let mut counted = vec![Counted::default(); tensors];
    for chunk in &chunks {
        let counted = &mut counted[chunk.tensor];
        counted.zeros += chunk.counted.zeros;
        counted.sum_squares += chunk.counted.sum_squares;
        counted.non_finite = counted.non_finite.or(chunk.counted.non_finite);
    }
    counted
}

/// A chunk to be run with the widest vectors of this CPU. A closure would not do: it is not inlined into the code that
/// pulp compiles for those.
struct Vectorised<'a, 'b>(&'a mut Chunk<'b>);

impl NullaryFnOnce for Vectorised<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn call(self) {
        self.0.job.update.dispatch(self.0);
    }
}

/// What a pass would count in weights as they stand.
pub(crate) fn count(theta: &[f32]) -> Counted {
    let add =
        |a: Counted, b: Counted| Counted { zeros: a.zeros + b.zeros, sum_squares: a.sum_squares + b.sum_squares, ..a };
    let chunk = |part: &[f32]| part.chunks(BLOCK).map(count_block).fold(Counted::default(), add);
    theta.chunks(CHUNK).map(chunk).fold(Counted::default(), add)
}

#[inline(always)]
fn count_block(theta: &[f32]) -> Counted {
    Counted {
        zeros: lanes::zeros(theta) as u64,
        sum_squares: f64::from(lanes::sum_of_squares(theta)),
        non_finite: None,
    }
}

/// Σ g·sgn(θ) of slices, see [`Engine::pull`](super::Engine::pull); the same on any number of threads.
pub fn pull(theta: &[f32], gradient: &[f32]) -> f64 {
    let pull = |(x, g): (&f32, &f32)| {
        let side = f32::from(*x > 0.0) - f32::from(*x < 0.0);
        f64::from(side * lanes::finite_or_zero(*g))
    };
    let chunk = |(theta, gradient): (&[f32], &[f32])| theta.iter().zip(gradient).map(pull).sum::<f64>();
    let chunks: Vec<f64> = theta.par_chunks(CHUNK).zip(gradient.par_chunks(CHUNK)).map(chunk).collect();
    chunks.iter().sum()
}

/// `len` rounded down to whole groups, one group at least.
fn whole_groups(len: usize, group: usize) -> usize {
    (len / group).max(1) * group
}

/// Cuts a job into chunks of whole groups.
fn chunks_of(tensor: usize, job: PassJob<'_>) -> Vec<Chunk<'_>> {
    let PassJob { update, after, frozen, slices: mut rest } = job;
    let (len, step) = (rest.theta.len(), whole_groups(CHUNK, after.group_len()));
    let mut chunks = Vec::with_capacity(len.div_ceil(step));
    for offset in (0..len).step_by(step) {
        let (slices, tail) = rest.split_at(step.min(len - offset));
        rest = tail;
        let after = match after {
            After::Mask(mask) => After::Mask(&mask[offset..offset + slices.theta.len()]),
            after => after,
        };
        let job = PassJob { update, after, frozen, slices };
        chunks.push(Chunk { tensor, offset, job, counted: Counted::default() });
    }
    chunks
}

impl<'a> PassBlock<'a> {
    /// Both sides of every slice that is in use.
    fn split_at(self, at: usize) -> (PassBlock<'a>, PassBlock<'a>) {
        fn cut(slice: &mut [f32], at: usize) -> (&mut [f32], &mut [f32]) {
            slice.split_at_mut(at.min(slice.len()))
        }
        let (g, g_rest) = self.g.0.split_at(at.min(self.g.0.len()));
        let (theta, theta_rest) = cut(self.theta, at);
        let (p, p_rest) = cut(self.p, at);
        let (m, m_rest) = cut(self.m, at);
        let (v, v_rest) = cut(self.v, at);
        (
            PassBlock { g: Gradient(g), theta, p, m, v },
            PassBlock { g: Gradient(g_rest), theta: theta_rest, p: p_rest, m: m_rest, v: v_rest },
        )
    }
}

impl PassBlock<'_> {
    /// Advances every element, or with `FROZEN` those that are not 0, and writes θ ← `shrink`(x). Arrays that are not
    /// kept are empty; which ones these are is decided here, so that the loop holds no branch.
    #[inline(always)]
    fn advance<U: Advance, const FROZEN: bool>(self, update: U, shrink: impl Fn(f32) -> f32 + Copy) {
        match (self.p.is_empty(), self.m.is_empty()) {
            (false, false) => self.advance_each::<U, FROZEN, true, true>(update, shrink),
            (false, true) => self.advance_each::<U, FROZEN, true, false>(update, shrink),
            (true, false) => self.advance_each::<U, FROZEN, false, true>(update, shrink),
            (true, true) => self.advance_each::<U, FROZEN, false, false>(update, shrink),
        }
    }

    #[inline(always)]
    fn advance_each<U: Advance, const FROZEN: bool, const DUAL: bool, const MOMENT: bool>(
        self,
        update: U,
        shrink: impl Fn(f32) -> f32 + Copy,
    ) {
        let PassBlock { g, theta, p, m, v } = self;
        let n = theta.len();
        // slices of one length: the compiler then leaves out the checks of every index
        let g = Gradient(if U::READS_GRADIENT { &g.0[..n] } else { g.0 });
        let p = if DUAL { &mut p[..n] } else { p };
        let m = if MOMENT { &mut m[..n] } else { m };
        let v = if U::SECOND_MOMENT { &mut v[..n] } else { v };
        for i in 0..n {
            let moves = !FROZEN || theta[i] != 0.0;
            let mut moments = (if MOMENT { m[i] } else { 0.0 }, if U::SECOND_MOMENT { v[i] } else { 0.0 });
            let x = if DUAL { p[i] } else { theta[i] };
            let x = update.advance(x, if U::READS_GRADIENT { g.at(i) } else { 0.0 }, &mut moments.0, &mut moments.1);
            if MOMENT && U::READS_GRADIENT {
                m[i] = if moves { moments.0 } else { m[i] };
            }
            if U::SECOND_MOMENT {
                v[i] = if moves { moments.1 } else { v[i] };
            }
            if DUAL && U::READS_GRADIENT {
                p[i] = if moves { x } else { p[i] };
            }
            theta[i] = if moves { shrink(x) } else { 0.0 };
        }
    }
}

/// Chooses the loop once per chunk, so that it holds no branch.
impl UpdateVisitor for &mut Chunk<'_> {
    #[inline(always)]
    fn visit<U: Advance>(self, update: U) {
        match self.job.after {
            After::Prox(Prox { shrinkage: Shrinkage::Identity, scale, .. }) => {
                self.blocks(update, |x| x * scale, |_, _, _| {});
            }
            After::Prox(Prox { shrinkage: Shrinkage::Soft, threshold, scale }) => {
                self.blocks(update, |x| soft(x, threshold) * scale, |_, _, _| {});
            }
            After::Prox(Prox { shrinkage, threshold, scale }) => {
                self.blocks(update, |x| x, |theta, _, _| shrinkage.shrink(theta, threshold, scale));
            }
            After::Mask(mask) => self.blocks(
                update,
                |x| x,
                |theta, m, range| {
                    let keep = |(x, &keep): (&mut f32, &bool)| *x = if keep { *x } else { 0.0 };
                    theta.iter_mut().zip(&mask[range.clone()]).for_each(keep);
                    m.iter_mut().zip(&mask[range]).for_each(keep);
                },
            ),
        }
    }
}

impl Chunk<'_> {
    /// Block by block: update with `shrink` on every element that moves, then `finish` on the weights and the momentum,
    /// then count.
    #[inline(always)]
    fn blocks<U: Advance>(
        &mut self,
        update: U,
        shrink: impl Fn(f32) -> f32 + Copy,
        finish: impl Fn(&mut [f32], &mut [f32], Range<usize>),
    ) {
        let (len, step) = (self.job.slices.theta.len(), whole_groups(BLOCK, self.job.after.group_len()));
        for start in (0..len).step_by(step) {
            let range = start..(start + step).min(len);
            if self.job.frozen {
                self.fetch_live(range.end..(range.end + step).min(len));
                self.advance_live(range.clone(), update, shrink);
            } else {
                self.advance::<U, false>(range.clone(), update, shrink);
            }
            let slices = &mut self.job.slices;
            let theta = &mut slices.theta[range.clone()];
            finish(theta, part(slices.m, range.clone()), range);
            let counted = count_block(theta);
            self.counted.zeros += counted.zeros;
            self.counted.sum_squares += counted.sum_squares;
        }
    }

    /// Updates the lines of a stretch that have a live weight.
    #[inline(always)]
    fn advance_live<U: Advance>(&mut self, range: Range<usize>, update: U, shrink: impl Fn(f32) -> f32 + Copy) {
        for first in range.clone().step_by(LINES * LINE) {
            for line in live_lines(&self.job.slices.theta[first..(first + LINES * LINE).min(range.end)]) {
                let line = first + line;
                if line + LINE <= range.end {
                    self.advance::<U, true>(line..line + LINE, update, shrink); // of a length that the compiler knows
                } else {
                    self.advance::<U, true>(line..range.end, update, shrink);
                }
            }
        }
    }

    /// Asks for the gradient and state of a stretch's live weights ahead of their use: lines that are far apart are
    /// nothing that the CPU foresees.
    #[inline(always)]
    fn fetch_live(&self, range: Range<usize>) {
        let PassBlock { g, theta, p, m, v } = &self.job.slices;
        for first in range.clone().step_by(LINES * LINE) {
            for line in live_lines(&theta[first..(first + LINES * LINE).min(range.end)]) {
                let [begin, end] = [first + line, (first + line + LINE).min(range.end) - 1];
                for array in [g.0, &**p, &**m, &**v] {
                    // a state need not begin at a cache line as the weights do
                    simd::prefetch(array.get(begin..=begin).unwrap_or(&[]));
                    simd::prefetch(array.get(end..=end).unwrap_or(&[]));
                }
            }
        }
    }

    /// Updates a stretch and looks for gradients that are not finite.
    #[inline(always)]
    fn advance<U: Advance, const FROZEN: bool>(
        &mut self,
        range: Range<usize>,
        update: U,
        shrink: impl Fn(f32) -> f32 + Copy,
    ) {
        let (slices, start) = (&mut self.job.slices, range.start);
        let g = if slices.g.0.is_empty() { slices.g.0 } else { &slices.g.0[range.clone()] };
        let theta = &mut slices.theta[range.clone()];
        let mut before = [0.0; LINE];
        if FROZEN {
            before[..theta.len()].copy_from_slice(theta);
        }
        let (p, m, v) = (part(slices.p, range.clone()), part(slices.m, range.clone()), part(slices.v, range));
        PassBlock { g: Gradient(g), theta, p, m, v }.advance::<U, FROZEN>(update, shrink);
        // after the update, when the gradient is in the cache
        if !lanes::all_finite(g) && self.counted.non_finite.is_none() {
            let bad = (0..g.len()).find(|&i| !g[i].is_finite() && (!FROZEN || before[i] != 0.0));
            self.counted.non_finite = bad.map(|index| (self.offset + start + index, g[index]));
        }
    }
}

/// Where the lines begin, of up to [`LINES`], that have a weight that is not 0. All lines are looked at before any is
/// worked on, so that their cache misses overlap.
#[inline(always)]
fn live_lines(theta: &[f32]) -> impl Iterator<Item = usize> + use<> {
    let mut live = live_bits(theta);
    std::iter::from_fn(
        #[inline(always)]
        move || {
            let line = (live != 0).then(|| live.trailing_zeros() as usize * LINE);
            live &= live.wrapping_sub(1);
            line
        },
    )
}

/// A bit for every line with a weight that is not 0. Not inlined, for the smallest vectors suffice: with larger ones
/// the compiler gathers one value each of many lines at a time.
#[inline(never)]
fn live_bits(theta: &[f32]) -> u64 {
    let is_live = |line: &[f32]| line.iter().fold(0, |bits, x| bits | x.to_bits() << 1) != 0;
    let (lines, rest) = theta.as_chunks::<LINE>();
    let mut live = 0;
    for (i, line) in lines.iter().enumerate() {
        live |= u64::from(is_live(line)) << i;
    }
    if rest.is_empty() { live } else { live | u64::from(is_live(rest)) << lines.len() }
}

/// A stretch of an array, which may be one that is not kept.
#[inline(always)]
fn part(slice: &mut [f32], range: Range<usize>) -> &mut [f32] {
    if slice.is_empty() { slice } else { &mut slice[range] }
}
