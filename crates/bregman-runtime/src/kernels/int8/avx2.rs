//! 32 positions at a time, with the dot products of AVX-VNNI or with multiplications of bytes that add pairs.

use std::arch::x86_64::*;

use super::{Rows, Sums};

/// The sums of all rows, `$dot(sum, codes, levels)` being the dot product and `$start(total)` the first sum.
macro_rules! kernel {
    ($name:ident, $features:literal, $start:expr, $dot:expr) => {
        /// # Safety
        /// The CPU has the features, and `rows.codes` is as its field says.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name(rows: Rows, sums: &mut [Sums]) {
            for (i, sums) in sums.iter_mut().enumerate() {
                for from in (0..rows.width).step_by(32) {
                    let mut sum = [_mm256_set1_epi32($start(rows.totals[i])); 4];
                    for (offsets, levels) in rows.fours(i) {
                        let levels = _mm256_set1_epi32(i32::from_le_bytes(levels.map(|level| level as u8)));
                        let codes = offsets.map(|offset| rows.codes.wrapping_add(offset as usize + from));
                        // SAFETY: as many codes as a row has sums may be read from every offset on.
                        let [a, b, c, d] = codes.map(|codes| unsafe { _mm256_loadu_si256(codes.cast()) });
                        let [low, high] = [_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b)];
                        let [low_2, high_2] = [_mm256_unpacklo_epi8(c, d), _mm256_unpackhi_epi8(c, d)];
                        sum = [
                            $dot(sum[0], _mm256_unpacklo_epi16(low, low_2), levels),
                            $dot(sum[1], _mm256_unpackhi_epi16(low, low_2), levels),
                            $dot(sum[2], _mm256_unpacklo_epi16(high, high_2), levels),
                            $dot(sum[3], _mm256_unpackhi_epi16(high, high_2), levels),
                        ];
                    }
                    // sums i are, in half h, those of positions 16h + 4i ..
                    let ordered = [
                        _mm256_permute2x128_si256::<0x20>(sum[0], sum[1]),
                        _mm256_permute2x128_si256::<0x20>(sum[2], sum[3]),
                        _mm256_permute2x128_si256::<0x31>(sum[0], sum[1]),
                        _mm256_permute2x128_si256::<0x31>(sum[2], sum[3]),
                    ];
                    for (v, ordered) in ordered.into_iter().enumerate() {
                        // SAFETY: a row has sums for whole vectors of 32 codes.
                        unsafe { _mm256_storeu_si256(sums.as_mut_ptr().add(from + 8 * v).cast(), ordered) };
                    }
                }
            }
        }
    };
}

// codes are stored + 128
kernel!(sums_vnni, "avx2,avxvnni", |total: i32| -128 * total, _mm256_dpbusd_avx_epi32);
kernel!(sums, "avx2", |_| 0, dot);

/// |level| without a sign times ±code: a pair of products fits 16 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn dot(sum: __m256i, codes: __m256i, levels: __m256i) -> __m256i {
    let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(levels), _mm256_sign_epi8(codes, levels));
    _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
}
