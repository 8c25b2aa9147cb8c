//! The loops around the kernel: strips of columns over threads, blocks of the inner dimension that fit the second-level
//! cache.

use std::cell::RefCell;

use bregman_base::simd;
use pulp::WithSimd;
use rayon::prelude::*;

use super::super::output::{Results, SumStart};
use super::kernel::{Kernel, Lines, MAX_COLUMNS, Sums};
use super::operand::{Packed, Right, STRIP};
use super::tile::{SIDE, Tile};

/// Tiles of the inner dimension packed at once: 6 tile columns × 32 × 1 KiB stay in the second-level cache.
const DEPTH_TILES: usize = 32;

thread_local! {
    /// The packed strip of the right operand; keeps its memory between calls.
    static STRIP_TILES: RefCell<Vec<Tile>> = const { RefCell::new(Vec::new()) };
}

/// Y = A·B.
pub(super) fn product(kernel: Kernel, a: &Packed, b: &impl Right, start: SumStart, y: &impl Results) {
    assert_eq!(a.inner(), b.inner(), "inner dimensions of a product");
    assert_eq!(y.shape(), [b.items(), a.rows(), b.columns()], "shape of the result");
    if let SumStart::Bias(bias) = start {
        assert_eq!(bias.len(), a.rows(), "one bias per row");
    }
    let (tile_rows, tile_columns) = (a.rows().div_ceil(SIDE), b.columns().div_ceil(SIDE));
    if b.items() * tile_rows * tile_columns == 0 {
        return;
    }
    let strips = strips(tile_columns, b.items());
    // Few strips are shared out by rows as well; each part packs its own copy of the strip.
    let parts = (2 * rayon::current_num_threads()).div_ceil(b.items() * strips).min(tile_rows.div_ceil(4));
    (0..b.items() * strips * parts).into_par_iter().for_each(|unit| {
        let share = |count: usize, of: usize, index: usize| index * count / of..(index + 1) * count / of;
        let task = Task {
            a,
            b,
            start,
            y,
            item: unit / parts / strips,
            columns: share(tile_columns, strips, unit / parts % strips),
            rows: share(tile_rows, parts, unit % parts),
        };
        STRIP_TILES.with_borrow_mut(|tiles| task.run(kernel, tiles));
    });
}

/// Into how many strips the columns are cut: few and wide, but such that all threads finish together.
fn strips(tile_columns: usize, items: usize) -> usize {
    let (fewest, threads) = (tile_columns.div_ceil(STRIP), rayon::current_num_threads());
    let even = (fewest..=tile_columns.min(fewest + fewest / 4)).find(|strips| (items * strips).is_multiple_of(threads));
    even.unwrap_or(fewest)
}

/// Some tile rows of one strip of tile columns.
struct Task<'a, B, Y> {
    a: &'a Packed,
    b: &'a B,
    start: SumStart<'a>,
    y: &'a Y,
    item: usize,
    columns: std::ops::Range<usize>,
    rows: std::ops::Range<usize>,
}

impl<B: Right, Y: Results> Task<'_, B, Y> {
    fn run(&self, kernel: Kernel, strip: &mut Vec<Tile>) {
        let arch = simd::arch();
        let depth = self.a.depth();
        strip.resize(strip.len().max(self.columns.len() * DEPTH_TILES), Tile::ZERO);
        let (block_rows, block_columns) = kernel.shape();
        let mut block = PackedBlock::ZERO;
        kernel.run(|multiply| {
            // without any inner dimension there is still the start to write
            for from in (0..depth.max(1)).step_by(DEPTH_TILES) {
                let blocks = from..depth.min(from + DEPTH_TILES);
                let start = if from == 0 { self.start } else { SumStart::Accumulate };
                arch.dispatch(Pack {
                    b: self.b,
                    item: self.item,
                    blocks: blocks.clone(),
                    columns: self.columns.clone(),
                    tiles: strip,
                });
                for row in self.rows.clone().step_by(block_rows) {
                    let count = block_rows.min(self.rows.end - row);
                    let left = Lines::tiles(&self.a.tiles()[row * depth + from..], depth, count, blocks.len());
                    for column in (0..self.columns.len()).step_by(block_columns) {
                        let count = block_columns.min(self.columns.len() - column);
                        let right = Lines::tiles(&strip[column * blocks.len()..], blocks.len(), count, blocks.len());
                        multiply(left, right, Sums::new(block.0.as_flattened_mut(), WIDTH, false));
                        let (row, column) = (row * SIDE, (self.columns.start + column) * SIDE);
                        arch.dispatch(FinishPacked {
                            block: &block,
                            start,
                            y: self.y,
                            item: self.item,
                            row,
                            column,
                            left,
                            right,
                        });
                    }
                }
            }
        });
    }
}

/// Most tile rows of a block.
const MAX_ROWS: usize = 2;
/// Row stride of [`PackedBlock`].
const WIDTH: usize = MAX_COLUMNS * SIDE;

/// The f32 results of one block, row-major.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct PackedBlock([[f32; WIDTH]; MAX_ROWS * SIDE]);

impl PackedBlock {
    const ZERO: Self = Self([[0.0; WIDTH]; MAX_ROWS * SIDE]);
}

/// Packs a strip of the right operand.
struct Pack<'a, B> {
    b: &'a B,
    item: usize,
    blocks: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
    tiles: &'a mut [Tile],
}

impl<B: Right> WithSimd for Pack<'_, B> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let count = self.columns.len() * self.blocks.len();
        self.b.pack(self.item, self.blocks, self.columns, &mut self.tiles[..count]);
    }
}

/// Writes the sums of a block to Y.
struct FinishPacked<'a, Y> {
    block: &'a PackedBlock,
    start: SumStart<'a>,
    y: &'a Y,
    item: usize,
    row: usize,
    column: usize,
    left: Lines<'a>,
    right: Lines<'a>,
}

impl<Y: Results> WithSimd for FinishPacked<'_, Y> {
    type Output = ();

    #[inline(always)]
    #[allow(unsafe_code)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let [_, rows, columns] = self.y.shape();
        let rows = self.row..rows.min(self.row + SIDE * self.left.count());
        let width = (SIDE * self.right.count()).min(columns - self.column);
        for (row, sums) in rows.zip(&self.block.0) {
            // SAFETY: rows and width end with the shape of Y, and the item is one of B's, which are as many (checked in
            // `product`). Tasks differ in item, tile rows or tile columns, so nobody else uses this piece.
            unsafe { self.y.finish(self.item, row, self.column, self.start, &sums[..width]) };
        }
    }
}
