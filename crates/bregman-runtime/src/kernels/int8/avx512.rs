//! 80 positions at a time: 64 in whole vectors, 16 from quarters.

use std::arch::x86_64::*;

use super::{Rows, Sums};

/// # Safety
/// The CPU has AVX-512 with VNNI and VBMI, and `rows.codes` is as its field says.
pub(super) unsafe fn sums(rows: Rows, sums: &mut [Sums]) {
    // SAFETY: as the caller promises.
    unsafe {
        match rows.width.div_ceil(16) {
            0 | 1 => parts::<false, 1>(rows, sums),
            2 => parts::<false, 2>(rows, sums),
            3 | 4 => parts::<true, 0>(rows, sums),
            _ => parts::<true, 1>(rows, sums),
        }
    }
}

/// Byte 4p + k of the result is byte 16k + p.
const INTERLEAVE: [u8; 64] = {
    let mut from = [0; 64];
    let mut at = 0;
    while at < 64 {
        from[at] = (at % 4 * 16 + at / 4) as u8;
        at += 1;
    }
    from
};

/// 64 positions if `WIDE`, and QUARTERS times 16.
///
/// # Safety
/// As [`sums`].
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vnni")]
unsafe fn parts<const WIDE: bool, const QUARTERS: usize>(rows: Rows, sums: &mut [Sums]) {
    // SAFETY: 64 bytes.
    let interleave = unsafe { _mm512_loadu_si512(INTERLEAVE.as_ptr().cast()) };
    for (i, sums) in sums.iter_mut().enumerate() {
        // codes are stored + 128
        let start = _mm512_set1_epi32(-128 * rows.totals[i]);
        let (mut wide, mut quarters) = ([start; 4], [start; QUARTERS]);
        for (offsets, levels) in rows.fours(i) {
            let levels = _mm512_set1_epi32(i32::from_le_bytes(levels.map(|level| level as u8)));
            // SAFETY: as many codes as a row has sums may be read from every offset on.
            let codes = offsets.map(|offset| unsafe { rows.codes.add(offset as usize) });
            if WIDE {
                // SAFETY: the first 64 of the codes that may be read.
                let [a, b, c, d] = codes.map(|codes| unsafe { _mm512_loadu_si512(codes.cast()) });
                let [low, high] = [_mm512_unpacklo_epi8(a, b), _mm512_unpackhi_epi8(a, b)];
                let [low_2, high_2] = [_mm512_unpacklo_epi8(c, d), _mm512_unpackhi_epi8(c, d)];
                wide = [
                    _mm512_dpbusd_epi32(wide[0], _mm512_unpacklo_epi16(low, low_2), levels),
                    _mm512_dpbusd_epi32(wide[1], _mm512_unpackhi_epi16(low, low_2), levels),
                    _mm512_dpbusd_epi32(wide[2], _mm512_unpacklo_epi16(high, high_2), levels),
                    _mm512_dpbusd_epi32(wide[3], _mm512_unpackhi_epi16(high, high_2), levels),
                ];
            }
            for (q, sum) in quarters.iter_mut().enumerate() {
                // SAFETY: 16 of the first 80 of the codes that may be read.
                let [a, b, c, d] =
                    codes.map(|codes| unsafe { _mm_loadu_si128(codes.add(first::<WIDE>() + 16 * q).cast()) });
                let ab = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(a), b);
                let abcd = _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(ab, c), d);
                *sum = _mm512_dpbusd_epi32(*sum, _mm512_permutexvar_epi8(interleave, abcd), levels);
            }
        }
        let to = sums.as_mut_ptr();
        if WIDE {
            // sums i of `wide` are, in quarter q, those of positions 16q + 4i ..
            let [even, odd] = [[wide[0], wide[1]], [wide[2], wide[3]]].map(|[a, b]| {
                [_mm512_shuffle_i32x4::<0b01_00_01_00>(a, b), _mm512_shuffle_i32x4::<0b11_10_11_10>(a, b)]
            });
            for half in 0..2 {
                let quarters = [
                    _mm512_shuffle_i32x4::<0b10_00_10_00>(even[half], odd[half]),
                    _mm512_shuffle_i32x4::<0b11_01_11_01>(even[half], odd[half]),
                ];
                for (q, quarter) in quarters.into_iter().enumerate() {
                    // SAFETY: 64 of 96 sums.
                    unsafe { _mm512_storeu_si512(to.add(32 * half + 16 * q).cast(), quarter) };
                }
            }
        }
        for (q, quarter) in quarters.into_iter().enumerate() {
            // SAFETY: at most 80 of 96 sums.
            unsafe { _mm512_storeu_si512(to.add(first::<WIDE>() + 16 * q).cast(), quarter) };
        }
    }
}

/// Where the quarters begin.
const fn first<const WIDE: bool>() -> usize {
    if WIDE { 64 } else { 0 }
}
