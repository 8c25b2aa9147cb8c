//! Strided f32 matrix products: a safe face on `gemm`, and its split over threads.

use bregman_base::Disjoint;
use bregman_base::simd::Level;

use super::gemm::{Gemm, Operand};
use super::math::each;

/// A matrix inside a slice: element (i, j) is at `i · row + j · column`.
#[derive(Clone, Copy)]
pub(super) struct Mat<'a> {
    data: &'a [f32],
    row: usize,
    column: usize,
}

impl<'a> Mat<'a> {
    /// Rows one after another, `stride` apart.
    pub(super) fn rows(data: &'a [f32], stride: usize) -> Self {
        Self { data, row: stride, column: 1 }
    }

    /// The transpose.
    pub(super) fn t(self) -> Self {
        Self { data: self.data, row: self.column, column: self.row }
    }

    /// Without its first rows and columns.
    fn from(self, row: usize, column: usize) -> Self {
        Self { data: &self.data[row * self.row + column * self.column..], ..self }
    }

    /// One past the last element of its first `rows` × `columns`.
    fn extent(&self, rows: usize, columns: usize) -> usize {
        if rows == 0 || columns == 0 { 0 } else { (rows - 1) * self.row + (columns - 1) * self.column + 1 }
    }
}

/// A row-major matrix that several tasks fill, each its own part.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    values: Disjoint<'a>,
    stride: usize,
}

impl<'a> Target<'a> {
    /// Rows `stride` apart.
    pub(super) fn rows(data: &'a mut [f32], stride: usize) -> Self {
        Self { values: Disjoint::new(data), stride }
    }

    /// The target that starts at this element.
    pub(super) fn from(self, row: usize, column: usize) -> Self {
        Self { values: self.values.tail(row * self.stride + column), ..self }
    }

    /// Replaces one element.
    ///
    /// # Safety
    /// As for [`Target::row`].
    pub(super) unsafe fn set(self, row: usize, value: f32) {
        // SAFETY: by this function's contract.
        unsafe { self.row(row, 1)[0] = value };
    }

    /// Part of a row, to read or write directly.
    ///
    /// # Safety
    /// While the result is in use, no other task uses these elements.
    ///
    /// # Panics
    /// If it ends outside of the slice.
    pub(super) unsafe fn row(self, row: usize, len: usize) -> &'a mut [f32] {
        // SAFETY: by this function's contract.
        unsafe { self.values.part(row * self.stride, len) }
    }
}

/// Whether a product replaces its target or adds to it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Into {
    Replace,
    Add,
}

/// `target (m × n) ← a (m × k) · b (k × n)` on this thread.
///
/// # Safety
/// No other task uses the first m rows and n columns of `target` meanwhile.
pub(super) unsafe fn product(size: [usize; 3], a: Mat, b: Mat, into: Into, target: Target) {
    // SAFETY: by this function's contract.
    unsafe { product_at(Level::best(), size, a, b, into, target) }
}

/// [`product`] in the instructions of a level.
///
/// # Safety
/// As for [`product`], and the level is usable.
unsafe fn product_at(level: Level, [m, n, k]: [usize; 3], a: Mat, b: Mat, into: Into, target: Target) {
    if m == 0 || n == 0 {
        return;
    }
    assert!(a.extent(m, k) <= a.data.len() && b.extent(k, n) <= b.data.len(), "matrix operand outside of its slice");
    assert!((m - 1) * target.stride + n <= target.values.len(), "matrix target outside of its slice");
    // The kernels fill columns. Where rows are contiguous, those are the columns of the transpose, bᵀ · aᵀ.
    let (m, n, a, b, column) = if target.stride > 1 { (n, m, b.t(), a.t(), target.stride) } else { (m, n, a, b, 1) };
    let operand = |Mat { data, row, column }: Mat| Operand { data: data.as_ptr(), row, column };
    let gemm = Gemm {
        size: [m, n, k],
        a: operand(a),
        b: operand(b),
        target: target.values.as_mut_ptr(),
        column,
        add: into == Into::Add,
    };
    // SAFETY: all three matrices lie inside their slices, as just checked; the target is exclusive by this function's
    // contract, and so is the level usable.
    unsafe { gemm.run(level) }
}

/// All dot products between two sets of vectors of length `k`, on this thread: `out[i][j] = a[i] · b[j]`.
///
/// # Panics
/// If `a` and `b` are not whole numbers of vectors, or `out` is not of their number by their number.
pub fn dot_products(k: usize, a: &[f32], b: &[f32], out: &mut [f32]) {
    let (m, n) = (a.len() / k, b.len() / k);
    assert!(
        a.len() == m * k && b.len() == n * k && out.len() == m * n,
        "{} and {} values of vectors of {k}",
        a.len(),
        b.len()
    );
    // SAFETY: `out` is borrowed exclusively by this call.
    unsafe { product([m, n, k], Mat::rows(a, k), Mat::rows(b, k).t(), Into::Replace, Target::rows(out, n)) }
}

/// The cut of an m × n product into one part per thread: along its columns or, when these are few, its rows.
struct Cut {
    rows: usize,
    columns: usize,
    along_columns: bool,
    size: usize,
}

impl Cut {
    fn new(rows: usize, columns: usize) -> Self {
        let threads = rayon::current_num_threads();
        let along_columns = columns >= 64 * threads;
        let (total, grain) = if along_columns { (columns, 64) } else { (rows, 16) };
        Self { rows, columns, along_columns, size: total.div_ceil(threads).next_multiple_of(grain) }
    }

