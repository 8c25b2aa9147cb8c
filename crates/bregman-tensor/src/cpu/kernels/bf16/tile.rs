//! The unit of packed operands: 1 KiB, exactly what an AMX tile register holds, and as good for AVX-512 and for plain
//! loops.
//!
//! ```text
//! left operand, 16 rows × 32 k      word [row][k/2]    = (a[row, k], a[row, k+1])
//! right operand, 32 k × 16 columns  word [k/2][column] = (b[k, column], b[k+1, column])
//! ```
//! So a right tile of B is the transpose, as a 16 × 16 matrix of words, of a left tile of Bᵀ: two ways to read the
//! source and one transposition give all layouts.

#[cfg(target_arch = "x86_64")]
use bregman_base::simd::Level;

use super::super::lanes::{Lanes, Work, dispatch};

/// Rows of a left tile and columns of a right one.
pub(in super::super) const SIDE: usize = 16;
/// Inner length of a tile.
pub(in super::super) const DEPTH: usize = 32;

/// 16 × 16 words of two bf16 each.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub(in super::super) struct Tile(pub(in super::super) [[u32; 16]; 16]);

impl Tile {
    pub(in super::super) const ZERO: Self = Self([[0; 16]; 16]);

    /// Rows and columns of words exchanged: a left tile of A becomes a right tile of Aᵀ.
    #[inline(always)]
    pub(super) fn transpose(&mut self) {
        let tile = *self;
        transpose(tile.0.as_flattened(), SIDE, self.0.as_flattened_mut(), SIDE);
    }
}

/// 16 × 16 words with rows and columns exchanged, from rows `pitch` apart to rows `to_pitch` apart.
///
/// # Panics
/// If the last row is outside its slice.
#[inline(always)]
pub(in super::super) fn transpose(from: &[u32], pitch: usize, to: &mut [u32], to_pitch: usize) {
    assert!(
        from.len() >= (SIDE - 1) * pitch + SIDE && to.len() >= (SIDE - 1) * to_pitch + SIDE,
        "a tile outside its slice"
    );
    #[cfg(target_arch = "x86_64")]
    if Level::Avx512.is_usable() {
        // SAFETY: the CPU has AVX-512F, and both slices are long enough.
        #[allow(unsafe_code)]
        unsafe {
            transpose_avx512(from, pitch, to, to_pitch)
        };
        return;
    }
    transpose_portable(from, pitch, to, to_pitch);
}

fn transpose_portable(from: &[u32], pitch: usize, to: &mut [u32], to_pitch: usize) {
    for row in 0..SIDE {
        for column in 0..SIDE {
            to[column * to_pitch + row] = from[row * pitch + column];
        }
    }
}

/// Four rounds; round b exchanges bit b of the row number with bit b of the column number.
///
/// # Safety
/// AVX-512F, and slices as long as [`transpose`] asserts.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[allow(unsafe_code)]
unsafe fn transpose_avx512(from: &[u32], pitch: usize, to: &mut [u32], to_pitch: usize) {
    use std::arch::x86_64::*;
    // SAFETY: 16 words of a row inside the slice; any alignment is allowed.
    let mut rows: [__m512i; SIDE] =
        std::array::from_fn(|row| unsafe { _mm512_loadu_si512(from.as_ptr().add(row * pitch).cast()) });
    for bit in [1, 2, 4, 8] {
        // Lane i of the upper result: the upper row where i lacks the bit, else the lower row (lanes 16 to 31) one step
        // left.
        let upper: [u32; SIDE] = std::array::from_fn(|i| (if i & bit == 0 { i } else { 16 + i - bit }) as u32);
        let lower: [u32; SIDE] = std::array::from_fn(|i| (if i & bit == 0 { i + bit } else { 16 + i }) as u32);
        // SAFETY: 16 words each.
        let (upper, lower) =
            unsafe { (_mm512_loadu_si512(upper.as_ptr().cast()), _mm512_loadu_si512(lower.as_ptr().cast())) };
        for row in (0..SIDE).filter(|row| row & bit == 0) {
            let (a, b) = (rows[row], rows[row + bit]);
            rows[row] = _mm512_permutex2var_epi32(a, upper, b);
            rows[row + bit] = _mm512_permutex2var_epi32(a, lower, b);
        }
    }
    for (i, row) in rows.into_iter().enumerate() {
        // SAFETY: as for the loads.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().add(i * to_pitch).cast(), row) };
    }
}

/// Packs two lines across the inner dimension, k and k + 1, into word row `k/2` of neighbouring right tiles.
pub(super) fn interleave<'a>(first: &[f32], second: &[f32], word_rows: impl Iterator<Item = &'a mut [u32; 16]>) {
    dispatch(Interleave { first, second, word_rows });
}

struct Interleave<'a, I> {
    first: &'a [f32],
    second: &'a [f32],
    word_rows: I,
}

impl<'a, I: Iterator<Item = &'a mut [u32; 16]>> Work for Interleave<'_, I> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let (first, second) = (self.first.as_chunks::<SIDE>().0, self.second.as_chunks::<SIDE>().0);
        for ((words, first), second) in self.word_rows.zip(first).zip(second) {
            lanes.store_pairs(lanes.load(first), lanes.load(second), words);
        }
    }
}

/// Packs 32 columns of one row into the same row of each of neighbouring left tiles.
pub(super) fn round_row(lines: &[[f32; DEPTH]], tiles: &mut [Tile], row: usize) {
    dispatch(RoundRow { lines, tiles, row });
}

struct RoundRow<'a> {
    lines: &'a [[f32; DEPTH]],
    tiles: &'a mut [Tile],
    row: usize,
}

impl Work for RoundRow<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        for (tile, line) in self.tiles.iter_mut().zip(self.lines) {
            let (values, _) = line.as_chunks::<SIDE>();
            let (halves, _) = bytemuck::cast_slice_mut::<u32, u16>(&mut tile.0[self.row]).as_chunks_mut::<SIDE>();
            lanes.store_rounded(lanes.load(&values[0]), &mut halves[0]);
            lanes.store_rounded(lanes.load(&values[1]), &mut halves[1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposition_exchanges_rows_and_columns() {
        let from: Vec<u32> = (0..16 * 20).collect();
        let (mut fast, mut portable) = (vec![7; 16 * 33], vec![7; 16 * 33]);
        transpose(&from, 20, &mut fast, 33);
        transpose_portable(&from, 20, &mut portable, 33);
        assert_eq!(fast, portable);
        for (row, column) in (0..16 * 33).map(|at| (at / 33, at % 33)) {
            assert_eq!(fast[33 * row + column], if column < 16 { from[20 * column + row] } else { 7 });
        }
    }
}
