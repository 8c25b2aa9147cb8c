//! Operands in tiles: the left one packed ahead (weights once per step), the right one packed on the way.

use std::ops::Range;

use rayon::prelude::*;

use super::super::columns::{Columns, Plain};
use super::tile::{DEPTH, SIDE, Tile, interleave, round_row};
use crate::cpu::math::simd;

/// A left operand A[rows × inner] in tiles; tile row after tile row. Keeps its memory, so packing again allocates
/// nothing.
#[derive(Clone, Default)]
pub struct Packed {
    rows: usize,
    /// Inner length, before padding.
    inner: usize,
    /// Tiles per tile row.
    depth: usize,
    tiles: Vec<Tile>,
}

impl std::fmt::Debug for Packed {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "Packed {{ rows: {}, inner: {} }}", self.rows, self.inner)
    }
}

impl Packed {
    /// Rows of A.
    pub fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    pub(super) fn inner(&self) -> usize {
        self.inner
    }

    pub(super) fn tiles(&self) -> &[Tile] {
        &self.tiles
    }

    /// A = W for Y = W·X: `columns` values per row, rows `stride` apart.
    ///
    /// # Panics
    /// If the last row is outside `weights`.
    pub fn pack(&mut self, weights: &[f32], rows: usize, columns: usize, stride: usize) {
        self.pack_batch(&Plain::strided(weights, [1, rows, columns], stride, 0));
    }

    /// A = dY for dW = dY·Xᵀ: the inner dimension runs over the columns of all items.
    pub fn pack_batch(&mut self, y: &impl Columns) {
        let depth = y.items() * y.len().div_ceil(DEPTH);
        self.pack_rows(
            [y.rows(), y.items() * y.len(), depth],
            #[inline(always)]
            |tiles, first| pack_lines_of(y, tiles, first, 0),
        );
    }

    /// A = Wᵀ for dX = Wᵀ·dY: W is `[rows, channels, taps]`, A is `[channels, rows·taps]`.
    ///
    /// # Panics
    /// If the last row is outside `weights`.
    pub fn pack_transposed(&mut self, weights: &[f32], rows: usize, channels: usize, taps: usize, stride: usize) {
        self.pack_taps(weights, rows, channels, taps, stride, &Vec::from_iter(0..taps));
    }

    /// The same with only some of the taps.
    pub(in super::super) fn pack_taps(
        &mut self,
        weights: &[f32],
        rows: usize,
        channels: usize,
        taps: usize,
        stride: usize,
        chosen: &[usize],
    ) {
        let inner = rows * chosen.len();
        self.pack_rows(
            [channels, inner, inner.div_ceil(DEPTH)],
            #[inline(always)]
            |tiles, first| {
                let count = SIDE.min(channels - first);
                let line = |k: usize| {
                    let mut values = [0.0; SIDE];
                    if k < inner {
                        let row = &weights[k / chosen.len() * stride + first * taps + chosen[k % chosen.len()]..];
                        values[..count].iter_mut().zip(row.iter().step_by(taps)).for_each(|(to, &from)| *to = from);
                    }
                    values
                };
                for (tile, block) in tiles.iter_mut().zip(0..) {
                    for (words, k) in tile.0.iter_mut().zip((block * DEPTH..).step_by(2)) {
                        interleave(&line(k), &line(k + 1), std::iter::once(words));
                    }
                    tile.transpose();
                }
            },
        );
    }

    /// Resizes, and calls `pack(tiles, first row)` for every tile row.
    fn pack_rows(&mut self, [rows, inner, depth]: [usize; 3], pack: impl Fn(&mut [Tile], usize) + Sync) {
        (self.rows, self.inner, self.depth) = (rows, inner, depth);
        self.tiles.resize(rows.div_ceil(SIDE) * depth, Tile::ZERO);
        self.tiles.par_chunks_mut(depth.max(1)).enumerate().for_each(|(tile_row, tiles)| {
            simd!(pack(tiles, tile_row * SIDE));
        });
    }
}

/// Blocks whose lines are fetched in one piece.
const RUN: usize = 16;

