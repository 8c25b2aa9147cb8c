//! Several rows at a time of weights that are mostly not zero.

use std::ops::Range;

use bregman_base::lanes::nonzeros;
use pulp::Simd;

use super::job::Job;
use super::tile::Tile;
use crate::Result;
use crate::file::StoredLayer;

/// Rows that share the vectors of x.
const ROWS: usize = 5;

/// Weights `[rows / ROWS, columns, ROWS]`, the last panel filled up with zeros.
pub(super) struct Dense {
    columns: usize,
    panels: Vec<f32>,
    /// Weights that are not zero.
    live: usize,
}

impl Dense {
    pub(super) fn new(layer: &StoredLayer, columns: Range<usize>) -> Result<Self> {
        let (rows, width) = (layer.spec.outputs, columns.len());
        let mut dense = Self { columns: width, panels: vec![0.0; rows.div_ceil(ROWS) * width * ROWS], live: 0 };
        // five rows at a time, so that memory is written in order
        let mut five = vec![0.0; ROWS * width];
        let whole_rows = layer.for_each_row(|row, weights| {
            five[row % ROWS * width..][..width].copy_from_slice(&weights[columns.clone()]);
            if row % ROWS + 1 == ROWS || row + 1 == rows {
                dense.set_panel(row / ROWS, &five[..(row % ROWS + 1) * width]);
            }
        })?;
        if !whole_rows {
            layer.for_each(|row, column, value| {
                if columns.contains(&column) {
                    dense.panels[(row / ROWS * width + column - columns.start) * ROWS + row % ROWS] = value;
                }
            })?;
            dense.live = nonzeros(&dense.panels);
        }
        Ok(dense)
    }

    /// From the weights of each row in turn.
    pub(super) fn of_rows(weights: &[f32], columns: usize) -> Self {
        let rows = weights.len() / columns;
        let mut dense = Self { columns, panels: vec![0.0; rows.div_ceil(ROWS) * columns * ROWS], live: 0 };
        for (panel, rows) in weights.chunks(ROWS * columns).enumerate() {
            dense.set_panel(panel, rows);
        }
        dense
    }

    /// Up to five rows, one after the other.
    fn set_panel(&mut self, panel: usize, rows: &[f32]) {
        let to = &mut self.panels[panel * self.columns * ROWS..][..self.columns * ROWS];
        let (to, _) = to.as_chunks_mut::<ROWS>();
        if let [a, b, c, d, e] = rows.chunks_exact(self.columns).collect::<Vec<_>>()[..] {
            let rows = a.iter().zip(b).zip(c).zip(d).zip(e);
            to.iter_mut().zip(rows).for_each(|(five, ((((a, b), c), d), e))| *five = [*a, *b, *c, *d, *e]);
        } else {
            for (row, weights) in rows.chunks_exact(self.columns).enumerate() {
                to.iter_mut().zip(weights).for_each(|(five, &weight)| five[row] = weight);
            }
        }
        self.live += nonzeros(rows);
    }

    /// Weights that are not zero.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    pub(super) fn bytes(&self) -> usize {
        4 * self.panels.len()
    }

    #[inline(always)]
    pub(super) fn run<S: Simd>(&self, simd: S, job: &Job, tile: &Tile) {
        // 5 × 5 sums where there are 32 registers, 5 × 2 where there are 16; wasm mostly runs on CPUs with 16
        let most = if S::REGISTER_COUNT >= 32 && !cfg!(target_family = "wasm") { 5 } else { 2 };
        let vectors = job.place.width.div_ceil(S::F32_LANES);
        let mut from = 0;
        while from < vectors {
            let count = (vectors - from).min(most);
            match count {
                1 => self.rows::<S, 1>(simd, job, tile, from),
                2 => self.rows::<S, 2>(simd, job, tile, from),
                3 => self.rows::<S, 3>(simd, job, tile, from),
                4 => self.rows::<S, 4>(simd, job, tile, from),
                _ => self.rows::<S, 5>(simd, job, tile, from),
            }
            from += count;
        }
    }

    #[inline(always)]
    fn rows<S: Simd, const V: usize>(&self, simd: S, job: &Job, tile: &Tile, from: usize) {
        let (lanes, place) = (S::F32_LANES, job.place);
        // SAFETY: a tile has a block from every offset on.
        let x = unsafe { tile.x.add(from * lanes) };
        let offsets = &tile.offsets.expect("dense layers are not copied to a panel")[tile.columns.clone()];
        for first in (0..job.weights.rows).step_by(ROWS) {
            let (panel, _) = self.panels[first * self.columns..][..self.columns * ROWS].as_chunks::<ROWS>();
            let rows = ROWS.min(job.weights.rows - first);
            let at = |row: usize| place.y + (first + row) * place.pitch + from * lanes;
            // SAFETY: the caller of `Weights::apply` keeps others off these rows of the block; one is used at a time.
            let y = |row: usize| unsafe { job.y.part(at(row), V * lanes) };
            let mut sums: [[S::f32s; V]; ROWS] = std::array::from_fn(
                #[inline(always)]
                |row| {
                    // rows that fill up the last panel compute what its last row does
                    let row = row.min(rows - 1);
                    tile.begin::<S, V>(simd, job.epilogue.bias[first + row], y(row))
                },
            );
            for (&offset, weights) in offsets.iter().zip(&panel[tile.columns.clone()]) {
                // SAFETY: a tile has a block from every offset on, and vectors end within it.
                let x: [S::f32s; V] = std::array::from_fn(|v| unsafe {
                    x.add(offset as usize + v * lanes).cast::<S::f32s>().read_unaligned()
                });
                for (sums, &weight) in sums.iter_mut().zip(weights) {
                    let weight = simd.splat_f32s(weight);
                    for (sum, &x) in sums.iter_mut().zip(&x) {
                        *sum = simd.mul_add_e_f32s(weight, x, *sum);
                    }
                }
            }
            for (row, &sums) in sums.iter().enumerate().take(rows) {
                tile.end::<S, V>(simd, job, first + row, sums, at(row), y(row));
            }
        }
    }
}
