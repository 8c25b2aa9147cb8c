//! Compressed tiles times a batch of lines in which a tap is an offset: convolutions without a stride.
//!
//! As [`product`](super::product), but each value of X is copied once and not once per tap. A block of places of all
//! lines that a tile needs stays in the second-level cache; chunks of a few vectors of it are worked through one after
//! another, so that the part of the lines under a chunk comes from the first-level cache where the channels are few.
//! Every output is the same sum in the same order as there.

use std::ops::Range;

use bregman_base::Buffer;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::super::bf16::round;
use super::super::lines::{Grid, TapLines};
use super::super::output::{Output, SumStart};
use super::super::scratch::with_scratch;
use super::product::{self, LaneCount, StripFormat, load, store};
use super::{TILE_COLUMNS, tile::Tile};
use crate::cpu::math::simd;

/// Bytes of X that stay in the second-level cache of one core.
const BLOCK_BYTES: usize = 512 * 1024;
/// Most vectors in a chunk; their sums stay in registers on every architecture.
const MOST: usize = 6;

/// How the places of an item are cut.
struct Plan {
    grid: Grid,
    /// Places of a block.
    block: usize,
    blocks: usize,
    /// Values from one line in the cache to the next.
    stride: usize,
}

impl Plan {
    fn new(x: &impl TapLines, lines: usize) -> Self {
        let (grid, reach) = (x.grid(), x.reach());
        let room = (BLOCK_BYTES / size_of::<f32>() / lines.max(1)).saturating_sub(reach);
        let most = grid.len().div_ceil((2 * rayon::current_num_threads()).div_ceil(x.items()));
        // whole rows of the map, or what fills vectors
        let unit = if grid.has_no_gaps() { Buffer::LINE } else { grid.pitch() };
        let block = (room.min(most) / unit).max(1) * unit;
        let stride = (block + Buffer::LINE + reach).next_multiple_of(Buffer::LINE);
        Self { grid, block, blocks: grid.len().div_ceil(block), stride }
    }
}

/// Y = grid · X with the instructions of `arch`, where `tiles` are those of one orientation of a matrix.
pub(super) fn multiply<'a>(
    arch: Arch,
    format: StripFormat,
    tiles: &product::Grid<impl Fn(usize, usize) -> &'a Tile + Sync>,
    x: &impl TapLines,
    start: SumStart,
    y: &Output,
) {
    assert_eq!([x.channels(), x.taps()], [tiles.inner.total, tiles.taps], "channels and taps of X");
    assert_eq!(y.shape(), [x.items(), tiles.rows.total, x.grid().positions()], "shape of Y");
    if let SumStart::Bias(bias) = start {
        assert_eq!(bias.len(), tiles.rows.total, "one bias per row");
    }
    if x.items() * x.grid().len() * tiles.rows.total == 0 {
        return;
    }
    let plan = Plan::new(x, tiles.inner.size * x.lines());
    let mut offsets = [0; TILE_COLUMNS];
    for (at, offset) in offsets[..tiles.inner.size * tiles.taps].iter_mut().enumerate() {
        let (line, shift) = x.tap(at % tiles.taps);
        *offset = ((at / tiles.taps * x.lines() + line) * plan.stride + shift) as u32;
    }
    (0..x.items() * plan.blocks).into_par_iter().for_each(|unit| {
        let (item, from) = (unit / plan.blocks, unit % plan.blocks * plan.block);
        let places = from..plan.grid.len().min(from + plan.block);
        for inner in 0..tiles.inner.count() {
            let start = if inner == 0 { start } else { SumStart::Accumulate };
            let channels = tiles.inner.range(inner);
            let lines = channels.start * x.lines()..channels.end * x.lines();
            with_scratch(lines.len() * plan.stride, |values| {
                let values = &mut values[..lines.len() * plan.stride];
                simd!(arch, {
                    x.fill(item, lines.clone(), from, values, plan.stride);
                    if format == StripFormat::Bf16 {
                        values.iter_mut().for_each(|value| *value = round(*value));
                    }
                });
                let lanes = arch.dispatch(LaneCount);
                let offsets = &offsets[..channels.len() * tiles.taps];
                let last = offsets.iter().max().map_or(0, |&offset| offset as usize);
                for chunk in chunks(plan.grid, places.clone(), lanes) {
                    for row_block in 0..tiles.rows.count() {
                        let tile = (tiles.tile)(row_block, inner);
                        if tile.nnz() == 0 && start == SumStart::Accumulate {
                            continue;
                        }
                        let first_row = tiles.rows.range(row_block).start;
                        let (grid, at) = (plan.grid, chunk.start - from);
                        let chunk = chunk.clone();
                        arch.dispatch(Job { tile, first_row, values, offsets, last, at, item, grid, chunk, start, y });
                    }
                }
            });
        }
    });
}

