//! Compressed tiles times a batch of dense columns.
//!
//! The columns of each item are cut into strips of a few SIMD vectors. Per strip, the rows of X that a tile needs are copied
//! into an aligned buffer that stays in the second-level cache; then every row of the tile is one sum, held in registers:
//! ```text
//! y[r, strip] = Σ_{non-zeros (c, w) of row r} w · x[c, strip]
//! ```
//! so a non-zero costs one broadcast and one multiply-add per vector, and nothing is written until the row is done.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::super::columns::Columns;
use super::super::output::{Output, Start};
use super::super::scratch::with_scratch;
use super::{Blocks, tile::Tile};

/// Most SIMD vectors in a strip: as many accumulators stay in registers on every architecture.
const MAX_VECTORS: usize = 6;

/// The tiles of one orientation of a matrix: `tile(row block, inner block)`.
pub(super) struct Grid<F> {
    pub(super) rows: Blocks,
    /// Channels of the inner dimension; each has `taps` columns.
    pub(super) inner: Blocks,
    pub(super) taps: usize,
    pub(super) tile: F,
}

/// Y = grid · X with the instructions of `arch`.
pub(super) fn multiply<'a, X: Columns>(arch: Arch, grid: &Grid<impl Fn(usize, usize) -> &'a Tile + Sync>, x: &X, start: Start, y: &Output) {
    assert_eq!(x.rows(), grid.inner.total * grid.taps, "rows of X against columns of the matrix");
    assert_eq!(y.shape(), [x.items(), grid.rows.total, x.len()], "shape of Y");
    if let Start::Bias(bias) = start {
        assert_eq!(bias.len(), grid.rows.total, "one bias per row");
    }
    if x.items() * x.len() * grid.rows.total == 0 {
        return;
    }
    let lanes = arch.dispatch(Lanes);
    let strips = Strips::new(x.len(), lanes, x.items() * grid.rows.count());
    (0..x.items() * strips.count * grid.rows.count()).into_par_iter().for_each(|unit| {
        let (unit, row_block) = (unit / grid.rows.count(), unit % grid.rows.count());
        let (item, strip) = (unit / strips.count, unit % strips.count);
        for inner in 0..grid.inner.count() {
            let tile = (grid.tile)(row_block, inner);
            let start = if inner == 0 { start } else { Start::Accumulate };
            if tile.nnz() == 0 && start == Start::Accumulate {
                continue;
            }
            let channels = grid.inner.range(inner);
            let columns = channels.start * grid.taps..channels.end * grid.taps;
            let (from, width) = strips.range(strip);
            let first_row = grid.rows.range(row_block).start;
            with_scratch(columns.len() * strips.width, |strip| {
                arch.dispatch(Job { tile, first_row, x, columns, item, from, width, start, y, strip });
            });
        }
    });
}

/// Lanes of the SIMD vectors in use.
struct Lanes;

impl WithSimd for Lanes {
    type Output = usize;
    fn with_simd<S: Simd>(self, _: S) -> usize {
        S::F32_LANES
    }
}

/// `len` columns cut into strips of equally many whole vectors, the last one perhaps partial.
struct Strips {
    len: usize,
    width: usize,
    count: usize,
}

impl Strips {
    /// Few wide strips, but more of them where otherwise threads would wait: `repeats` is how often the strips are worked through.
    fn new(len: usize, lanes: usize, repeats: usize) -> Self {
        let (vectors, threads) = (len.div_ceil(lanes), rayon::current_num_threads());
        let idles = |strips: usize| repeats * strips < 4 * threads && !(repeats * strips).is_multiple_of(threads);
        let fewest = vectors.div_ceil(MAX_VECTORS);
        let strips = (fewest..=vectors.min(2 * fewest)).find(|&strips| !idles(strips)).unwrap_or(fewest);
        let width = vectors.div_ceil(strips) * lanes;
        Self { len, width, count: len.div_ceil(width) }
    }

    fn range(&self, strip: usize) -> (usize, usize) {
        let from = strip * self.width;
        (from, self.width.min(self.len - from))
    }
}

