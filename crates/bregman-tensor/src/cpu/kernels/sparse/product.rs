//! Compressed tiles times a batch of dense columns.
//!
//! The columns of each item are cut into strips of a few SIMD vectors. Per strip, the rows of X that a tile needs are
//! copied into an aligned buffer that stays in the second-level cache; then every row of the tile is one sum, held in
//! registers:
//! ```text
//! y[r, strip] = Σ_{non-zeros (c, w) of row r} w · x[c, strip]
//! ```
//! so a non-zero costs one broadcast and one multiply-add per vector, and nothing is written until the row is done.
//! What limits it is the reading of the strip from that cache; rounded to bf16, two columns share a word and half the
//! traffic remains.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::super::bf16::pair;
use super::super::columns::Columns;
use super::super::lanes::{self, LANES, Work, dispatch};
use super::super::output::{Output, SumStart};
use super::super::scratch::with_scratch;
use super::{Blocks, tile::Tile};

/// How the strip of X is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StripFormat {
    /// As it is.
    F32,
    /// Rounded to bf16, two vectors of columns in one vector of words.
    Bf16,
}

impl StripFormat {
    pub(super) fn of(rounded: bool) -> Self {
        if rounded { Self::Bf16 } else { Self::F32 }
    }

    /// Columns in one vector of the strip, for `lanes` of f32.
    fn columns(self, lanes: usize) -> usize {
        match self {
            Self::F32 => lanes,
            Self::Bf16 => 2 * lanes,
        }
    }

    /// Most vectors in a strip; their sums stay in registers on every architecture.
    fn most(self) -> usize {
        match self {
            Self::F32 => 6,
            Self::Bf16 => 4,
        }
    }
}

/// The tiles of one orientation of a matrix: `tile(row block, inner block)`.
pub(super) struct Grid<F> {
    pub(super) rows: Blocks,
    /// Channels of the inner dimension; each has `taps` columns.
    pub(super) inner: Blocks,
    pub(super) taps: usize,
    pub(super) tile: F,
}

/// Y = grid · X with the instructions of `arch`.
pub(super) fn multiply<'a, X: Columns>(
    arch: Arch,
    storage: StripFormat,
    grid: &Grid<impl Fn(usize, usize) -> &'a Tile + Sync>,
    x: &X,
    start: SumStart,
    y: &Output,
) {
    assert_eq!(x.rows(), grid.inner.total * grid.taps, "rows of X against columns of the matrix");
    assert_eq!(y.shape(), [x.items(), grid.rows.total, x.len()], "shape of Y");
    if let SumStart::Bias(bias) = start {
        assert_eq!(bias.len(), grid.rows.total, "one bias per row");
    }
    if x.items() * x.len() * grid.rows.total == 0 {
        return;
    }
    let strips =
        Strips::new(x.len(), storage.columns(arch.dispatch(LaneCount)), storage.most(), x.items() * grid.rows.count());
    (0..x.items() * strips.count * grid.rows.count()).into_par_iter().for_each(|unit| {
        let (unit, row_block) = (unit / grid.rows.count(), unit % grid.rows.count());
        let (item, strip) = (unit / strips.count, unit % strips.count);
        for inner in 0..grid.inner.count() {
            let tile = (grid.tile)(row_block, inner);
            let start = if inner == 0 { start } else { SumStart::Accumulate };
            if tile.nnz() == 0 && start == SumStart::Accumulate {
                continue;
            }
            let channels = grid.inner.range(inner);
            let columns = channels.start * grid.taps..channels.end * grid.taps;
            let (from, width) = strips.range(strip);
            let first_row = grid.rows.range(row_block).start;
            with_scratch(columns.len() * strips.width, |strip| {
                arch.dispatch(TileJob { tile, first_row, x, columns, item, from, width, start, y, storage, strip });
            });
        }
    });
}

/// Lanes of the SIMD vectors in use.
pub(super) struct LaneCount;

