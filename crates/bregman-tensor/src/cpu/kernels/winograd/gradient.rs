//! dW = dY ∗ X: for each place, `dU = (A · dY · Aᵀ) · (Bᵀ · X · B)ᵀ` summed over tiles, and `dg = Gᵀ · dU · G` at the
//! end.
//!
//! Tasks own a block of rows and channels and a group of tiles. Blocks and groups depend on the shape only, and the
//! groups are added up in order, so the result does not depend on the number of threads.

use std::ops::Range;

use rayon::prelude::*;

use super::super::super::matmul::{Into, Mat, Target, product};
use super::super::bf16::{DEPTH, Kernel, Lines, SIDE, Sums, transpose};
use super::super::columns::{Columns, Geometry, Plain};
use super::super::cost::Dense;
use super::super::lanes::{LANES, Lanes, Work, dispatch};
use super::super::output::Output;
use super::super::scratch::with_scratch;
use super::product::even_blocks;
use super::tiling::Tiling;
use super::transform::{Halves, MAX_TILES, PLACES, place_stride, sixteen_mut, spread, taps};
use crate::cpu::math::simd;

/// Rows and channels of a block: with their sums and a strip of tiles they fit the second-level cache.
const BLOCK: usize = 128;
/// Tiles of a strip, times rows or channels of its block.
const STRIP: usize = 16384;
/// Most values of all sums together (8 MiB), unless a single group already has more.
const ALL_SUMS: usize = 2 * 1024 * 1024;
/// Most groups of tiles.
const MAX_GROUPS: usize = 16;

/// The sums of all tasks; kept, so that steady training does not allocate.
#[derive(Debug, Default)]
pub struct Workspace(Vec<f32>);

/// dW = dY ∗ X, summed over the items; `dw` has one item, rows and channels × 9 columns.
///
/// # Panics
/// If the shapes do not fit.
pub fn gradient(
    dense: Dense,
    geometry: &Geometry,
    x: &Plain,
    dy: &Plain,
    Workspace(sums): &mut Workspace,
    dw: &Output,
) {
    let tiling = Tiling::new(geometry, x.items());
    let (rows, channels) = (dy.rows(), x.rows());
    assert_eq!(x.len(), tiling.input[0] * tiling.input[1], "operand of a convolution");
    assert_eq!([dy.items(), dy.len()], [x.items(), tiling.output[0] * tiling.output[1]], "gradient of a convolution");
    assert_eq!(dw.shape(), [1, rows, 9 * channels], "result of a weight gradient");
    let layout = TileLayout::new(rows, channels, tiling.count());
    sums.resize(sums.len().max(layout.len()), 0.0);
    let sums = &mut sums[..layout.len()];
    sums.par_chunks_mut(layout.task_len()).enumerate().for_each(|(task, sums)| {
        let (group, block) = (task / layout.blocks(), task % layout.blocks());
        let [row_block, channel_block] = [block / layout.channel_blocks, block % layout.channel_blocks];
        let strips = group * layout.strips / layout.groups..(group + 1) * layout.strips / layout.groups;
        for strip in strips.clone() {
            let tiles = strip * layout.strip..tiling.count().min((strip + 1) * layout.strip);
            let part = GradientPart {
                layout: &layout,
                tiling,
                x,
                dy,
                rows: row_block * BLOCK..rows.min((row_block + 1) * BLOCK),
                channels: channel_block * BLOCK..channels.min((channel_block + 1) * BLOCK),
                tiles,
            };
            match dense {
                Dense::F32 => part.add_f32(sums, strip > strips.start),
                Dense::Bf16(kernel) => part.add_bf16(kernel, sums, strip > strips.start),
            }
        }
    });
    let sums = &*sums;
    (0..rows).into_par_iter().for_each(|row| {
        // SAFETY: dW is `[1, rows, 9 · channels]`, as checked above, and each task has its own row.
        #[allow(unsafe_code)]
        let out = unsafe { dw.row(0, row, 0, 9 * channels) };
        simd!(layout.finish(sums, row, out));
    });
}

/// How the work and its sums are cut: sums are `[groups, row blocks, channel blocks, places, block rows, block
/// channels]`.
struct TileLayout {
    row_blocks: usize,
    channel_blocks: usize,
    /// Rows and channels of a block, padded to whole tiles.
    block: [usize; 2],
    /// Tiles per strip, and strips.
    strip: usize,
    strips: usize,
    groups: usize,
}

impl TileLayout {
    fn new(rows: usize, channels: usize, tiles: usize) -> Self {
        let block = [rows, channels].map(|size| size.min(BLOCK).next_multiple_of(SIDE));
        let [row_blocks, channel_blocks] = [rows, channels].map(|size| size.div_ceil(BLOCK));
        let strip = (STRIP / block[0].max(block[1]).max(1) / DEPTH * DEPTH).clamp(DEPTH, MAX_TILES / DEPTH * DEPTH);
        let strips = tiles.div_ceil(strip);
        let layout = Self { row_blocks, channel_blocks, block, strip, strips, groups: 1 };
        let groups = (ALL_SUMS / layout.len().max(1)).clamp(1, MAX_GROUPS).min(strips.max(1));
        Self { groups, ..layout }
    }

