//! Rows of non-zeros.

use std::ops::Range;

use pulp::Simd;

use super::{BLOCK, Job};
use crate::Result;
use crate::file::StoredLayer;

/// How many rows before it is computed a row of y is fetched.
const AHEAD: usize = 4;

/// Non-zeros, rows in the order of their number of non-zeros: loops that end when they did before are predicted by the
/// CPU.
pub(super) struct Sparse {
    /// Which row of the matrix comes when.
    order: Vec<u32>,
    /// Of the i-th of them, columns and values from `starts[i]` to `starts[i + 1]`.
    starts: Vec<u32>,
    columns: Vec<u32>,
    values: Vec<f32>,
}

impl Sparse {
    /// Takes over those columns of a stored layer.
    pub(super) fn new(layer: &StoredLayer, columns: Range<usize>) -> Result<Self> {
        let (rows, mut ends) = (layer.spec.outputs, Vec::new());
        let mut found: (Vec<u32>, Vec<f32>) = (Vec::with_capacity(layer.live), Vec::with_capacity(layer.live));
        layer.for_each(|row, column, value| {
            ends.resize(row, found.0.len());
            if value != 0.0 && columns.contains(&column) {
                found.0.push((column - columns.start) as u32);
                found.1.push(value);
            }
        })?;
        ends.resize(rows, found.0.len());
        let range = |row: usize| if row == 0 { 0 } else { ends[row - 1] }..ends[row];
        let mut order: Vec<u32> = (0..rows as u32).collect();
        order.sort_by_key(|&row| range(row as usize).len());
        let mut sorted = Self {
            starts: Vec::with_capacity(rows + 1),
            columns: Vec::with_capacity(found.0.len()),
            values: Vec::with_capacity(found.0.len()),
            order,
        };
        sorted.starts.push(0);
        for &row in &sorted.order {
            sorted.columns.extend_from_slice(&found.0[range(row as usize)]);
            sorted.values.extend_from_slice(&found.1[range(row as usize)]);
            sorted.starts.push(sorted.columns.len() as u32);
        }
        Ok(sorted)
    }

    pub(super) fn live(&self) -> usize {
        self.values.len()
    }

    pub(super) fn columns(&self) -> &[u32] {
        &self.columns
    }

    pub(super) fn bytes(&self) -> usize {
        4 * (self.order.len() + self.starts.len() + self.columns.len() + self.values.len())
    }

    /// y += W·x, each row in four sums so that no addition waits for the one before.
    ///
    /// # Panics
    /// If x or y is too short.
    pub(super) fn add_product(&self, x: &[f32], y: &mut [f32]) {
        for (range, &row) in self.starts.windows(2).map(|ends| ends[0] as usize..ends[1] as usize).zip(&self.order) {
            let (columns, values) = (self.columns[range.clone()].as_chunks::<4>(), self.values[range].as_chunks::<4>());
            let mut sums = [0f32; 4];
            for (columns, values) in columns.0.iter().zip(values.0) {
                for ((sum, &column), value) in sums.iter_mut().zip(columns).zip(values) {
                    *sum += value * x[column as usize];
                }
            }
            let rest: f32 = columns.1.iter().zip(values.1).map(|(&column, value)| value * x[column as usize]).sum();
            y[row as usize] += (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest;
        }
    }

    #[inline(always)]
    pub(super) fn run<S: Simd>(&self, simd: S, job: &Job) {
        // As many vectors as have room for their sums in registers, and then the rest.
        let most = if S::F32_LANES >= 16 { 5 } else { 10 };
        let vectors = job.place.width.div_ceil(S::F32_LANES);
        let mut from = 0;
        while from < vectors {
            let count = (vectors - from).min(most);
            match count {
                1 => self.rows::<S, 1>(simd, job, from),
                2 => self.rows::<S, 2>(simd, job, from),
                3 => self.rows::<S, 3>(simd, job, from),
                4 => self.rows::<S, 4>(simd, job, from),
                5 => self.rows::<S, 5>(simd, job, from),
                6 => self.rows::<S, 6>(simd, job, from),
                7 => self.rows::<S, 7>(simd, job, from),
                8 => self.rows::<S, 8>(simd, job, from),
                9 => self.rows::<S, 9>(simd, job, from),
                _ => self.rows::<S, 10>(simd, job, from),
            }
            from += count;
        }
    }

    /// V vectors of every row, from vector `from` of the block.
    #[inline(always)]
    fn rows<S: Simd, const V: usize>(&self, simd: S, job: &Job, from: usize) {
        let (lanes, place) = (S::F32_LANES, job.place);
        debug_assert!((from + V) * lanes <= BLOCK);
        // SAFETY: `Weights::apply` has checked that x holds BLOCK numbers from every offset on.
        let x = unsafe { job.x.as_ptr().add(place.x + from * lanes) };
        for (i, &row) in self.order.iter().enumerate() {
            if let Some(&later) = self.order.get(i + AHEAD) {
                job.expect_row(later as usize);
            }
            let (row, range) = (row as usize, self.starts[i] as usize..self.starts[i + 1] as usize);
            let mut sums = [simd.splat_f32s(job.store.bias[row]); V];
            for (&offset, &value) in job.offsets[range.clone()].iter().zip(&self.values[range]) {
                let value = simd.splat_f32s(value);
                // SAFETY: as above; the vectors of a block end within it.
                let x = unsafe { x.add(offset as usize) };
                for (v, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: as above.
                    let x = unsafe { x.add(v * lanes).cast::<S::f32s>().read_unaligned() };
                    *sum = simd.mul_add_e_f32s(value, x, *sum);
                }
            }
            let at = place.y + row * place.pitch + from * lanes;
            // SAFETY: the caller of `Weights::apply` keeps others off this row of the block.
            let y = unsafe { job.y.part(at, V * lanes) };
            job.store.write::<S, V>(simd, row, sums, at, y);
        }
    }
}
