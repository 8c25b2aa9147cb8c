//! Rows of non-zeros.

use pulp::Simd;

use super::{BLOCK, Job};

/// Non-zeros row by row: columns and values of row r from `starts[r]` to `starts[r + 1]`.
pub(super) struct Sparse {
    starts: Vec<u32>,
    columns: Vec<u32>,
    values: Vec<f32>,
}

impl Sparse {
    pub(super) fn new(rows: usize) -> Self {
        let mut starts = Vec::with_capacity(rows + 1);
        starts.push(0);
        Self { starts, columns: Vec::new(), values: Vec::new() }
    }

    /// The next non-zero; rows rise.
    #[inline]
    pub(super) fn push(&mut self, row: usize, column: u32, value: f32) {
        while self.starts.len() <= row {
            self.starts.push(self.columns.len() as u32);
        }
        self.columns.push(column);
        self.values.push(value);
    }

    /// No more will come.
    pub(super) fn finish(&mut self) {
        self.starts.resize(self.starts.capacity(), self.columns.len() as u32);
        self.columns.shrink_to_fit();
        self.values.shrink_to_fit();
    }

    pub(super) fn live(&self) -> usize {
        self.values.len()
    }

    pub(super) fn columns(&self) -> &[u32] {
        &self.columns
    }

    pub(super) fn row(&self, row: usize) -> impl Iterator<Item = (usize, f32)> + '_ {
        let range = self.starts[row] as usize..self.starts[row + 1] as usize;
        self.columns[range.clone()].iter().zip(&self.values[range]).map(|(&column, &value)| (column as usize, value))
    }

    pub(super) fn bytes(&self) -> usize {
        4 * (self.starts.len() + self.columns.len() + self.values.len())
    }

    /// Row `row` times x, in four sums so that no addition waits for the one before.
    ///
    /// # Panics
    /// If x is shorter than the row.
    pub(super) fn dot(&self, row: usize, x: &[f32]) -> f32 {
        let range = self.starts[row] as usize..self.starts[row + 1] as usize;
        let (columns, values) = (self.columns[range.clone()].as_chunks::<4>(), self.values[range].as_chunks::<4>());
        let mut sums = [0f32; 4];
        for (columns, values) in columns.0.iter().zip(values.0) {
            for i in 0..4 {
                sums[i] += values[i] * x[columns[i] as usize];
            }
        }
        let rest: f32 = columns.1.iter().zip(values.1).map(|(&column, value)| value * x[column as usize]).sum();
        (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest
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
        for row in job.rows.clone() {
            let range = self.starts[row] as usize..self.starts[row + 1] as usize;
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