impl WithSimd for LaneCount {
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
    /// Wide strips, but narrower ones where otherwise threads would wait for the last: `repeats` is how often the
    /// strips are worked through.
    fn new(len: usize, vector: usize, most: usize, repeats: usize) -> Self {
        let (vectors, threads) = (len.div_ceil(vector), rayon::current_num_threads());
        // vectors that a thread works through, and one for what each strip costs besides
        let time = |width: usize| (repeats * vectors.div_ceil(width)).div_ceil(threads) * (width + 1);
        let width = (1..=most).rev().min_by_key(|&width| time(width)).unwrap_or(most) * vector;
        Self { len, width, count: len.div_ceil(width) }
    }

    fn range(&self, strip: usize) -> (usize, usize) {
        let from = strip * self.width;
        (from, self.width.min(self.len - from))
    }
}

/// One tile times one strip of X.
struct TileJob<'a, X> {
    tile: &'a Tile,
    first_row: usize,
    x: &'a X,
    /// Rows of X under the tile.
    columns: std::ops::Range<usize>,
    item: usize,
    from: usize,
    width: usize,
    start: SumStart<'a>,
    y: &'a Output<'a>,
    storage: StripFormat,
    /// Room for the strip of X.
    strip: &'a mut [f32],
}

impl<X: Columns> WithSimd for TileJob<'_, X> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match (self.storage, self.width.div_ceil(self.storage.columns(S::F32_LANES))) {
            (StripFormat::F32, 1) => self.run::<S, 1, 1>(simd),
            (StripFormat::F32, 2) => self.run::<S, 2, 1>(simd),
            (StripFormat::F32, 3) => self.run::<S, 3, 1>(simd),
            (StripFormat::F32, 4) => self.run::<S, 4, 1>(simd),
            (StripFormat::F32, 5) => self.run::<S, 5, 1>(simd),
            (StripFormat::F32, 6) => self.run::<S, 6, 1>(simd),
            (StripFormat::Bf16, 1) => self.run::<S, 1, 2>(simd),
            (StripFormat::Bf16, 2) => self.run::<S, 2, 2>(simd),
            (StripFormat::Bf16, 3) => self.run::<S, 3, 2>(simd),
            (StripFormat::Bf16, 4) => self.run::<S, 4, 2>(simd),
            (_, vectors) => unreachable!("a strip of {vectors} vectors"),
        }
    }
}

/// Rows of X rounded together.
const ROUNDED_ROWS: usize = 16;

