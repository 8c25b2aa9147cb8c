//! Several rows at a time of weights that are mostly not zero.

use std::ops::Range;

use bregman_base::lanes::nonzeros;
use pulp::Simd;

use super::Job;
use crate::Result;
use crate::file::StoredLayer;

/// Rows that share the vectors of x.
const ROWS: usize = 5;

/// Weights `[rows / ROWS, columns, ROWS]`, the last panel filled up with zeros.
pub(super) struct Dense {
    columns: usize,
    panels: Vec<f32>,
}

/// Whether dense is faster than sparse at this many non-zeros: a non-zero costs about as much as 2¼ weights of a dense
/// layer.
pub(super) fn pays(weights: usize, live: usize) -> bool {
    live * 9 > weights * 4
}

impl Dense {
    pub(super) fn new(layer: &StoredLayer, columns: Range<usize>) -> Result<Self> {
        let (rows, width) = (layer.spec.outputs, columns.len());
        let mut panels = vec![0.0; rows.div_ceil(ROWS) * width * ROWS];
        let whole_rows = layer.for_each_row(|row, weights| {
            let (panel, _) = panels[row / ROWS * width * ROWS..][..width * ROWS].as_chunks_mut::<ROWS>();
            panel.iter_mut().zip(&weights[columns.clone()]).for_each(|(five, &weight)| five[row % ROWS] = weight);
        })?;
        if !whole_rows {
            layer.for_each(|row, column, value| {
                if columns.contains(&column) {
                    panels[(row / ROWS * width + column - columns.start) * ROWS + row % ROWS] = value;
                }
            })?;
        }
        Ok(Self { columns: width, panels })
    }

    /// Weights that are not zero.
    pub(super) fn live(&self) -> usize {
        nonzeros(&self.panels)
    }

    pub(super) fn bytes(&self) -> usize {
        4 * self.panels.len()
    }

    #[inline(always)]
    pub(super) fn run<S: Simd>(&self, simd: S, job: &Job) {
        // 5 × 5 sums where there are 32 registers, 5 × 2 where there are 16; wasm mostly runs on CPUs with 16
        let most = if S::REGISTER_COUNT >= 32 && !cfg!(target_family = "wasm") { 5 } else { 2 };
        let vectors = job.place.width.div_ceil(S::F32_LANES);
        let mut from = 0;
        while from < vectors {
            let count = (vectors - from).min(most);
            match count {
                1 => self.rows::<S, 1>(simd, job, from),
                2 => self.rows::<S, 2>(simd, job, from),
                3 => self.rows::<S, 3>(simd, job, from),
                4 => self.rows::<S, 4>(simd, job, from),
                _ => self.rows::<S, 5>(simd, job, from),
            }
            from += count;
        }
    }

    #[inline(always)]
    fn rows<S: Simd, const V: usize>(&self, simd: S, job: &Job, from: usize) {
        let (lanes, place) = (S::F32_LANES, job.place);
        // SAFETY: `Weights::apply` has checked that x holds a block from every offset on.
        let x = unsafe { job.x.as_ptr().add(place.x + from * lanes) };
        for first in (0..job.weights.rows).step_by(ROWS) {
            let panel = &self.panels[first * self.columns..][..self.columns * ROWS];
            let mut sums = [[simd.splat_f32s(0.0); V]; ROWS];
            for (&offset, weights) in job.offsets.iter().zip(panel.as_chunks::<ROWS>().0) {
                // SAFETY: as above; the vectors of a block end within it.
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
            for row in first..(first + ROWS).min(job.weights.rows) {
                let bias = simd.splat_f32s(job.store.bias[row]);
                let sums = sums[row - first].map(|sum| simd.add_f32s(sum, bias));
                let at = place.y + row * place.pitch + from * lanes;
                // SAFETY: the caller of `Weights::apply` keeps others off this row of the block.
                let y = unsafe { job.y.part(at, V * lanes) };
                job.store.write::<S, V>(simd, row, sums, at, y);
            }
        }
    }
}
