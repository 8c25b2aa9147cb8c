//! The unit of packed operands: 1 KiB, exactly what an AMX tile register holds, and as good for AVX-512 and for plain loops.
//!
//! ```text
//! left operand, 16 rows × 32 k      word [row][k/2]    = (a[row, k], a[row, k+1])
//! right operand, 32 k × 16 columns  word [k/2][column] = (b[k, column], b[k+1, column])
//! ```
//! So a right tile of B is the transpose, as a 16 × 16 matrix of words, of a left tile of Bᵀ: two ways to read the source and one
//! transposition give all layouts.

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
    pub(in super::super) fn transpose(&mut self) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the CPU has AVX-512F.
            #[allow(unsafe_code)]
            unsafe {
                self.transpose_avx512()
            };
            return;
        }
        self.transpose_portable();
    }

    fn transpose_portable(&mut self) {
        for row in 1..16 {
            for column in 0..row {
                (self.0[row][column], self.0[column][row]) = (self.0[column][row], self.0[row][column]);
            }
        }
    }

    /// Four rounds; round b exchanges bit b of the row number with bit b of the column number.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    #[allow(unsafe_code)]
    fn transpose_avx512(&mut self) {
        use std::arch::x86_64::*;
        let load = |row: &[u32; 16]| {
            // SAFETY: 16 words; any alignment is allowed.
            unsafe { _mm512_loadu_si512(row.as_ptr().cast()) }
        };
        let mut rows: [__m512i; 16] = std::array::from_fn(|row| load(&self.0[row]));
        for bit in [1, 2, 4, 8] {
            // Lane i of the upper result: the upper row where i lacks the bit, else the lower row (lanes 16 to 31) one step left.
            let upper: [u32; 16] = std::array::from_fn(|i| (if i & bit == 0 { i } else { 16 + i - bit }) as u32);
            let lower: [u32; 16] = std::array::from_fn(|i| (if i & bit == 0 { i + bit } else { 16 + i }) as u32);
            let (upper, lower) = (load(&upper), load(&lower));
            for row in (0..16).filter(|row| row & bit == 0) {
                let (a, b) = (rows[row], rows[row + bit]);
                rows[row] = _mm512_permutex2var_epi32(a, upper, b);
                rows[row + bit] = _mm512_permutex2var_epi32(a, lower, b);
            }
        }
        for (words, row) in self.0.iter_mut().zip(rows) {
            // SAFETY: 16 words; any alignment is allowed.
            unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), row) };
        }
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
        let tile = Tile(std::array::from_fn(|row| std::array::from_fn(|column| (100 * row + column) as u32)));
        let (mut fast, mut portable) = (tile, tile);
        fast.transpose();
        portable.transpose_portable();
        for (row, column) in (0..256).map(|at| (at / 16, at % 16)) {
            assert_eq!([fast.0[row][column], portable.0[row][column]], [tile.0[column][row]; 2]);
        }
    }
}