    fn blocks(&self) -> usize {
        self.row_blocks * self.channel_blocks
    }

    fn task_len(&self) -> usize {
        PLACES * self.block[0] * self.block[1]
    }

    fn len(&self) -> usize {
        self.groups * self.blocks() * self.task_len()
    }

    /// `dg = Gᵀ · dU · G` for all channels of a row.
    #[inline(always)]
    fn finish(&self, sums: &[f32], row: usize, out: &mut [f32]) {
        let channels = out.len() / 9;
        for first in (0..channels).step_by(LANES) {
            let block = row / BLOCK * self.channel_blocks + first / BLOCK;
            let mut total = [[0.0; LANES]; PLACES];
            for group in 0..self.groups {
                let sums = &sums[(group * self.blocks() + block) * self.task_len()..][..self.task_len()];
                for (place, total) in total.iter_mut().enumerate() {
                    let sums = &sums[(place * self.block[0] + row % BLOCK) * self.block[1] + first % BLOCK..][..LANES];
                    total.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
                }
            }
            let taps = taps(&total);
            for (lane, out) in out[9 * first..].chunks_exact_mut(9).take(LANES).enumerate() {
                (0..9).for_each(|tap| out[tap] = taps[tap][lane]);
            }
        }
    }
}

/// One strip of tiles for one block of rows and channels.
struct GradientPart<'a> {
    layout: &'a TileLayout,
    tiling: Tiling,
    x: &'a Plain<'a>,
    dy: &'a Plain<'a>,
    rows: Range<usize>,
    channels: Range<usize>,
    tiles: Range<usize>,
}

impl GradientPart<'_> {
    fn add_f32(&self, sums: &mut [f32], add: bool) {
        let (rows, channels) = (self.rows.len(), self.channels.len());
        let pitch = self.tiles.len() + LANES;
        let [left_stride, right_stride] = [rows, channels].map(|lines| place_stride(lines * pitch));
        with_scratch(PLACES * (left_stride + right_stride), |scratch| {
            let (left, right) = scratch.split_at_mut(PLACES * left_stride);
            let mut put = TileValues { pitch, stride: left_stride, to: left };
            dispatch(Spread { part: self, put: &mut put });
            let mut put = TileValues { pitch, stride: right_stride, to: right };
            dispatch(Fill { part: self, channels: self.channels.clone(), put: &mut put });
            let [block_rows, block_channels] = self.layout.block;
            for (place, sums) in sums.chunks_exact_mut(block_rows * block_channels).enumerate() {
                let left = Mat::rows(&left[place * left_stride..], pitch);
                let right = Mat::rows(&right[place * right_stride..], pitch).t();
                let into = if add { Into::Add } else { Into::Replace };
                // SAFETY: the sums belong to this task.
                #[allow(unsafe_code)]
                unsafe {
                    product([rows, channels, self.tiles.len()], left, right, into, Target::rows(sums, block_channels))
                };
            }
        });
    }

    fn add_bf16(&self, kernel: Kernel, sums: &mut [f32], add: bool) {
        let [rows, channels] = self.layout.block;
        let depth = self.tiles.len().div_ceil(DEPTH);
        // words: two tiles each
        let (pairs, pitch) = (depth * DEPTH / 2, depth * DEPTH / 2 + SIDE);
        let [left_stride, staged_stride] = [rows, SIDE].map(|lines| place_stride(lines * pitch));
        with_scratch(PLACES * (left_stride + staged_stride + pairs * channels), |scratch| {
            let (left, rest) = bytemuck::cast_slice_mut::<f32, u32>(scratch).split_at_mut(PLACES * left_stride);
            let (staged, right) = rest.split_at_mut(PLACES * staged_stride);
            let mut put =
                Rounded { pitch: 2 * pitch, lines: rows, stride: 2 * left_stride, to: bytemuck::cast_slice_mut(left) };
            dispatch(Spread { part: self, put: &mut put });
            put.clear(self.rows.len(), self.tiles.len());
            for first in (0..channels).step_by(SIDE) {
                let some = self.channels.start + first..self.channels.end.min(self.channels.start + first + SIDE);
                let mut put = Rounded {
                    pitch: 2 * pitch,
                    lines: SIDE,
                    stride: 2 * staged_stride,
                    to: bytemuck::cast_slice_mut(staged),
                };
                let count = some.len();
                dispatch(Fill { part: self, channels: some, put: &mut put });
                put.clear(count, self.tiles.len());
                for (place, right) in right.chunks_exact_mut(pairs * channels).take(PLACES).enumerate() {
                    let lines = &staged[place * staged_stride..];
                    for block in 0..depth {
                        transpose(
                            &lines[SIDE * block..],
                            pitch,
                            &mut right[SIDE * block * channels + first..],
                            channels,
                        );
                    }
                }
            }
            let (block_rows, block_columns) = kernel.shape();
            kernel.run(|multiply| {
                for (place, sums) in sums.chunks_exact_mut(rows * channels).enumerate() {
                    let (left, right) = (&left[place * left_stride..], &right[place * pairs * channels..]);
                    for row in (0..rows / SIDE).step_by(block_rows) {
                        let count = block_rows.min(rows / SIDE - row);
                        let left = Lines::rows(&left[row * SIDE * pitch..], pitch, count, depth);
                        for blocks in even_blocks(channels / SIDE, block_columns) {
                            let column = blocks.start;
                            let right = Lines::columns(&right[column * SIDE..], channels, blocks.len(), depth);
                            multiply(
                                left,
                                right,
                                Sums::new(&mut sums[(row * channels + column) * SIDE..], channels, add),
                            );
                        }
                    }
                }
            });
        });
    }
}

