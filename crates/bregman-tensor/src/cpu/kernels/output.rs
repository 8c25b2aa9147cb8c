//! Where a product goes: Y[rows × len] per batch item, with leading dimensions, and what it starts from.

use bregman_base::Disjoint;

/// What the sum starts from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SumStart<'a> {
    /// Y = W·X.
    Zero,
    /// Y = W·X + b, one value per row.
    Bias(&'a [f32]),
    /// Y += W·X.
    Accumulate,
}

impl SumStart<'_> {
    /// `out = start + sums`, part of the given row.
    #[inline(always)]
    pub(super) fn finish(&self, row: usize, out: &mut [f32], sums: &[f32]) {
        match self {
            SumStart::Zero => out.copy_from_slice(sums),
            SumStart::Bias(bias) => out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum + bias[row]),
            SumStart::Accumulate => out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum),
        }
    }
}

/// A result that kernels on several threads write piece by piece.
pub(crate) trait Results: Sync {
    /// `[items, rows, len]`.
    fn shape(&self) -> [usize; 3];

    /// `Y[item][row, from ..] = start + sums`
    ///
    /// # Safety
    /// `item`, `row` and `from + sums.len()` are within the shape, and no other thread uses that piece meanwhile.
    #[allow(unsafe_code)]
    unsafe fn finish(&self, item: usize, row: usize, from: usize, start: SumStart, sums: &[f32]);
}

/// A mutable batch of `rows × len` matrices: element `(i, r, t)` at `i·item_stride + r·stride + t`.
///
/// Kernels on several threads write disjoint pieces of it.
#[derive(Debug)]
pub struct Output<'a> {
    values: Disjoint<'a>,
    items: usize,
    rows: usize,
    len: usize,
    stride: usize,
    item_stride: usize,
}

impl<'a> Output<'a> {
    /// Contiguous `[items, rows, len]`.
    pub fn new(data: &'a mut [f32], items: usize, rows: usize, len: usize) -> Self {
        Self::strided(data, [items, rows, len], len, rows * len)
    }

    /// A view with its own leading dimensions, e.g. some channels of a wider tensor.
    ///
    /// # Panics
    /// If the last element is outside `data`, or rows or items overlap.
    pub fn strided(data: &'a mut [f32], [items, rows, len]: [usize; 3], stride: usize, item_stride: usize) -> Self {
        if items * rows * len > 0 {
            let last = (items - 1) * item_stride + (rows - 1) * stride + len;
            assert!(
                last <= data.len(),
                "an output of [{items}, {rows}, {len}] with strides {item_stride}, {stride} needs {last} elements, the \
                 slice has {}",
                data.len()
            );
            // One of the two axes is nested inside the other: [items, rows, len] or [rows, items, len] in memory.
            let nested = |inner: usize, inner_stride: usize, outer: usize, outer_stride: usize| {
                (inner == 1 || inner_stride >= len) && (outer == 1 || outer_stride >= (inner - 1) * inner_stride + len)
            };
            assert!(
                nested(rows, stride, items, item_stride) || nested(items, item_stride, rows, stride),
                "rows of the output overlap"
            );
        }
        Self { values: Disjoint::new(data), items, rows, len, stride, item_stride }
    }

    /// `[items, rows, len]`.
    pub fn shape(&self) -> [usize; 3] {
        [self.items, self.rows, self.len]
    }

    /// Part of one row, for a kernel to write.
    ///
    /// # Safety
    /// `item`, `row` and `from + len` are within the shape, else the slice is part of another row. While it is in use,
    /// no slice of this output that overlaps it may be in use.
    ///
    /// # Panics
    /// If the slice ends outside of the memory of this output.
    #[inline(always)]
    #[allow(unsafe_code, clippy::mut_from_ref)]
    pub(crate) unsafe fn row(&self, item: usize, row: usize, from: usize, len: usize) -> &mut [f32] {
        debug_assert!(item < self.items && row < self.rows && from + len <= self.len);
        // SAFETY: rows do not overlap (checked in `strided`), and nobody else uses this piece of one by the caller's
        // promise.
        unsafe { self.values.part(item * self.item_stride + row * self.stride + from, len) }
    }
}

impl Results for Output<'_> {
    fn shape(&self) -> [usize; 3] {
        self.shape()
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn finish(&self, item: usize, row: usize, from: usize, start: SumStart, sums: &[f32]) {
        // SAFETY: by this function's contract.
        let out = unsafe { self.row(item, row, from, sums.len()) };
        let (pieces, rest) = out.as_chunks_mut::<16>();
        let (sums, rest_sums) = sums.as_chunks::<16>();
        // whole vectors go through registers of a constant size, which spares a call and a test for overlap per row
        for (piece, sums) in pieces.iter_mut().zip(sums) {
            let mut values = *piece;
            start.finish(row, &mut values, sums);
            *piece = values;
        }
        start.finish(row, rest, rest_sums);
    }
}