/// Packs 16 rows of `x` from row `first` as lines of left tiles; blocks of 32 columns are counted item by item from
/// `block`.
#[inline(always)]
fn pack_lines_of(x: &impl Columns, mut tiles: &mut [Tile], first: usize, mut block: usize) {
    let (blocks, rows) = (x.len().div_ceil(DEPTH), SIDE.min(x.rows() - first));
    let mut line = [[0.0; DEPTH]; RUN];
    while !tiles.is_empty() {
        let (item, at) = (block / blocks, block % blocks);
        let (run, rest) = tiles.split_at_mut(tiles.len().min(RUN).min(blocks - at));
        let count = (run.len() * DEPTH).min(x.len() - at * DEPTH);
        for row in 0..rows {
            // zero past the end of the item, as left by the previous run or cleared here
            line[run.len() - 1] = [0.0; DEPTH];
            x.fill(item, first + row, at * DEPTH, &mut line.as_flattened_mut()[..count]);
            round_row(&line, run, row);
        }
        run.iter_mut().for_each(|tile| tile.0[rows..].fill([0; 16]));
        (block, tiles) = (block + run.len(), rest);
    }
}

/// A right operand B[inner × columns], `items` times, that can be packed piece by piece.
pub(super) trait Right: Sync {
    fn items(&self) -> usize;
    fn inner(&self) -> usize;
    fn columns(&self) -> usize;
    /// Packs the given blocks of the inner dimension and tile columns; tile `(column, k)` goes to `column · blocks +
    /// k`.
    fn pack(&self, item: usize, blocks: Range<usize>, columns: Range<usize>, tiles: &mut [Tile]);
}

/// B = X for Y = W·X.
pub(super) struct Straight<'a, X>(pub(super) &'a X);

/// Most tile columns packed at once.
pub(super) const STRIP: usize = 6;

impl<X: Columns> Right for Straight<'_, X> {
    fn items(&self) -> usize {
        self.0.items()
    }
    fn inner(&self) -> usize {
        self.0.rows()
    }
    fn columns(&self) -> usize {
        self.0.len()
    }
    #[inline(always)]
    fn pack(&self, item: usize, blocks: Range<usize>, columns: Range<usize>, tiles: &mut [Tile]) {
        let from = columns.start * SIDE;
        let width = (columns.len() * SIDE).min(self.0.len() - from);
        // Zero past the width of the strip and past the last row. All rows of a block are copied before any is
        // converted: they lie far apart in memory, and so the loads wait for each other as little as possible.
        let mut lines = [[0.0; STRIP * SIDE]; DEPTH];
        for (at, block) in blocks.clone().enumerate() {
            let rows = block * DEPTH..self.0.rows().min((block + 1) * DEPTH);
            lines[rows.len()..].fill([0.0; STRIP * SIDE]);
            if width == STRIP * SIDE {
                self.0.fill_rows(item, rows, from, STRIP * SIDE, lines.as_flattened_mut(), STRIP * SIDE);
            } else {
                self.0.fill_rows(item, rows, from, width, lines.as_flattened_mut(), STRIP * SIDE);
            }
            for (pair, lines) in lines.chunks_exact(2).enumerate() {
                interleave(
                    &lines[0],
                    &lines[1],
                    tiles.iter_mut().skip(at).step_by(blocks.len()).map(|tile| &mut tile.0[pair]),
                );
            }
        }
    }
}

/// B = Xᵀ for dW = dY·Xᵀ: the inner dimension runs over the columns of all items.
pub(super) struct Transposed<'a, X>(pub(super) &'a X);

impl<X: Columns> Right for Transposed<'_, X> {
    fn items(&self) -> usize {
        1
    }
    fn inner(&self) -> usize {
        self.0.items() * self.0.len()
    }
    fn columns(&self) -> usize {
        self.0.rows()
    }
    #[inline(always)]
    fn pack(&self, _: usize, blocks: Range<usize>, columns: Range<usize>, tiles: &mut [Tile]) {
        for (tiles, column) in tiles.chunks_exact_mut(blocks.len()).zip(columns) {
            pack_lines_of(self.0, tiles, column * SIDE, blocks.start);
            tiles.iter_mut().for_each(Tile::transpose);
        }
    }
}
