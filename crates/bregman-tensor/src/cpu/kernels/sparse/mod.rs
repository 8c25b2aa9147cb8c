//! Sparse weights: a compressed copy of W for Y = W·X and of Wᵀ for dX = Wᵀ·dY, refreshed after every optimizer step.
//!
//! ```
//! use bregman_tensor::kernels::{columns::Plain, output::{Output, SumStart}, sparse::SparseMatrix};
//!
//! let weights = [0.0, 2.0, 0.0,   0.0, 0.0, -1.0]; // 2 × 3
//! let mut w = SparseMatrix::new(2, 3, 1);
//! w.refresh(&weights, 3); // row stride 3; after each optimizer step; allocates nothing in steady state
//!
//! let x = [1.0, 2.0,   3.0, 4.0,   5.0, 6.0]; // 1 item, 3 rows, 2 frames
//! let mut y = [0.0; 4];
//! w.multiply(&Plain::new(&x, 1, 3, 2), SumStart::Zero, &Output::new(&mut y, 1, 2, 2));
//! assert_eq!(y, [6.0, 8.0, -5.0, -6.0]);
//! ```
//!
//! A convolution with k taps is the same product on shifted rows: weights `[out, in, k]` (PyTorch's layout) go in as
//! they are with `taps = k`, and X is a [`TapWindow`](super::columns::TapWindow) view. The input
//! gradient is [`multiply_transposed`](SparseMatrix::multiply_transposed) with the `backward` view of dY.
//!
//! Each output element is one sum in a fixed order on one thread, so results do not depend on the number of threads.

mod dots;
#[cfg(target_arch = "x86_64")]
mod dots_avx512;
mod padded;
mod product;
mod sampled;
mod tile;

use std::ops::Range;

use bregman_base::{Buffer, simd};
use pulp::Arch;
use rayon::prelude::*;

use super::columns::{Columns, Geometry, Plain, TapWindow};
use super::lines::{Gathered, Padded};
use super::output::{Output, SumStart};
use dots::Dots;
use product::{Grid, StripFormat};
use tile::Tile;

/// Columns per tile: the slice of X that a tile multiplies stays in the second-level cache (1024 rows × 96 columns × 4
/// B).
const TILE_COLUMNS: usize = 1024;

/// A weight matrix `[rows, channels, taps]` with most entries zero, as compressed tiles in both orientations.
#[derive(Clone, Debug)]
pub struct SparseMatrix {
    rows: usize,
    channels: usize,
    taps: usize,
    /// Whether an entry counts though it is zero: entries are those of a mask.
    keeps_zeros: bool,
    row_blocks: Blocks,
    channel_blocks: Blocks,
    /// W: tile `(row block, channel block)` at `row block · channel blocks + channel block`.
    forward: Vec<Tile>,
    /// Wᵀ: tile `(channel block, row block)` in the same place as its transpose in `forward`.
    backward: Vec<Tile>,
}

/// A tile's part of a row of a dense matrix.
type RowOfTile<'a, 'b> = dyn Fn(&'a [f32], usize) -> &'a [f32] + Sync + 'b;

/// `total` split into equal blocks.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    total: usize,
    size: usize,
}

impl Blocks {
    /// As few as possible with at most `most` each.
    fn new(total: usize, most: usize) -> Self {
        let count = total.div_ceil(most.max(1)).max(1);
        Self { total, size: total.div_ceil(count).max(1) }
    }

    fn count(self) -> usize {
        self.total.div_ceil(self.size).max(1)
    }

    fn range(self, block: usize) -> Range<usize> {
        block * self.size..((block + 1) * self.size).min(self.total)
    }
}

impl SparseMatrix {
    /// An all-zero matrix of `rows × (channels·taps)`.
    ///
    /// # Panics
    /// If `taps` is 0 or exceeds the columns of a tile.
    pub fn new(rows: usize, channels: usize, taps: usize) -> Self {
        assert!((1..=TILE_COLUMNS).contains(&taps), "{taps} taps: 1 to {TILE_COLUMNS} are possible");
        let [row_blocks, channel_blocks] = [rows, channels].map(|total| Blocks::new(total, TILE_COLUMNS / taps));
        let tiles = vec![Tile::default(); row_blocks.count() * channel_blocks.count()];
        let (forward, backward) = (tiles.clone(), tiles);
        let mut matrix =
            Self { rows, channels, taps, keeps_zeros: false, row_blocks, channel_blocks, forward, backward };
        matrix.refresh(&vec![0.0; rows * channels * taps], channels * taps);
        matrix
    }

