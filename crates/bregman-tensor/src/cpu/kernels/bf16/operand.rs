//! Operands in tiles: the left one packed ahead (weights once per step), the right one packed on the way.

use std::ops::Range;

use pulp::Arch;
use rayon::prelude::*;

use super::super::columns::Columns;
use super::tile::{DEPTH, SIDE, Tile, interleave};

/// A left operand A[rows × inner] in tiles; tile row after tile row. Keeps its memory, so packing again allocates nothing.
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
        self.pack_tiles(
            rows,
            columns,
            columns.div_ceil(DEPTH),
            #[inline(always)]
            |tile, first, block| {
                tile.pack_lines(SIDE.min(rows - first), |row, out| {
                    let from = block * DEPTH;
                    let values = &weights[(first + row) * stride..][from..columns.min(from + DEPTH)];
                    out[..values.len()].copy_from_slice(values);
                });
            },
        );
    }

    /// A = Wᵀ for dX = Wᵀ·dY: W is `[rows, channels, taps]`, A is `[channels, rows·taps]`.
    ///
    /// # Panics
    /// If the last row is outside `weights`.
    pub fn pack_transposed(&mut self, weights: &[f32], rows: usize, channels: usize, taps: usize, stride: usize) {
        let inner = rows * taps;
        self.pack_tiles(
            channels,
            inner,
            inner.div_ceil(DEPTH),
            #[inline(always)]
            |tile, first, block| {
                let count = SIDE.min(channels - first);
                let line = |k: usize| {
                    let mut values = [0.0; SIDE];
                    if k < inner {
                        let row = &weights[k / taps * stride + first * taps + k % taps..];
                        values[..count].iter_mut().zip(row.iter().step_by(taps)).for_each(|(to, &from)| *to = from);
                    }
                    values
                };
                for (pair, words) in tile.0.iter_mut().enumerate() {
                    let k = block * DEPTH + 2 * pair;
                    interleave(&line(k), &line(k + 1), std::iter::once(words));
                }
                tile.transpose();
            },
        );
    }

    /// A = dY for dW = dY·Xᵀ: the inner dimension runs over the columns of all items.
    pub fn pack_batch(&mut self, y: &impl Columns) {
        let blocks = y.len().div_ceil(DEPTH);
        self.pack_tiles(
            y.rows(),
            y.items() * y.len(),
            y.items() * blocks,
            #[inline(always)]
            |tile, first, block| pack_lines_of(y, tile, first, block),
        );
    }

    /// Resizes, and calls `pack(tile, first row, inner block)` for every tile.
    fn pack_tiles(&mut self, rows: usize, inner: usize, depth: usize, pack: impl Fn(&mut Tile, usize, usize) + Sync) {
        (self.rows, self.inner, self.depth) = (rows, inner, depth);
        self.tiles.resize(rows.div_ceil(SIDE) * depth, Tile::ZERO);
        let arch = Arch::new();
        self.tiles.par_chunks_mut(depth.max(1)).enumerate().for_each(|(tile_row, tiles)| {
            arch.dispatch(
                #[inline(always)]
                || tiles.iter_mut().enumerate().for_each(|(block, tile)| pack(tile, tile_row * SIDE, block)),
            );
        });
    }
}

/// Packs 16 rows of `x` from row `first`, 32 columns: those of the given block, counted item by item.
#[inline(always)]
fn pack_lines_of(x: &impl Columns, tile: &mut Tile, first: usize, block: usize) {
    let blocks = x.len().div_ceil(DEPTH);
    let (item, from) = (block / blocks, block % blocks * DEPTH);
    let count = DEPTH.min(x.len() - from);
    tile.pack_lines(SIDE.min(x.rows() - first), |row, out| x.fill(item, first + row, from, &mut out[..count]));
}

/// A right operand B[inner × columns], `items` times, that can be packed piece by piece.
pub(super) trait Right: Sync {
    fn items(&self) -> usize;
    fn inner(&self) -> usize;
    fn columns(&self) -> usize;
    /// Packs the given blocks of the inner dimension and tile columns; tile `(column, k)` goes to `column · blocks + k`.
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
        // Zero past the width of the strip and past the last row. All rows of a block are copied before any is converted:
        // they lie far apart in memory, and so the loads wait for each other as little as possible.
        let mut lines = [[0.0; STRIP * SIDE]; DEPTH];
        for (at, block) in blocks.clone().enumerate() {
            for (line, row) in lines.iter_mut().zip(block * DEPTH..) {
                if row >= self.0.rows() {
                    *line = [0.0; STRIP * SIDE];
                } else if width == line.len() {
                    self.0.fill(item, row, from, line);
                } else {
                    self.0.fill(item, row, from, &mut line[..width]);
                }
            }
            for (pair, lines) in lines.chunks_exact(2).enumerate() {
                interleave(&lines[0], &lines[1], tiles.iter_mut().skip(at).step_by(blocks.len()).map(|tile| &mut tile.0[pair]));
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
            for (tile, block) in tiles.iter_mut().zip(blocks.clone()) {
                pack_lines_of(self.0, tile, column * SIDE, block);
                tile.transpose();
            }
        }
    }
}