    fn parts(&self) -> usize {
        if self.along_columns { self.columns } else { self.rows }.div_ceil(self.size)
    }

    /// First row, rows, first column, columns of part `i`.
    fn part(&self, i: usize) -> [usize; 4] {
        let start = i * self.size;
        if self.along_columns {
            [0, self.rows, start, self.size.min(self.columns - start)]
        } else {
            [start, self.size.min(self.rows - start), 0, self.columns]
        }
    }
}

/// `target ← a · b` over all threads.
pub(super) fn multiply([m, n, k]: [usize; 3], a: Mat, b: Mat, into: Into, target: &mut [f32], stride: usize) {
    let target = Target::rows(target, stride);
    let cut = Cut::new(m, n);
    each(cut.parts(), m * n * k, |i| {
        let [row, rows, column, columns] = cut.part(i);
        let target = target.from(row, column);
        // SAFETY: the parts do not overlap.
        unsafe { product([rows, columns, k], a.from(row, 0), b.from(0, column), into, target) }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_product_make_the_whole_for_any_layout() {
        for [m, n, k] in [[1, 1, 1], [3, 200, 5], [70, 3, 9], [17, 333, 40]] {
            let a: Vec<f32> = (0..m * k).map(|i| ((i * 7) % 11) as f32 - 5.0).collect();
            let b: Vec<f32> = (0..n * k).map(|i| ((i * 5) % 13) as f32 - 6.0).collect();
            let expected = |i: usize, j: usize| (0..k).map(|l| a[i * k + l] * b[j * k + l]).sum::<f32>();
            let mut target = vec![1.0; m * (n + 2)];
            for (into, offset) in [(Into::Add, 1.0), (Into::Replace, 0.0)] {
                multiply([m, n, k], Mat::rows(&a, k), Mat::rows(&b, k).t(), into, &mut target, n + 2);
                for i in 0..m {
                    for j in 0..n {
                        assert_eq!(target[i * (n + 2) + j], expected(i, j) + offset, "{m} {n} {k} at {i} {j}");
                    }
                }
            }
            assert!((0..m).all(|i| target[i * (n + 2) + n] == 1.0), "columns outside of the product are untouched");
        }
    }

    /// Of rows of length `k`, by the instructions of a level.
    fn dots_at(level: Level, k: usize, a: &[f32], b: &[f32]) -> Vec<f32> {
        let (m, n) = (a.len() / k, b.len() / k);
        let mut out = vec![f32::NAN; m * n];
        // SAFETY: `out` is this function's own; callers give usable levels.
        unsafe {
            product_at(
                level,
                [m, n, k],
                Mat::rows(a, k),
                Mat::rows(b, k).t(),
                Into::Replace,
                Target::rows(&mut out, n),
            );
        }
        out
    }

    fn usable() -> impl Iterator<Item = Level> {
        Level::ALL.iter().copied().filter(|level| level.is_usable())
    }

    /// From one element to several tiles of every level, with what is left over; by single rows, too, and sums so short
    /// that other kernels compute them.
    #[test]
    fn every_level_gives_the_right_product() {
        use super::super::kernels::reference::Random;

        let mut random = Random::new(7);
        for [m, n, k] in [[1, 1, 1], [1, 40, 9], [40, 1, 9], [5, 7, 2], [3, 200, 5], [70, 33, 600], [17, 130, 40]] {
            let (a, b) = (random.values(m * k, 0.1), random.values(n * k, 0.1));
            let whole = |values: &[f32]| values.iter().map(|value| (8.0 * value).round()).collect::<Vec<_>>();
            let (whole_a, whole_b) = (whole(&a), whole(&b));
            for level in usable() {
                let exact = dots_at(level, k, &whole_a, &whole_b);
                let near = dots_at(level, k, &a, &b);
                for (at, (i, j)) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).enumerate() {
                    let terms = |a: &[f32], b: &[f32]| -> Vec<f64> {
                        let pairs = a[i * k..][..k].iter().zip(&b[j * k..][..k]);
                        pairs.map(|(&a, &b)| f64::from(a) * f64::from(b)).collect()
                    };
                    let sum: f64 = terms(&whole_a, &whole_b).iter().sum();
                    assert_eq!(f64::from(exact[at]), sum, "{level:?}, {m} {n} {k} at {i} {j}");
                    let terms = terms(&a, &b);
                    // k products and k additions, each rounded, in any order
                    let bound = 2.0 * k as f64 * f64::from(f32::EPSILON) * terms.iter().map(|t| t.abs()).sum::<f64>();
                    let error = (f64::from(near[at]) - terms.iter().sum::<f64>()).abs();
                    assert!(error <= bound, "{level:?}, {m} {n} {k} at {i} {j}: off by {error:e} of {bound:e}");
                }
            }
        }
    }

    /// x² - round(x²): what rounding took away remains where multiply and add are one instruction, which SSE2 lacks.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn each_level_uses_its_own_instructions() {
        let x = 1.0 + f32::EPSILON;
        let (a, b) = ([-x * x, x, 0.0].repeat(32), [1.0, x, 0.0].repeat(32));
        let rest = x.mul_add(x, -x * x);
        assert!(rest > 0.0);
        for level in usable() {
            let expected = if level == Level::Scalar { 0.0 } else { rest };
            let dots = dots_at(level, 3, &a, &b);
            assert!(dots.iter().all(|&dot| dot == expected), "{level:?}: {dots:?}");
        }
    }
}