    /// Rows of W.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of W: channels × taps.
    pub fn columns(&self) -> usize {
        self.channels * self.taps
    }

    /// Non-zero weights at the last refresh.
    pub fn nnz(&self) -> usize {
        self.forward.iter().map(Tile::nnz).sum()
    }

    /// Takes over the non-zeros of the dense `weights` (`[rows, channels, taps]`, rows `stride` apart).
    ///
    /// One pass over the weights, then one over the non-zeros; parallel over tiles.
    ///
    /// # Panics
    /// If the last row is outside `weights`.
    pub fn refresh(&mut self, weights: &[f32], stride: usize) {
        self.compress(weights, weights, stride);
        self.keeps_zeros = false;
    }

    /// As [`refresh`](Self::refresh), but the entries are where `mask` is not zero, whatever the weights are there: a
    /// weight that may grow has a gradient before it has a value.
    ///
    /// # Panics
    /// If the last row is outside `weights` or `mask`.
    pub fn refresh_masked(&mut self, weights: &[f32], mask: &[f32], stride: usize) {
        self.compress(weights, mask, stride);
        self.keeps_zeros = true;
    }

    fn compress<'a>(&mut self, weights: &'a [f32], support: &'a [f32], stride: usize) {
        let taps = self.taps;
        self.check_rows(support, stride);
        self.update(weights, stride, |tile, transposed, rows, row, channels| {
            tile.compress(rows.map(|at| [row(weights, at), row(support, at)]));
            transposed.transpose_from(tile, channels, taps);
        });
    }

    /// As [`refresh`](Self::refresh) where every weight that was zero then still is: one pass over the entries, whose
    /// places stay. A weight that has become zero stays an entry.
    ///
    /// # Panics
    /// If the last row is outside `weights`.
    pub fn refresh_values(&mut self, weights: &[f32], stride: usize) {
        self.update(weights, stride, |tile, transposed, _, row, _| {
            tile.take_values(|at| row(weights, at));
            transposed.transpose_values(tile);
        });
    }

    /// Entries that are not zero now: after [`SparseMatrix::refresh_values`] perhaps fewer than are stored. Those of a
    /// mask all count.
    pub fn live(&self) -> usize {
        if self.keeps_zeros {
            return self.nnz();
        }
        self.forward.par_iter().map(|tile| tile.value.iter().filter(|value| **value != 0.0).count()).sum()
    }

    /// Calls `work(tile, its transpose, how many rows it has, its part of a row of a matrix, its channels)` for every
    /// tile.
    fn update<'a>(
        &mut self,
        weights: &'a [f32],
        stride: usize,
        work: impl Fn(&mut Tile, &mut Tile, Range<usize>, &RowOfTile<'a, '_>, usize) + Sync,
    ) {
        self.check_rows(weights, stride);
        let (taps, row_blocks, channel_blocks) = (self.taps, self.row_blocks, self.channel_blocks);
        self.forward.par_iter_mut().zip(&mut self.backward).enumerate().for_each(|(index, (tile, transposed))| {
            let rows = row_blocks.range(index / channel_blocks.count());
            let channels = channel_blocks.range(index % channel_blocks.count());
            let first = rows.start;
            let row =
                |of: &'a [f32], at: usize| &of[(first + at) * stride..][channels.start * taps..channels.end * taps];
            work(tile, transposed, 0..rows.len(), &row, channels.len());
        });
    }

    fn check_rows(&self, values: &[f32], stride: usize) {
        let (rows, columns) = (self.rows, self.columns());
        assert!(
            rows == 0 || values.len() >= (rows - 1) * stride + columns && stride >= columns,
            "{} weights with stride {stride} for a {rows} × {columns} matrix",
            values.len(),
        );
    }

    /// Y = W · X, for every item of the batch.
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub fn multiply(&self, x: &impl Columns, start: SumStart, y: &Output) {
        self.forward(simd::arch(), StripFormat::F32, x, start, y);
    }

    /// Y = W · X with X rounded to bf16, which is up to twice as fast; weights and sums are f32.
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub fn multiply_rounded(&self, x: &impl Columns, start: SumStart, y: &Output) {
        self.forward(simd::arch(), StripFormat::Bf16, x, start, y);
    }

    /// dX = Wᵀ · dY: the matrix `[channels, rows·taps]` times X, for every item of the batch.
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub fn multiply_transposed(&self, x: &impl Columns, start: SumStart, y: &Output) {
        self.backward(simd::arch(), StripFormat::F32, x, start, y);
    }

    /// dX = Wᵀ · dY with dY rounded to bf16.
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub fn multiply_transposed_rounded(&self, x: &impl Columns, start: SumStart, y: &Output) {
        self.backward(simd::arch(), StripFormat::Bf16, x, start, y);
    }

    /// dW = dY · X̃ᵀ where there are entries that are not zero, summed over the items, and 0 elsewhere; `rounded`: both
    /// operands to bf16. Without a geometry the layer is pointwise. `sums` is memory to keep for the next call.
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub fn gradient(
        &self,
        geometry: Option<&Geometry>,
        x: &Plain,
        dy: &Plain,
        rounded: bool,
        sums: &mut Buffer,
        dw: &Output,
    ) {
        self.sampled(Dots::best(rounded), geometry, x, dy, sums, dw);
    }

    fn sampled(&self, dots: Dots, geometry: Option<&Geometry>, x: &Plain, dy: &Plain, sums: &mut Buffer, dw: &Output) {
        let taps = self.taps;
        match geometry.map(|geometry| (Padded::forward(*x, geometry), geometry)) {
            None => sampled::gradient(dots, self, &Gathered { source: x, taps }, dy, sums, dw),
            Some((Some(padded), _)) => sampled::gradient(dots, self, &padded, dy, sums, dw),
            Some((None, geometry)) => {
                let source = TapWindow::forward(*x, geometry);
                sampled::gradient(dots, self, &Gathered { source: &source, taps }, dy, sums, dw);
            }
        }
    }

    /// Y = W ∗ X for a convolution of this geometry; `rounded`: X to bf16. The same sums as
    /// [`multiply`](Self::multiply) with a [`TapWindow`] gives, faster where there is no stride.
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub fn convolve(&self, geometry: &Geometry, x: &Plain, rounded: bool, start: SumStart, y: &Output) {
        let (arch, format) = (simd::arch(), StripFormat::of(rounded));
        match Padded::forward(*x, geometry) {
            Some(lines) => padded::multiply(arch, format, &self.forward_grid(), &lines, start, y),
            None => self.forward(arch, format, &TapWindow::forward(*x, geometry), start, y),
        }
    }

    /// dX = Wᵀ ∗ dY, the input gradient of [`convolve`](Self::convolve).
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub fn convolve_transposed(&self, geometry: &Geometry, dy: &Plain, rounded: bool, start: SumStart, dx: &Output) {
        let (arch, format) = (simd::arch(), StripFormat::of(rounded));
        match Padded::backward(*dy, geometry) {
            Some(lines) => padded::multiply(arch, format, &self.backward_grid(), &lines, start, dx),
            None => self.backward(arch, format, &TapWindow::backward(*dy, geometry), start, dx),
        }
    }

    fn forward(&self, arch: Arch, storage: StripFormat, x: &impl Columns, start: SumStart, y: &Output) {
        product::multiply(arch, storage, &self.forward_grid(), x, start, y);
    }

    fn backward(&self, arch: Arch, storage: StripFormat, x: &impl Columns, start: SumStart, y: &Output) {
        product::multiply(arch, storage, &self.backward_grid(), x, start, y);
    }

    fn forward_grid<'a>(&'a self) -> Grid<impl Fn(usize, usize) -> &'a Tile + Sync> {
        let tile = |row: usize, inner: usize| &self.forward[row * self.channel_blocks.count() + inner];
        Grid { rows: self.row_blocks, inner: self.channel_blocks, taps: self.taps, tile }
    }

    fn backward_grid<'a>(&'a self) -> Grid<impl Fn(usize, usize) -> &'a Tile + Sync> {
        let tile = |row: usize, inner: usize| &self.backward[inner * self.channel_blocks.count() + row];
        Grid { rows: self.channel_blocks, inner: self.row_blocks, taps: self.taps, tile }
    }
}

#[cfg(test)]
mod gradient_tests;
#[cfg(test)]
mod tests;
