//! AVX-512-BF16: `vdpbf16ps` adds the products of two bf16 pairs to each of 16 f32.
//!
//! Eight rows × three tile columns of sums stay in 24 registers; per pair of k, three loads of the right operand and
//! eight broadcasts of the left one feed 24 multiplications.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

use bregman_base::simd::Level;

use super::kernel::{Lines, MAX_COLUMNS, Sums};
use super::tile::SIDE;

/// Rows of sums in registers.
const ROWS: usize = 8;

/// Whether it may be used.
pub(super) fn available() -> bool {
    Level::Avx512Bf16.is_usable()
}

/// Sums of one tile row and at most three tile columns.
pub(super) fn multiply(left: Lines, right: Lines, mut sums: Sums) {
    assert!(available() && left.count() == 1 && right.count() <= MAX_COLUMNS && left.depth() == right.depth());
    for first in (0..SIDE).step_by(ROWS) {
        // SAFETY: the CPU has the features, and the depths agree.
        unsafe {
            match right.count() {
                1 => half::<1>(left, right, first, &mut sums),
                2 => half::<2>(left, right, first, &mut sums),
                _ => half::<3>(left, right, first, &mut sums),
            }
        }
    }
}

/// Rows `first .. first + ROWS` of N tile columns.
///
/// # Safety
/// The CPU has the features, and both operands have the same depth.
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn half<const N: usize>(left: Lines, right: Lines, first: usize, sums: &mut Sums) {
    let mut sum = [[_mm512_setzero_ps(); N]; ROWS];
    let pitch = sums.pitch();
    if sums.add {
        for column in 0..N {
            let from = sums.tile(0, column);
            for (row, sum) in sum.iter_mut().enumerate() {
                // SAFETY: `tile` holds 16 rows of 16 values, `pitch` apart.
                sum[column] = unsafe { _mm512_loadu_ps(from.as_ptr().add((first + row) * pitch)) };
            }
        }
    }
    for k in 0..left.depth() {
        let rows = left.tile(0, k).as_ptr();
        let columns: [*const u32; N] = std::array::from_fn(|column| right.tile(column, k).as_ptr());
        for pair in 0..16 {
            // SAFETY: `Lines` checked that 16 rows of 16 words follow each tile's first; 16 words are one vector of 32
            // bf16.
            let columns: [__m512bh; N] = columns.map(|column| unsafe {
                std::mem::transmute(_mm512_loadu_si512(column.add(pair * right.pitch()).cast()))
            });
            for (row, sum) in sum.iter_mut().enumerate() {
                // SAFETY: as above; 16 copies of a word are one vector of 32 bf16.
                let pairs: __m512bh = unsafe {
                    std::mem::transmute(_mm512_set1_epi32(*rows.add((first + row) * left.pitch() + pair) as i32))
                };
                for (sum, columns) in sum.iter_mut().zip(columns) {
                    *sum = _mm512_dpbf16_ps(*sum, pairs, columns);
                }
            }
        }
    }
    for column in 0..N {
        let to = sums.tile(0, column);
        for (row, sum) in sum.iter().enumerate() {
            // SAFETY: `tile` holds 16 rows of 16 values, `pitch` apart.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr().add((first + row) * pitch), sum[column]) };
        }
    }
}
