//! Y = W ∗ X: strips of tiles over threads, each transformed, multiplied place by place, and transformed back.

use std::ops::Range;

use rayon::prelude::*;

use super::super::super::matmul::{Into, Mat, Target, product};
use super::super::bf16::{DEPTH, Kernel, Lines, SIDE, Sums};
use super::super::columns::{Columns, Geometry, Plain};
use super::super::cost::Dense;
use super::super::lanes::{LANES, Lanes, Work, dispatch};
use super::super::output::{Output, SumStart};
use super::super::scratch::with_scratch;
use super::filters::Filters;
use super::tiling::Tiling;
use super::transform::{Halves, MAX_TILES, PLACES, finish, outputs, place_stride, sixteen_mut};

/// Words of the transformed strip: 512 KiB, half of a second-level cache.
const STRIP_WORDS: usize = 128 * 1024;
/// Tile columns of a kernel's block, so that no block of a strip is narrower.
const BLOCK: usize = 48;
/// Rows multiplied and transformed back together in f32.
const ROWS: usize = 64;

/// Y = W ∗ X, for every item of the batch.
///
/// # Panics
/// If the shapes do not fit.
pub fn multiply(filters: &Filters, geometry: &Geometry, x: &Plain, start: SumStart, y: &Output) {
    let tiling = Tiling::new(geometry, x.items());
    assert_eq!([x.rows(), x.len()], [filters.channels, tiling.input[0] * tiling.input[1]], "operand of a convolution");
    assert_eq!(y.shape(), [tiling.items, filters.rows, tiling.output[0] * tiling.output[1]], "result of a convolution");
    if let SumStart::Bias(bias) = start {
        assert_eq!(bias.len(), filters.rows, "one bias per row");
    }
    // lines of the strip at each place: pairs of channels or channels
    let lines = if filters.dense == Dense::F32 { filters.channels } else { filters.depth() * DEPTH / 2 };
    let size = (STRIP_WORDS / (PLACES * lines.max(1)) / BLOCK * BLOCK).clamp(BLOCK, MAX_TILES);
    (0..tiling.count().div_ceil(size)).into_par_iter().for_each(|strip| {
        let tiles = strip * size..tiling.count().min((strip + 1) * size);
        let pitch = tiles.len().next_multiple_of(LANES) + LANES;
        let strip = TileStrip { filters, tiling, x, start, y, tiles, pitch, lines };
        match filters.dense {
            Dense::F32 => strip.run_f32(),
            Dense::Bf16(kernel) => strip.run_bf16(kernel),
        }
    });
}

/// `0..total` in as few ranges of at most `most` as possible, all of nearly the same length: a kernel is slow on narrow
/// ones.
pub(super) fn even_blocks(total: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let count = total.div_ceil(most);
    (0..count).map(move |i| i * total / count..(i + 1) * total / count)
}

/// Some tiles. Transformed inputs are `[places, lines, pitch]`, results `[places, rows, pitch]`, places
/// [`place_stride`] apart; vectors may run over a strip's end.
struct TileStrip<'a> {
    filters: &'a Filters,
    tiling: Tiling,
    x: &'a Plain<'a>,
    start: SumStart<'a>,
    y: &'a Output<'a>,
    tiles: Range<usize>,
    pitch: usize,
    lines: usize,
}

impl TileStrip<'_> {
    fn run_f32(&self) {
        let Self { filters: Filters { rows, channels, values, .. }, pitch, .. } = *self;
        let [input_stride, result_stride] = [*channels, ROWS.min(*rows)].map(|lines| place_stride(lines * pitch));
        with_scratch(PLACES * (input_stride + result_stride), |scratch| {
            let (inputs, results) = scratch.split_at_mut(PLACES * input_stride);
            dispatch(FillValues { strip: self, to: inputs });
            for first in (0..*rows).step_by(ROWS) {
                let count = ROWS.min(rows - first);
                for (place, results) in results.chunks_exact_mut(result_stride).take(PLACES).enumerate() {
                    let left = Mat::rows(&values[(first * PLACES + place) * channels..], PLACES * channels);
                    let right = Mat::rows(&inputs[place * input_stride..], pitch);
                    let size = [count, self.tiles.len(), *channels];
                    // SAFETY: the results belong to this thread.
                    #[allow(unsafe_code)]
                    unsafe {
                        product(size, left, right, Into::Replace, Target::rows(results, pitch))
                    };
                }
                dispatch(FinishTiles { strip: self, first, count, results, result_stride });
            }
        });
    }

    fn run_bf16(&self, kernel: Kernel) {
        let (filters, pitch) = (self.filters, self.pitch);
        let (block_rows, block_columns) = kernel.shape();
        let (depth, columns) = (filters.depth(), self.tiles.len().div_ceil(SIDE));
        let tile_rows = filters.rows.div_ceil(SIDE);
        let [input_stride, result_stride] = [self.lines, block_rows * SIDE].map(|lines| place_stride(lines * pitch));
        with_scratch(PLACES * (input_stride + result_stride), |scratch| {
            let (inputs, results) = scratch.split_at_mut(PLACES * input_stride);
            let inputs: &mut [u32] = bytemuck::cast_slice_mut(inputs);
            dispatch(FillPairs { strip: self, to: inputs });
            kernel.run(|multiply| {
                for tile_row in (0..tile_rows).step_by(block_rows) {
                    let count = block_rows.min(tile_rows - tile_row);
                    for (place, results) in results.chunks_exact_mut(result_stride).take(PLACES).enumerate() {
                        let left = Lines::tiles(
                            &filters.tiles[(tile_row * PLACES + place) * depth..],
                            PLACES * depth,
                            count,
                            depth,
                        );
                        for blocks in even_blocks(columns, block_columns) {
                            let column = blocks.start;
                            let words = &inputs[place * input_stride + column * SIDE..];
                            let right = Lines::columns(words, pitch, blocks.len(), depth);
                            multiply(left, right, Sums::new(&mut results[column * SIDE..], pitch, false));
                        }
                    }
                    let first = tile_row * SIDE;
                    let count = (count * SIDE).min(filters.rows - first);
                    dispatch(FinishTiles { strip: self, first, count, results, result_stride });
                }
            });
        });
    }
}

