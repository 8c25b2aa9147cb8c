//! Rows of non-zeros.

use std::ops::Range;

use pulp::Simd;

use super::job::Job;
use super::tile::{Tile, Tiling};
use crate::Result;
use crate::file::StoredLayer;

/// How many rows before it is computed a row of y is fetched.
const AHEAD: usize = 4;

/// Non-zeros by tiles of columns (one tile of all, if their part of x need not fit the first-level cache).
pub(super) struct Sparse {
    tiles: Vec<Rows>,
    /// Of each non-zero in turn: its column, or where that lies in a [`Panel`](super::tile::Panel).
    columns: Vec<u32>,
    values: Vec<f32>,
}

/// The rows of a tile in the order of their number of non-zeros: loops that end when they did before are predicted by
/// the CPU.
struct Rows {
    /// Which row of the matrix comes when. Rows without a non-zero are only in the first tile and in the last, where
    /// their sums begin and end.
    order: Vec<u32>,
    /// Of the i-th of them, columns and values from `starts[i]` to `starts[i + 1]`.
    starts: Vec<u32>,
}

/// Non-zeros row by row.
#[derive(Default)]
pub(super) struct Entries {
    /// Of each non-zero in turn.
    pub(super) columns: Vec<u32>,
    pub(super) values: Vec<f32>,
    /// Where each row ends.
    pub(super) ends: Vec<usize>,
}

impl Entries {
    /// Takes over those columns of a stored layer.
    pub(super) fn of(layer: &StoredLayer, columns: Range<usize>) -> Result<Self> {
        let mut found = Self {
            columns: Vec::with_capacity(layer.live),
            values: Vec::with_capacity(layer.live),
            ends: Vec::with_capacity(layer.spec.outputs),
        };
        layer.for_each(|row, column, value| {
            found.ends.resize(row, found.columns.len());
            if value != 0.0 && columns.contains(&column) {
                found.columns.push((column - columns.start) as u32);
                found.values.push(value);
            }
        })?;
        found.ends.resize(layer.spec.outputs, found.columns.len());
        Ok(found)
    }

    /// From all weights of each row in turn.
    pub(super) fn of_rows(weights: &[f32], columns: usize) -> Self {
        let mut found = Self::default();
        for row in weights.chunks_exact(columns) {
            for (column, &value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
                found.columns.push(column as u32);
                found.values.push(value);
            }
            found.ends.push(found.columns.len());
        }
        found
    }
}

impl Sparse {
    pub(super) fn new(entries: &Entries, columns: usize, tiling: Tiling) -> Self {
        let Entries { columns: found, values, ends } = entries;
        let mut sparse = Self {
            tiles: Vec::new(),
            columns: Vec::with_capacity(found.len()),
            values: Vec::with_capacity(found.len()),
        };
        // of each row, what no tile has yet
        let mut next: Vec<usize> = [0].into_iter().chain(ends.iter().copied()).take(ends.len()).collect();
        let tiles: Vec<Range<usize>> = tiling.tiles(columns).collect();
        for (number, tile) in tiles.iter().enumerate() {
            let ranges: Vec<Range<usize>> = (next.iter_mut().zip(ends))
                .map(|(next, &end)| {
                    let from = *next;
                    *next += found[from..end].partition_point(|&column| (column as usize) < tile.end);
                    from..*next
                })
                .collect();
            let needed = |row: &u32| number == 0 || number + 1 == tiles.len() || !ranges[*row as usize].is_empty();
            let mut order: Vec<u32> = (0..ends.len() as u32).filter(needed).collect();
            order.sort_by_key(|&row| ranges[row as usize].len());
            let mut starts = Vec::with_capacity(order.len() + 1);
            for &row in &order {
                let range = ranges[row as usize].clone();
                starts.push(sparse.columns.len() as u32);
                let place = |&column: &u32| tiling.offset_in(tile, column as usize) as u32;
                sparse.columns.extend(found[range.clone()].iter().map(place));
                sparse.values.extend_from_slice(&values[range]);
            }
            starts.push(sparse.columns.len() as u32);
            sparse.tiles.push(Rows { order, starts });
        }
        sparse
    }

    pub(super) fn live(&self) -> usize {
        self.values.len()
    }

    pub(super) fn columns(&self) -> &[u32] {
        &self.columns
    }