/// The places of a block in pieces of a few vectors: row by row of the map where that fills them, else regardless of
/// rows.
fn chunks(grid: Grid, places: Range<usize>, lanes: usize) -> impl Iterator<Item = Range<usize>> {
    let by_rows = !grid.has_no_gaps() && 8 * grid.width().next_multiple_of(lanes) <= 9 * grid.width();
    let (unit, step) = if by_rows { (grid.width(), grid.pitch()) } else { (places.len(), places.len()) };
    let size = {
        let vectors = unit.div_ceil(lanes);
        vectors.div_ceil(vectors.div_ceil(MOST)) * lanes
    };
    places.clone().step_by(step).flat_map(move |first| {
        let end = places.end.min(first + unit);
        (first..end).step_by(size).map(move |from| from..end.min(from + size))
    })
}

/// One tile times one chunk of the lines.
struct Job<'a> {
    tile: &'a Tile,
    first_row: usize,
    values: &'a [f32],
    offsets: &'a [u32],
    /// The largest of these.
    last: usize,
    /// Where the chunk begins in a line.
    at: usize,
    item: usize,
    grid: Grid,
    chunk: Range<usize>,
    start: SumStart<'a>,
    y: &'a Output<'a>,
}

impl WithSimd for Job<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match self.chunk.len().div_ceil(S::F32_LANES) {
            1 => self.run::<S, 1>(simd),
            2 => self.run::<S, 2>(simd),
            3 => self.run::<S, 3>(simd),
            4 => self.run::<S, 4>(simd),
            5 => self.run::<S, 5>(simd),
            6 => self.run::<S, 6>(simd),
            vectors => unreachable!("a chunk of {vectors} vectors"),
        }
    }
}

impl Job<'_> {
    #[inline(always)]
    #[allow(unsafe_code)]
    fn run<S: Simd, const V: usize>(&self, simd: S) {
        let Tile { start, column, value, .. } = self.tile;
        assert!(self.last + self.at + V * S::F32_LANES <= self.values.len() && column.len() == value.len());
        let mut whole = None;
        self.grid.runs(self.chunk.clone(), |place, position, count| {
            whole = (place == 0 && count == self.chunk.len()).then_some(position);
        });
        let mut line = [0.0; MOST * Buffer::LINE];
        let line = &mut line[..self.chunk.len()];
        for row in 0..self.tile.rows() {
            // SAFETY: `multiply` has checked that Y has the items of X, the rows of all tiles and the positions of the
            // grid. Units of work differ in item or block, so no other thread uses these pieces of this row, and here
            // they are used one after another.
            let piece = |position, count| unsafe { self.y.row(self.item, self.first_row + row, position, count) };
            let mut sums = [simd.splat_f32s(0.0); V];
            match self.start {
                SumStart::Zero => {}
                SumStart::Bias(bias) => sums = [simd.splat_f32s(bias[self.first_row + row]); V],
                SumStart::Accumulate => match whole {
                    Some(position) => load(simd, piece(position, self.chunk.len()), &mut sums),
                    None => {
                        self.grid.runs(self.chunk.clone(), |place, position, count| {
                            line[place..place + count].copy_from_slice(piece(position, count));
                        });
                        load(simd, line, &mut sums);
                    }
                },
            }
            let range = start[row] as usize..start[row + 1] as usize;
            for (&column, &weight) in column[range.clone()].iter().zip(&value[range]) {
                let at = self.offsets[usize::from(column)] as usize + self.at;
                let weight = simd.splat_f32s(weight);
                for (v, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: V vectors follow each offset, as asserted above; they may lie at any f32.
                    let x =
                        unsafe { self.values.as_ptr().add(at + v * S::F32_LANES).cast::<S::f32s>().read_unaligned() };
                    *sum = simd.mul_add_e_f32s(weight, x, *sum);
                }
            }
            match whole {
                Some(position) => store(simd, &sums, piece(position, self.chunk.len())),
                None => {
                    store(simd, &sums, line);
                    self.grid.runs(self.chunk.clone(), |place, position, count| {
                        piece(position, count).copy_from_slice(&line[place..place + count]);
                    });
                }
            }
        }
    }
}
