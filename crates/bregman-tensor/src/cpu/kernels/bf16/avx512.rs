//! AVX-512-BF16: `vdpbf16ps` adds the products of two bf16 pairs to each of 16 f32.
//!
//! Eight rows × three tile columns of sums stay in 24 registers; per pair of k, three loads of the right operand and eight broadcasts
//! of the left one feed 24 multiplications.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::kernel::{Lines, MAX_COLUMNS, Sums};
use super::tile::SIDE;

/// Rows of sums in registers.
const ROWS: usize = 8;

/// Whether the CPU has it.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16")
}

/// Sums of one tile row and at most three tile columns.
pub(super) fn multiply(left: Lines, right: Lines, sums: &mut Sums) {
    assert!(available() && left.count() == 1 && right.count() <= MAX_COLUMNS);
    for first in (0..SIDE).step_by(ROWS) {
        // SAFETY: the CPU has the features.
        unsafe {
            match right.count() {
                1 => half::<1>(left, right, first, sums),
                2 => half::<2>(left, right, first, sums),
                _ => half::<3>(left, right, first, sums),
            }
        }
    }
}

/// Rows `first .. first + ROWS` of N tile columns.
#[target_feature(enable = "avx512f,avx512bf16")]
fn half<const N: usize>(left: Lines, right: Lines, first: usize, sums: &mut Sums) {
    let left = left.line(0);
    let right: [_; N] = std::array::from_fn(|column| right.line(column));
    let mut sum = [[_mm512_setzero_ps(); N]; ROWS];
    assert!(right.iter().all(|tiles| tiles.len() == left.len()), "operands of different depth");
    for (k, tile) in left.iter().enumerate() {
        let rows = &tile.0[first..first + ROWS];
        for pair in 0..16 {
            let columns: [__m512bh; N] = std::array::from_fn(|column| {
                // SAFETY: k is inside, as just asserted; 16 aligned words of 32 bits are one vector of 32 bf16.
                unsafe { std::mem::transmute(_mm512_load_si512(right[column].get_unchecked(k).0[pair].as_ptr().cast())) }
            });
            for (sum, row) in sum.iter_mut().zip(rows) {
                // SAFETY: 16 copies of a word are one vector of 32 bf16.
                let pairs: __m512bh = unsafe { std::mem::transmute(_mm512_set1_epi32(row[pair] as i32)) };
                for (sum, columns) in sum.iter_mut().zip(columns) {
                    *sum = _mm512_dpbf16_ps(*sum, pairs, columns);
                }
            }
        }
    }
    for (row, sum) in sum.iter().enumerate() {
        for (column, sum) in sum.iter().enumerate() {
            let out = &mut sums.0[first + row][SIDE * column..SIDE * (column + 1)];
            // SAFETY: `out` has 16 elements.
            unsafe { _mm512_storeu_ps(out.as_mut_ptr(), *sum) };
        }
    }
}