/// Where transformed values go: `[places, lines, pitch]`, places `stride` apart.
trait Put {
    fn put<L: Lanes>(&mut self, lanes: L, place: usize, line: usize, at: usize, value: L::Vector);
}

struct TileValues<'a> {
    pitch: usize,
    stride: usize,
    to: &'a mut [f32],
}

impl Put for TileValues<'_> {
    #[inline(always)]
    fn put<L: Lanes>(&mut self, lanes: L, place: usize, line: usize, at: usize, value: L::Vector) {
        lanes.store(value, sixteen_mut(self.to, place * self.stride + line * self.pitch + at));
    }
}

/// bf16.
struct Rounded<'a> {
    pitch: usize,
    lines: usize,
    stride: usize,
    to: &'a mut [u16],
}

impl Put for Rounded<'_> {
    #[inline(always)]
    fn put<L: Lanes>(&mut self, lanes: L, place: usize, line: usize, at: usize, value: L::Vector) {
        lanes.store_rounded(value, sixteen_mut(self.to, place * self.stride + line * self.pitch + at));
    }
}

impl Rounded<'_> {
    /// Zeros from the last tile to the end of the product, and in the lines after the first `filled`.
    fn clear(&mut self, filled: usize, tiles: usize) {
        let end = tiles.next_multiple_of(DEPTH);
        if filled == self.lines && tiles == end {
            return;
        }
        for place in self.to.chunks_exact_mut(self.stride).take(PLACES) {
            for (line, values) in place.chunks_exact_mut(self.pitch).take(self.lines).enumerate() {
                values[if line < filled { tiles } else { 0 }..end].fill(0);
            }
        }
    }
}

/// `A · dy · Aᵀ` for the block's rows.
struct Spread<'a, P> {
    part: &'a GradientPart<'a>,
    put: &'a mut P,
}

impl<P: Put> Work for Spread<'_, P> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let GradientPart { tiling, dy, .. } = *self.part;
        let width = tiling.output[1];
        for (line, row) in self.part.rows.clone().enumerate() {
            for run in tiling.runs(self.part.tiles.clone()) {
                let map = dy.row(run.item, row);
                if row + 1 < self.part.rows.end {
                    run.prefetch_outputs(dy.row(run.item, row + 1), width);
                }
                let rows = [0, 1].map(|down| {
                    map.get((run.output[0] + down) * width..).map_or(&[][..], |rest| &rest[..width.min(rest.len())])
                });
                for at in (0..run.len).step_by(LANES) {
                    let values = spread(lanes, rows, run.output[1] + 2 * at);
                    for i in 0..4 {
                        for j in 0..4 {
                            self.put.put(lanes, 4 * i + j, line, run.at + at, values[i][j]);
                        }
                    }
                }
            }
        }
    }
}

/// `Bᵀ · x · B` for some channels.
struct Fill<'a, P> {
    part: &'a GradientPart<'a>,
    channels: Range<usize>,
    put: &'a mut P,
}

impl<P: Put> Work for Fill<'_, P> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let GradientPart { tiling, x, .. } = *self.part;
        let mut halves = Halves::ZERO;
        for (line, channel) in self.channels.enumerate() {
            for run in tiling.runs(self.part.tiles.clone()) {
                if channel + 1 < self.part.channels.end {
                    run.prefetch_inputs(x.row(run.item, channel + 1), tiling.input[1]);
                }
                halves.fill(lanes, x.row(run.item, channel), tiling.input[1], run.input, run.len);
                for at in (0..run.len).step_by(LANES) {
                    for i in 0..4 {
                        let values = halves.row(lanes, i, at);
                        for j in 0..4 {
                            self.put.put(lanes, 4 * i + j, line, run.at + at, values[j]);
                        }
                    }
                }
            }
        }
    }
}
