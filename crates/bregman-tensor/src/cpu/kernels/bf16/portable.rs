//! bf16 products by conversion to f32: for CPUs without bf16 instructions, with their SIMD multiply-add.

use bregman_base::simd;
use pulp::{Arch, Simd, WithSimd};

use super::kernel::{Lines, Sums};
use super::tile::{DEPTH, SIDE};

/// Sums of any number of tiles.
pub(super) fn multiply(left: Lines, right: Lines, sums: Sums) {
    multiply_with(simd::arch(), left, right, sums);
}

fn multiply_with(arch: Arch, left: Lines, right: Lines, sums: Sums) {
    arch.dispatch(PortableProduct { left, right, sums });
}

struct PortableProduct<'a> {
    left: Lines<'a>,
    right: Lines<'a>,
    sums: Sums<'a>,
}

impl WithSimd for PortableProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let pitch = self.sums.pitch();
        if !self.sums.add {
            for (row, column) in
                (0..self.left.count()).flat_map(|row| (0..self.right.count()).map(move |column| (row, column)))
            {
                self.sums.tile(row, column).chunks_mut(pitch).for_each(|sums| sums[..SIDE].fill(0.0));
            }
        }
        for column in 0..self.right.count() {
            for k in 0..self.right.depth() {
                let mut values = [[0.0; SIDE]; DEPTH];
                for (two, words) in
                    values.chunks_exact_mut(2).zip(self.right.tile(column, k).chunks(self.right.pitch()))
                {
                    for (i, &word) in words[..SIDE].iter().enumerate() {
                        two[0][i] = f32::from_bits(word << 16);
                        two[1][i] = f32::from_bits(word & 0xFFFF_0000);
                    }
                }
                for row in 0..self.left.count() {
                    let (words, sums) = (self.left.tile(row, k), self.sums.tile(row, column));
                    for first in (0..SIDE).step_by(ROWS) {
                        let words = words[first * self.left.pitch()..].chunks(self.left.pitch());
                        add_rows(simd, words, &values, sums[first * pitch..].chunks_mut(pitch));
                    }
                }
            }
        }
    }
}

/// Rows whose sums are in registers together.
const ROWS: usize = 8;

/// `sums[row] += Σ_k left[row][k] · right[k]` for eight rows of 16 sums.
#[inline(always)]
fn add_rows<'a, S: Simd>(
    simd: S,
    left: impl Iterator<Item = &'a [u32]>,
    right: &[[f32; SIDE]; DEPTH],
    sums: impl Iterator<Item = &'a mut [f32]>,
) {
    let mut words = [[0; SIDE]; ROWS];
    words.iter_mut().zip(left).for_each(|(to, from)| to.copy_from_slice(&from[..SIDE]));
    let mut totals = [[0.0; SIDE]; ROWS];
    for vector in 0..SIDE / S::F32_LANES {
        let mut sum = [simd.splat_f32s(0.0); ROWS];
        for (k, right) in right.iter().enumerate() {
            let right = S::as_simd_f32s(right).0[vector];
            for (row, sum) in words.iter().zip(&mut sum) {
                let word = row[k / 2];
                let value = simd.splat_f32s(f32::from_bits(if k % 2 == 0 { word << 16 } else { word & 0xFFFF_0000 }));
                *sum = simd.mul_add_e_f32s(value, right, *sum);
            }
        }
        for (total, sum) in totals.iter_mut().zip(sum) {
            S::as_mut_simd_f32s(total).0[vector] = sum;
        }
    }
    for (sums, totals) in sums.zip(totals) {
        sums[..SIDE].iter_mut().zip(totals).for_each(|(sum, total)| *sum += total);
    }
}

#[cfg(test)]
mod tests {
    use bregman_base::simd::Level;

    use super::super::super::reference::Random;
    use super::super::convert::pair;
    use super::super::tile::Tile;
    use super::*;

    #[test]
    fn every_instruction_set_multiplies_tiles() {
        let mut random = Random::new(1);
        // quarters up to 16: bf16 numbers whose sums are exact in f32, in any order
        let mut quarter = || (random.unit() * 64.0).round() / 4.0;
        let mut tiles: Vec<Tile> = vec![Tile::ZERO; 5];
        tiles.iter_mut().flat_map(|tile| tile.0.as_flattened_mut()).for_each(|word| *word = pair(quarter(), quarter()));
        let (left, right) = (Lines::tiles(&tiles, 2, 1, 2), Lines::tiles(&tiles[1..], 2, 2, 2));
        let value =
            |word: u32, k: usize| f32::from_bits(if k.is_multiple_of(2) { word << 16 } else { word & 0xFFFF_0000 });
        for arch in Level::ALL.iter().filter_map(|level| level.arch()) {
            for start in [None, Some(0.25)] {
                let mut sums = vec![start.unwrap_or(f32::NAN); SIDE * 40];
                multiply_with(arch, left, right, Sums::new(&mut sums, 40, start.is_some()));
                for (row, column) in (0..16 * 32).map(|at| (at / 32, at % 32)) {
                    let term = |k: usize| {
                        let [a, b] = [
                            left.tile(0, k / DEPTH)[SIDE * row + k % DEPTH / 2],
                            right.tile(column / SIDE, k / DEPTH)[SIDE * (k % DEPTH / 2) + column % SIDE],
                        ];
                        value(a, k) * value(b, k)
                    };
                    let expected = start.unwrap_or(0.0) + (0..2 * DEPTH).map(term).sum::<f32>();
                    assert_eq!(sums[40 * row + column], expected, "{arch:?} at {row}, {column}");
                }
            }
        }
    }
}