/// Transforms the inputs, one channel per line.
struct FillValues<'a> {
    strip: &'a TileStrip<'a>,
    to: &'a mut [f32],
}

impl Work for FillValues<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let TileStrip { x, tiling, lines, pitch, .. } = *self.strip;
        let stride = place_stride(lines * pitch);
        let mut halves = Halves::ZERO;
        for channel in 0..lines {
            for run in tiling.runs(self.strip.tiles.clone()) {
                if channel + 1 < lines {
                    run.prefetch_inputs(x.row(run.item, channel + 1), tiling.input[1]);
                }
                halves.fill(lanes, x.row(run.item, channel), tiling.input[1], run.input, run.len);
                for at in (0..run.len).step_by(LANES) {
                    for i in 0..4 {
                        let values = halves.row(lanes, i, at);
                        for j in 0..4 {
                            lanes.store(
                                values[j],
                                sixteen_mut(self.to, (4 * i + j) * stride + channel * pitch + run.at + at),
                            );
                        }
                    }
                }
            }
        }
    }
}

/// Transforms the inputs, two channels per line.
struct FillPairs<'a> {
    strip: &'a TileStrip<'a>,
    to: &'a mut [u32],
}

impl Work for FillPairs<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let TileStrip { x, tiling, lines, pitch, .. } = *self.strip;
        let stride = place_stride(lines * pitch);
        let mut halves = [Halves::ZERO, Halves::ZERO];
        for line in 0..lines {
            if 2 * line + 1 >= x.rows() {
                halves = [Halves::ZERO, Halves::ZERO];
            }
            for run in tiling.runs(self.strip.tiles.clone()) {
                for next in (2 * line + 2..x.rows()).take(2) {
                    run.prefetch_inputs(x.row(run.item, next), tiling.input[1]);
                }
                for (channel, halves) in (2 * line..x.rows()).zip(&mut halves) {
                    halves.fill(lanes, x.row(run.item, channel), tiling.input[1], run.input, run.len);
                }
                for at in (0..run.len).step_by(LANES) {
                    for i in 0..4 {
                        let (first, second) = (halves[0].row(lanes, i, at), halves[1].row(lanes, i, at));
                        for j in 0..4 {
                            let to = sixteen_mut(self.to, (4 * i + j) * stride + line * pitch + run.at + at);
                            lanes.store_pairs(first[j], second[j], to);
                        }
                    }
                }
            }
        }
    }
}

/// Transforms results back and writes rows `first .. first + count` of Y.
struct FinishTiles<'a> {
    strip: &'a TileStrip<'a>,
    first: usize,
    count: usize,
    results: &'a [f32],
    result_stride: usize,
}

impl Work for FinishTiles<'_> {
    #[inline(always)]
    #[allow(unsafe_code)]
    fn run<L: Lanes>(self, lanes: L) {
        let TileStrip { tiling, start, y, pitch, .. } = *self.strip;
        let [height, width] = tiling.output;
        for line in 0..self.count {
            let row = self.first + line;
            for run in tiling.runs(self.strip.tiles.clone()) {
                for at in (0..run.len).step_by(LANES) {
                    let values = outputs(lanes, &self.results[line * pitch + run.at + at..], self.result_stride);
                    let column = run.output[1] + 2 * at;
                    let count = (2 * LANES).min(2 * (run.len - at)).min(width - column);
                    for down in 0..(height - run.output[0]).min(2) {
                        let position = (run.output[0] + down) * width + column;
                        // SAFETY: `multiply` has checked the shape of Y; runs are of its items, rows of its filters,
                        // and `count` and `down` end with the width and height of a map. Strips differ in tiles, so
                        // nobody else uses these positions of this row.
                        let out = unsafe { y.row(run.item, row, position, count) };
                        finish(lanes, start, row, values[down], out);
                    }
                }
            }
        }
    }
}