/// One tile times one strip of X.
struct Job<'a, X> {
    tile: &'a Tile,
    first_row: usize,
    x: &'a X,
    /// Rows of X under the tile.
    columns: std::ops::Range<usize>,
    item: usize,
    from: usize,
    width: usize,
    start: Start<'a>,
    y: &'a Output<'a>,
    /// Room for the strip of X.
    strip: &'a mut [f32],
}

impl<X: Columns> WithSimd for Job<'_, X> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match self.width.div_ceil(S::F32_LANES) {
            1 => self.run::<S, 1>(simd),
            2 => self.run::<S, 2>(simd),
            3 => self.run::<S, 3>(simd),
            4 => self.run::<S, 4>(simd),
            5 => self.run::<S, 5>(simd),
            6 => self.run::<S, 6>(simd),
            vectors => unreachable!("a strip of {vectors} vectors"),
        }
    }
}

impl<X: Columns> Job<'_, X> {
    #[inline(always)]
    fn run<S: Simd, const V: usize>(mut self, simd: S) {
        self.copy_strip(V * S::F32_LANES);
        self.multiply_rows::<S, V>(simd);
    }

    /// Copies the strip of X, each row padded with zeros to whole vectors.
    #[inline(always)]
    fn copy_strip(&mut self, padded: usize) {
        if self.width < padded {
            self.strip.chunks_exact_mut(padded).take(self.columns.len()).for_each(|line| line[self.width..].fill(0.0));
            self.x.fill_rows(self.item, self.columns.clone(), self.from, self.width, self.strip, padded);
        } else {
            self.x.fill_rows(self.item, self.columns.clone(), self.from, padded, self.strip, padded);
        }
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    fn multiply_rows<S: Simd, const V: usize>(&self, simd: S) {
        let (lanes, vectors) = (S::F32_LANES, self.strip.as_ptr().cast::<S::f32s>());
        let Tile { start, column, value, .. } = self.tile;
        assert!(self.strip.len() >= self.columns.len() * V * lanes && column.len() == value.len());
        for row in 0..self.tile.rows() {
            // SAFETY: units of work differ in item, strip or row block, so no other thread writes this piece of this row.
            let out = unsafe { self.y.row(self.item, self.first_row + row, self.from, self.width) };
            let mut sums = [simd.splat_f32s(0.0); V];
            match self.start {
                Start::Zero => {}
                Start::Bias(bias) => sums = [simd.splat_f32s(bias[self.first_row + row]); V],
                Start::Accumulate => sums = load(simd, out),
            }
            let range = start[row] as usize..start[row + 1] as usize;
            for (&column, &weight) in column[range.clone()].iter().zip(&value[range]) {
                debug_assert!(usize::from(column) < self.columns.len());
                let weight = simd.splat_f32s(weight);
                for (v, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: columns of a tile are below the rows of X under it, each V vectors long in `strip` (asserted above).
                    let x = unsafe { *vectors.add(usize::from(column) * V + v) };
                    *sum = simd.mul_add_e_f32s(weight, x, *sum);
                }
            }
            store(simd, sums, out);
        }
    }
}

/// Up to V vectors from a slice of at most V vectors, the last one perhaps partial.
// Every index into the vectors is a constant after unrolling, which keeps them in registers.
#[inline(always)]
fn load<S: Simd, const V: usize>(simd: S, from: &[f32]) -> [S::f32s; V] {
    let (whole, rest) = S::as_simd_f32s(from);
    let mut vectors = [simd.splat_f32s(0.0); V];
    for (v, vector) in vectors.iter_mut().enumerate() {
        if v < whole.len() {
            *vector = whole[v];
        } else if v == whole.len() {
            *vector = simd.partial_load_f32s(rest);
        }
    }
    vectors
}

/// The reverse of [`load`].
#[inline(always)]
fn store<S: Simd, const V: usize>(simd: S, vectors: [S::f32s; V], to: &mut [f32]) {
    let (whole, rest) = S::as_mut_simd_f32s(to);
    for (v, &vector) in vectors.iter().enumerate() {
        if v < whole.len() {
            whole[v] = vector;
        } else if v == whole.len() {
            simd.partial_store_f32s(rest, vector);
        }
    }
}