/// V vectors of the strip with P columns in each lane.
impl<X: Columns> TileJob<'_, X> {
    #[inline(always)]
    fn run<S: Simd, const V: usize, const P: usize>(mut self, simd: S) {
        match self.storage {
            StripFormat::F32 => self.copy_strip(V * S::F32_LANES),
            StripFormat::Bf16 => self.round_strip::<S, V>(),
        }
        self.multiply_rows::<S, V, P>(simd);
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

    /// Rounds the strip of X: the word in lane i of vector v holds columns i of vectors 2v and 2v + 1.
    #[inline(always)]
    fn round_strip<S: Simd, const V: usize>(&mut self) {
        let lanes = S::F32_LANES;
        let mut lines = [0.0; ROUNDED_ROWS * MAX_ROUNDED];
        let lines = &mut lines[..ROUNDED_ROWS * 2 * V * lanes];
        for first in self.columns.clone().step_by(ROUNDED_ROWS) {
            let rows = first..self.columns.end.min(first + ROUNDED_ROWS);
            self.x.fill_rows(self.item, rows.clone(), self.from, self.width, lines, 2 * V * lanes);
            let words = &mut self.strip[(first - self.columns.start) * V * lanes..][..rows.len() * V * lanes];
            if lanes == LANES {
                dispatch(Round { lines, words });
            } else {
                for (words, values) in words.chunks_exact_mut(lanes).zip(lines.chunks_exact(2 * lanes)) {
                    for i in 0..lanes {
                        words[i] = f32::from_bits(pair(values[i], values[lanes + i]));
                    }
                }
            }
        }
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    fn multiply_rows<S: Simd, const V: usize, const P: usize>(&self, simd: S) {
        let (lanes, vectors) = (S::F32_LANES, self.strip.as_ptr().cast::<S::f32s>());
        let [sixteen, upper] = [16, 0xFFFF_0000].map(|word| simd.splat_u32s(word));
        let Tile { start, column, value, .. } = self.tile;
        assert!(self.strip.len() >= self.columns.len() * V * lanes && column.len() == value.len());
        for row in 0..self.tile.rows() {
            // SAFETY: `multiply` has checked that Y has the items of X, the rows of all tiles and the columns of X; a
            // strip ends within these. Units of work differ in item, strip or row block, so no other thread uses this
            // piece of this row.
            let out = unsafe { self.y.row(self.item, self.first_row + row, self.from, self.width) };
            let mut sums = [[simd.splat_f32s(0.0); P]; V];
            match self.start {
                SumStart::Zero => {}
                SumStart::Bias(bias) => sums = [[simd.splat_f32s(bias[self.first_row + row]); P]; V],
                SumStart::Accumulate => load(simd, out, sums.as_flattened_mut()),
            }
            let range = start[row] as usize..start[row + 1] as usize;
            for (&column, &weight) in column[range.clone()].iter().zip(&value[range]) {
                debug_assert!(usize::from(column) < self.columns.len());
                let weight = simd.splat_f32s(weight);
                for (v, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: columns of a tile are below the rows of X under it, each V vectors long in `strip`
                    // (asserted above).
                    let x = unsafe { *vectors.add(usize::from(column) * V + v) };
                    if P == 1 {
                        sums[0] = simd.mul_add_e_f32s(weight, x, sums[0]);
                    } else {
                        let words = simd.transmute_u32s_f32s(x);
                        let first = simd.transmute_f32s_u32s(simd.wrapping_dyn_shl_u32s(words, sixteen));
                        let second = simd.transmute_f32s_u32s(simd.and_u32s(words, upper));
                        sums[0] = simd.mul_add_e_f32s(weight, first, sums[0]);
                        sums[1] = simd.mul_add_e_f32s(weight, second, sums[1]);
                    }
                }
            }
            store(simd, sums.as_flattened(), out);
        }
    }
}

/// Rounds vectors two by two into one of words.
struct Round<'a> {
    lines: &'a [f32],
    words: &'a mut [f32],
}

impl Work for Round<'_> {
    #[inline(always)]
    fn run<L: lanes::Lanes>(self, lanes: L) {
        let words = bytemuck::cast_slice_mut::<f32, u32>(self.words).as_chunks_mut::<LANES>().0;
        for (words, values) in words.iter_mut().zip(self.lines.as_chunks::<LANES>().0.as_chunks::<2>().0) {
            lanes.store_pairs(lanes.load(&values[0]), lanes.load(&values[1]), words);
        }
    }
}

/// The most columns of a rounded strip: 4 vectors of 16 words.
const MAX_ROUNDED: usize = 128;

/// Fills vectors from a slice that may end inside one of them.
// Every index into the vectors is a constant after unrolling, which keeps them in registers.
#[inline(always)]
pub(super) fn load<S: Simd>(simd: S, from: &[f32], vectors: &mut [S::f32s]) {
    let (whole, rest) = S::as_simd_f32s(from);
    for (v, vector) in vectors.iter_mut().enumerate() {
        if v < whole.len() {
            *vector = whole[v];
        } else if v == whole.len() {
            *vector = simd.partial_load_f32s(rest);
        }
    }
}

/// The reverse of [`load`].
#[inline(always)]
pub(super) fn store<S: Simd>(simd: S, vectors: &[S::f32s], to: &mut [f32]) {
    let (whole, rest) = S::as_mut_simd_f32s(to);
    for (v, &vector) in vectors.iter().enumerate() {
        if v < whole.len() {
            whole[v] = vector;
        } else if v == whole.len() {
            simd.partial_store_f32s(rest, vector);
        }
    }
}