    pub(super) fn bytes(&self) -> usize {
        let rows: usize = self.tiles.iter().map(|tile| tile.order.len() + tile.starts.len()).sum();
        4 * (rows + self.columns.len() + self.values.len())
    }

    /// y += W·x, each row in four sums so that no addition waits for the one before.
    ///
    /// # Panics
    /// If x or y is too short.
    pub(super) fn add_product(&self, x: &[f32], y: &mut [f32]) {
        let rows = self.tiles.iter().flat_map(Rows::ranges);
        for (row, range) in rows {
            let (columns, values) = (self.columns[range.clone()].as_chunks::<4>(), self.values[range].as_chunks::<4>());
            let mut sums = [0f32; 4];
            for (columns, values) in columns.0.iter().zip(values.0) {
                for ((sum, &column), value) in sums.iter_mut().zip(columns).zip(values) {
                    *sum += value * x[column as usize];
                }
            }
            let rest: f32 = columns.1.iter().zip(values.1).map(|(&column, value)| value * x[column as usize]).sum();
            y[row] += (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest;
        }
    }

    #[inline(always)]
    pub(super) fn run<S: Simd>(&self, simd: S, job: &Job, tile: &Tile) {
        // As many vectors as have room for their sums in registers, and then the rest: 10 of 16 registers, 20 of 32.
        // AVX-512's largest blocks have 10, and wasm mostly runs on CPUs with 16.
        let vectors = job.place.width.div_ceil(S::F32_LANES);
        let wide = S::REGISTER_COUNT >= 32 && S::F32_LANES < 16 && !cfg!(target_family = "wasm");
        let mut from = 0;
        while from < vectors {
            let rest = vectors - from;
            let count = if wide && rest >= 20 { 20 } else { rest.min(10) };
            match count {
                1 => self.rows::<S, 1>(simd, job, tile, from),
                2 => self.rows::<S, 2>(simd, job, tile, from),
                3 => self.rows::<S, 3>(simd, job, tile, from),
                4 => self.rows::<S, 4>(simd, job, tile, from),
                5 => self.rows::<S, 5>(simd, job, tile, from),
                6 => self.rows::<S, 6>(simd, job, tile, from),
                7 => self.rows::<S, 7>(simd, job, tile, from),
                8 => self.rows::<S, 8>(simd, job, tile, from),
                9 => self.rows::<S, 9>(simd, job, tile, from),
                10 => self.rows::<S, 10>(simd, job, tile, from),
                _ => self.rows::<S, 20>(simd, job, tile, from),
            }
            from += count;
        }
    }

    /// V vectors of every row, from vector `from` of the block.
    #[inline(always)]
    fn rows<S: Simd, const V: usize>(&self, simd: S, job: &Job, tile: &Tile, from: usize) {
        let (lanes, place) = (S::F32_LANES, job.place);
        debug_assert!((from + V) * lanes <= job.weights.block.next_multiple_of(lanes));
        // SAFETY: a tile has a block from every offset on.
        let x = unsafe { tile.x.add(from * lanes) };
        let rows = &self.tiles[tile.number];
        let offsets = tile.offsets.unwrap_or(&self.columns);
        for (i, (row, range)) in rows.ranges().enumerate() {
            if let Some(&later) = rows.order.get(i + AHEAD) {
                job.expect_row(later as usize);
            }
            let at = place.y + row * place.pitch + from * lanes;
            // SAFETY: the caller of `Weights::apply` keeps others off this row of the block.
            let y = unsafe { job.y.part(at, V * lanes) };
            let mut sums = tile.begin::<S, V>(simd, job.epilogue.bias[row], y);
            for (&offset, &value) in offsets[range.clone()].iter().zip(&self.values[range]) {
                let value = simd.splat_f32s(value);
                // SAFETY: a tile has a block from every offset on, and vectors end within it.
                let x = unsafe { x.add(offset as usize) };
                for (v, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: the block at this offset, within the memory of x.
                    let x = unsafe { x.add(v * lanes).cast::<S::f32s>().read_unaligned() };
                    *sum = simd.mul_add_e_f32s(value, x, *sum);
                }
            }
            tile.end::<S, V>(simd, job, row, sums, at, y);
        }
    }
}

impl Rows {
    /// Row and its range of non-zeros.
    #[inline(always)]
    fn ranges(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        let ranges = self.starts.windows(2).map(|ends| ends[0] as usize..ends[1] as usize);
        self.order.iter().map(|&row| row as usize).zip(ranges)
    }
}
