//! 16 positions at a time.

use std::arch::aarch64::*;
use std::arch::asm;

use super::{Rows, Sums};

/// # Safety
/// The CPU has dot products, and `rows.codes` is as its field says.
#[target_feature(enable = "neon,dotprod")]
pub(super) unsafe fn sums(rows: Rows, sums: &mut [Sums]) {
    for (i, sums) in sums.iter_mut().enumerate() {
        for from in (0..rows.width).step_by(16) {
            let mut sum = [vdupq_n_s32(0); 4];
            for (offsets, levels) in rows.fours(i) {
                let levels = vdupq_n_s32(i32::from_le_bytes(levels.map(|level| level as u8)));
                // SAFETY: as many codes as a row has sums may be read from every offset on.
                let [a, b, c, d] =
                    offsets.map(|offset| unsafe { vld1q_s8(rows.codes.add(offset as usize + from).cast()) });
                let [ab, cd] = [[a, b], [c, d]]
                    .map(|[a, b]| [vzip1q_s8(a, b), vzip2q_s8(a, b)].map(|pairs| vreinterpretq_s16_s8(pairs)));
                for half in 0..2 {
                    sum[2 * half] = dot(sum[2 * half], vzip1q_s16(ab[half], cd[half]), levels);
                    sum[2 * half + 1] = dot(sum[2 * half + 1], vzip2q_s16(ab[half], cd[half]), levels);
                }
            }
            for (v, sum) in sum.into_iter().enumerate() {
                // SAFETY: a row has sums for whole vectors of 32 codes.
                unsafe { vst1q_s32(sums.as_mut_ptr().add(from + 4 * v), sum) };
            }
        }
    }
}

/// `sdot`, for which Rust has no function yet.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn dot(mut sum: int32x4_t, codes: int16x8_t, levels: int32x4_t) -> int32x4_t {
    // SAFETY: reads and writes registers only; the caller's CPU has the instruction.
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {codes:v}.16b, {levels:v}.16b",
            sum = inout(vreg) sum,
            codes = in(vreg) codes,
            levels = in(vreg) levels,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}
