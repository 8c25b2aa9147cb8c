//! The weight gradient at the non-zeros alone: one dot product per stored weight (a sampled dense-dense product).
//! ```text
//! dw[r, (c, τ)] = Σ_t dy[r, t] · x̃[(c, τ), t]        wherever W has an entry, 0 elsewhere
//! ```
//! X is copied block by block of columns, so that all lines which a tile needs stay in the second-level cache, and each
//! row of dY meets the lines of its non-zeros there. What limits it is the reading of these lines: as in the other two
//! products, a non-zero costs one multiply-add per column and one read from that cache.
//!
//! The columns are cut into a few segments that do not depend on the number of threads; each segment has its own sums,
//! which are added in order at the end. So threads share neither copies of X nor sums, and results do not depend on
//! their number.

use bregman_base::{Buffer, Disjoint};
use rayon::prelude::*;

use super::super::columns::{Columns, Plain};
use super::super::lines::TapLines;
use super::super::output::Output;
use super::super::scratch::with_scratch;
use super::dots::{Dots, Lines, PIECE, Rows, VECTOR};
use super::tile::Tile;
use super::{SparseMatrix, TILE_COLUMNS};

/// Pieces of the columns that are summed on their own.
const SEGMENTS: usize = 4;
/// Bytes of X that stay in the second-level cache of one core, beside dY and the sums.
const BLOCK_BYTES: usize = 768 * 1024;

/// How the columns of a batch are cut.
struct Plan {
    /// Places of an item's grid.
    len: usize,
    /// Places of a block.
    block: usize,
    blocks_per_item: usize,
    /// Blocks in all.
    blocks: usize,
    segments: usize,
    /// Values from one line in the cache to the next.
    stride: usize,
}

impl Plan {
    fn new(x: &impl TapLines, lines: usize, value_bytes: usize) -> Self {
        let (len, reach) = (x.grid().len(), x.reach());
        let piece = PIECE * 64 / value_bytes;
        let pieces = (BLOCK_BYTES / value_bytes / lines.max(1)).saturating_sub(reach) / piece;
        let block = (pieces.max(1) * piece).min(len.next_multiple_of(VECTOR)).max(VECTOR);
        let blocks_per_item = len.div_ceil(block);
        let blocks = x.items() * blocks_per_item;
        let stride = (block + reach).next_multiple_of(Buffer::LINE);
        Self { len, block, blocks_per_item, blocks, segments: SEGMENTS.min(blocks), stride }
    }

    /// The blocks of a segment: item and places of each.
    fn segment(&self, segment: usize) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
        let [first, last] = [segment, segment + 1].map(|segment| self.blocks * segment / self.segments);
        (first..last).map(|block| {
            let (item, from) = (block / self.blocks_per_item, block % self.blocks_per_item * self.block);
            (item, from..self.len.min(from + self.block))
        })
    }
}

