//! The transpose of a matrix.

use pulp::Arch;

/// `y[column · y_pitch + row] = x[row · x_pitch + column]`
///
/// # Panics
/// If a matrix does not lie within its slice.
pub(super) fn transpose(
    arch: Arch,
    [rows, columns]: [usize; 2],
    x: &[f32],
    x_pitch: usize,
    y: &mut [f32],
    y_pitch: usize,
) {
    if rows == 0 || columns == 0 {
        return;
    }
    assert!(x.len() >= (rows - 1) * x_pitch + columns, "the matrix is larger than its memory");
    assert!(y.len() >= (columns - 1) * y_pitch + rows, "there is no room for the matrix");
    let whole = squares(arch, [rows, columns], x, x_pitch, y, y_pitch);
    for row in 0..rows {
        for column in if row < whole[0] { whole[1] } else { 0 }..columns {
            y[column * y_pitch + row] = x[row * x_pitch + column];
        }
    }
}

/// Transposes whole squares of 8 × 8, where the CPU has instructions for it, and gives the rows and columns they cover.
#[cfg(target_arch = "x86_64")]
fn squares(
    arch: Arch,
    [rows, columns]: [usize; 2],
    x: &[f32],
    x_pitch: usize,
    y: &mut [f32],
    y_pitch: usize,
) -> [usize; 2] {
    if matches!(arch, Arch::Scalar) {
        return [0; 2];
    }
    let whole = [rows, columns].map(|count| count / 8 * 8);
    // SAFETY: every other level of x86 has AVX, and both matrices lie within their slices, as `transpose` has checked.
    unsafe { x86::squares(whole, x.as_ptr(), x_pitch, y.as_mut_ptr(), y_pitch) };
    whole
}

#[cfg(not(target_arch = "x86_64"))]
fn squares(_: Arch, _: [usize; 2], _: &[f32], _: usize, _: &mut [f32], _: usize) -> [usize; 2] {
    [0; 2]
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// # Safety
    /// The CPU has AVX; both matrices lie in memory that may be used, and nothing else uses y.
    #[target_feature(enable = "avx")]
    pub(super) unsafe fn squares(
        [rows, columns]: [usize; 2],
        x: *const f32,
        x_pitch: usize,
        y: *mut f32,
        y_pitch: usize,
    ) {
        for column in (0..columns).step_by(8) {
            for row in (0..rows).step_by(8) {
                // SAFETY: a square of the matrices.
                unsafe { square(x.add(row * x_pitch + column), x_pitch, y.add(column * y_pitch + row), y_pitch) };
            }
        }
    }

    /// # Safety
    /// As [`squares`].
    #[inline]
    #[target_feature(enable = "avx")]
    unsafe fn square(x: *const f32, x_pitch: usize, y: *mut f32, y_pitch: usize) {
        // SAFETY: eight numbers of each of eight rows.
        let row = |row: usize| unsafe { _mm256_loadu_ps(x.add(row * x_pitch)) };
        // pairs of rows, then fours of them, each in both halves of the vectors; then halves change places
        let pair = |a: __m256, b: __m256| [_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)];
        let four = |[a, b]: [__m256; 2], [c, d]: [__m256; 2]| {
            [
                _mm256_shuffle_ps::<0b01_00_01_00>(a, c),
                _mm256_shuffle_ps::<0b11_10_11_10>(a, c),
                _mm256_shuffle_ps::<0b01_00_01_00>(b, d),
                _mm256_shuffle_ps::<0b11_10_11_10>(b, d),
            ]
        };
        let upper = four(pair(row(0), row(1)), pair(row(2), row(3)));
        let lower = four(pair(row(4), row(5)), pair(row(6), row(7)));
        for i in 0..4 {
            let halves = [
                _mm256_permute2f128_ps::<0x20>(upper[i], lower[i]),
                _mm256_permute2f128_ps::<0x31>(upper[i], lower[i]),
            ];
            for (half, vector) in halves.into_iter().enumerate() {
                // SAFETY: eight numbers of each of eight rows.
                unsafe { _mm256_storeu_ps(y.add((4 * half + i) * y_pitch), vector) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Instructions;

    #[test]
    fn rows_become_columns() {
        let x: Vec<f32> = (0..5000).map(|i| i as f32).collect();
        for arch in Instructions::available().into_iter().filter_map(Instructions::arch) {
            for shape @ [rows, columns] in [[1, 1], [16, 300], [8, 16], [3, 40], [17, 9], [16, 7]] {
                let (x_pitch, y_pitch) = (columns + 5, rows + 3);
                let mut y = vec![-1.0; columns * y_pitch];
                transpose(arch, shape, &x, x_pitch, &mut y, y_pitch);
                for (at, &value) in y.iter().enumerate() {
                    let (column, row) = (at / y_pitch, at % y_pitch);
                    let expected = if row < rows { x[row * x_pitch + column] } else { -1.0 };
                    assert_eq!(value, expected, "{shape:?} at row {row}, column {column}");
                }
            }
        }
    }
}
