//! The unit of packed operands: 1 KiB, exactly what an AMX tile register holds, and as good for AVX-512 and for plain loops.
//!
//! ```text
//! left operand, 16 rows × 32 k      word [row][k/2]    = (a[row, k], a[row, k+1])
//! right operand, 32 k × 16 columns  word [k/2][column] = (b[k, column], b[k+1, column])
//! ```
//! So a right tile of B is the transpose, as a 16 × 16 matrix of words, of a left tile of Bᵀ: two ways to read the source and one
//! transposition give all layouts.

use super::convert::pair;

/// Rows of a left tile and columns of a right one.
pub(super) const SIDE: usize = 16;
/// Inner length of a tile.
pub(super) const DEPTH: usize = 32;

/// 16 × 16 words of two bf16 each.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Tile(pub(super) [[u32; 16]; 16]);

impl Tile {
    pub(super) const ZERO: Self = Self([[0; 16]; 16]);

    /// Packs lines along the inner dimension: `fill(line, out)` writes 32 values of line `0..lines`; lines after those are zero.
    #[inline(always)]
    pub(super) fn pack_lines(&mut self, lines: usize, mut fill: impl FnMut(usize, &mut [f32; DEPTH])) {
        for (line, words) in self.0.iter_mut().enumerate() {
            if line < lines {
                let mut values = [0.0; DEPTH];
                fill(line, &mut values);
                for (word, at) in words.iter_mut().zip(0..) {
                    *word = pair(values[2 * at], values[2 * at + 1]);
                }
            } else {
                *words = [0; 16];
            }
        }
    }

    /// Words of a 16 × 16 matrix with rows and columns exchanged: a left tile of A becomes a right tile of Aᵀ.
    #[inline(always)]
    pub(super) fn transpose(&mut self) {
        for row in 1..16 {
            for column in 0..row {
                (self.0[row][column], self.0[column][row]) = (self.0[column][row], self.0[row][column]);
            }
        }
    }
}

/// Packs two lines across the inner dimension, k and k + 1, into word row `k/2` of neighbouring right tiles.
#[inline(always)]
pub(super) fn interleave<'a>(first: &[f32], second: &[f32], word_rows: impl Iterator<Item = &'a mut [u32; 16]>) {
    for ((words, first), second) in word_rows.zip(first.chunks_exact(SIDE)).zip(second.chunks_exact(SIDE)) {
        for (word, (&first, &second)) in words.iter_mut().zip(first.iter().zip(second)) {
            *word = pair(first, second);
        }
    }
}