/// dW = dY · X̃ᵀ where `matrix` has entries that are not zero, and 0 elsewhere; `sums` is memory to keep.
pub(super) fn gradient(
    dots: Dots,
    matrix: &SparseMatrix,
    x: &impl TapLines,
    dy: &Plain,
    sums: &mut Buffer,
    dw: &Output,
) {
    assert_eq!([x.channels(), x.taps()], [matrix.channels, matrix.taps], "channels and taps of X");
    assert_eq!(
        [dy.items(), dy.rows(), dy.len()],
        [x.items(), matrix.rows, x.grid().positions()],
        "items, rows and columns of dY"
    );
    assert_eq!(dw.shape(), [1, matrix.rows, matrix.columns()], "shape of dW");
    let nonzeros = matrix.nnz();
    let plan = Plan::new(x, matrix.channel_blocks.size * x.lines(), dots.value_bytes());
    sums.grow(nonzeros * plan.segments);
    let mut offsets = [0; TILE_COLUMNS];
    for channel in 0..matrix.channel_blocks.size {
        for tap in 0..matrix.taps {
            let (line, shift) = x.tap(tap);
            offsets[channel * matrix.taps + tap] = ((channel * x.lines() + line) * plan.stride + shift) as u32;
        }
    }
    let all_sums = Disjoint::new(sums);
    let tiles = matrix.forward.len();
    let parts = parts(plan.segments * tiles);
    (0..plan.segments * tiles * parts).into_par_iter().for_each(|unit| {
        let (segment, index, part) = (unit / parts / tiles, unit / parts % tiles, unit % parts);
        let tile = &matrix.forward[index];
        let rows = rows_of(tile, part, parts);
        let entries = tile.start[rows.start] as usize..tile.start[rows.end] as usize;
        if entries.is_empty() {
            return;
        }
        let first_row = matrix.row_blocks.range(index / matrix.channel_blocks.count()).start;
        let channels = matrix.channel_blocks.range(index % matrix.channel_blocks.count());
        let lines = channels.start * x.lines()..channels.end * x.lines();
        let from = segment * nonzeros + before(matrix, index) + entries.start;
        // SAFETY: units differ in segment, tile or rows, and so in their entries' places among the sums.
        #[allow(unsafe_code)]
        let sums = unsafe { all_sums.part(from, entries.len()) };
        sums.fill(0.0);
        with_scratch(dots.scratch(lines.len(), plan.stride), |scratch| {
            let mut room = Lines::new(dots, scratch, plan.stride, &offsets[..channels.len() * matrix.taps]);
            for (item, places) in plan.segment(segment) {
                room.copy(x, item, lines.clone(), places.start);
                let rows = rows.clone();
                room.add(&Rows { tile, rows, dy, first_row, item, grid: x.grid(), places }, sums);
            }
        });
    });
    scatter(matrix, nonzeros, plan.segments, sums, dw);
}

/// Entries of the tiles before this one.
fn before(matrix: &SparseMatrix, tile: usize) -> usize {
    matrix.forward[..tile].iter().map(Tile::nnz).sum()
}

/// Into how many ranges of rows each tile is cut, so that all threads have work.
fn parts(units: usize) -> usize {
    let threads = rayon::current_num_threads();
    if units == 0 || units >= 4 * threads || units.is_multiple_of(threads) { 1 } else { (2 * threads).div_ceil(units) }
}

/// Rows with about as many entries as those of the other parts.
fn rows_of(tile: &Tile, part: usize, parts: usize) -> std::ops::Range<usize> {
    let [from, until] = [part, part + 1].map(|part| {
        let entries = (tile.nnz() * part / parts) as u32;
        tile.start[..tile.rows()].partition_point(|&start| start < entries)
    });
    from..until
}

/// Adds the segments' sums in order, and writes whole rows of dW: whatever was there is overwritten while the row is in
/// the cache.
fn scatter(matrix: &SparseMatrix, nonzeros: usize, segments: usize, sums: &[f32], dw: &Output) {
    let (taps, blocks) = (matrix.taps, matrix.channel_blocks);
    (0..matrix.rows).into_par_iter().with_min_len(32).for_each(|row| {
        let (row_block, inside) = (row / matrix.row_blocks.size, row % matrix.row_blocks.size);
        for block in 0..blocks.count() {
            let (index, channels) = (row_block * blocks.count() + block, blocks.range(block));
            let tile = &matrix.forward[index];
            // SAFETY: `gradient` has checked the shape of dW; each task has its own row.
            #[allow(unsafe_code)]
            let out = unsafe { dw.row(0, row, channels.start * taps, channels.len() * taps) };
            out.fill(0.0);
            let first = before(matrix, index);
            for at in tile.start[inside] as usize..tile.start[inside + 1] as usize {
                // an entry may have become zero since the structure was made; under a mask it may grow again
                if matrix.keeps_zeros || tile.value[at] != 0.0 {
                    let parts = (0..segments).map(|segment| sums[segment * nonzeros + first + at]);
                    out[usize::from(tile.column[at])] = parts.sum();
                }
            }
        }
    });
}
