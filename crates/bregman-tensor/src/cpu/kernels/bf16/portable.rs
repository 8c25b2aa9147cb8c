//! bf16 products by conversion to f32: for CPUs without bf16 instructions, with their SIMD multiply-add.

use pulp::{Arch, Simd, WithSimd};

use super::kernel::{Lines, Sums};
use super::tile::{DEPTH, SIDE};

/// Sums of any number of tiles.
pub(super) fn multiply(left: Lines, right: Lines, sums: &mut Sums) {
    multiply_with(Arch::new(), left, right, sums);
}

fn multiply_with(arch: Arch, left: Lines, right: Lines, sums: &mut Sums) {
    arch.dispatch(Product { left, right, sums });
}

struct Product<'a> {
    left: Lines<'a>,
    right: Lines<'a>,
    sums: &'a mut Sums,
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for row in 0..SIDE * self.left.count() {
            self.sums.0[row].fill(0.0);
        }
        for column in 0..self.right.count() {
            for (k, tile) in self.right.line(column).iter().enumerate() {
                let mut values = [[0.0; SIDE]; DEPTH];
                for (two, words) in values.chunks_exact_mut(2).zip(&tile.0) {
                    two[0] = words.map(|word| f32::from_bits(word << 16));
                    two[1] = words.map(|word| f32::from_bits(word & 0xFFFF_0000));
                }
                for row in (0..SIDE * self.left.count()).step_by(ROWS) {
                    let words = &self.left.line(row / SIDE)[k].0[row % SIDE..][..ROWS];
                    add_rows(simd, words, &values, &mut self.sums.0[row..row + ROWS], column * SIDE);
                }
            }
        }
    }
}

/// Rows whose sums are in registers together.
const ROWS: usize = 8;

/// `sums[row][column..column + 16] += Σ_k left[row][k] · right[k]`
#[inline(always)]
fn add_rows<S: Simd, const W: usize>(simd: S, left: &[[u32; 16]], right: &[[f32; SIDE]; DEPTH], sums: &mut [[f32; W]], column: usize) {
    for vector in 0..SIDE / S::F32_LANES {
        let mut sum = [simd.splat_f32s(0.0); ROWS];
        for (k, right) in right.iter().enumerate() {
            let right = S::as_simd_f32s(right).0[vector];
            for (row, sum) in left.iter().zip(&mut sum) {
                let word = row[k / 2];
                let value = simd.splat_f32s(f32::from_bits(if k % 2 == 0 { word << 16 } else { word & 0xFFFF_0000 }));
                *sum = simd.mul_add_e_f32s(value, right, *sum);
            }
        }
        for (row, sum) in sums.iter_mut().zip(sum) {
            let out = &mut S::as_mut_simd_f32s(&mut row[column..column + SIDE]).0[vector];
            *out = simd.add_f32s(*out, sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::reference::Random;
    use super::super::convert::pair;
    use super::super::tile::Tile;
    use super::*;

    #[test]
    fn every_instruction_set_multiplies_tiles() {
        #[allow(unused_mut)]
        let mut sets = vec![Arch::Scalar, Arch::new()];
        #[cfg(target_arch = "x86_64")]
        sets.extend(pulp::x86::V3::try_new().map(Arch::V3));
        let mut random = Random::new(1);
        // quarters up to 16: bf16 numbers whose sums are exact in f32, in any order
        let mut quarter = || (random.unit() * 64.0).round() / 4.0;
        let mut tiles: Vec<Tile> = vec![Tile::ZERO; 5];
        tiles.iter_mut().flat_map(|tile| tile.0.as_flattened_mut()).for_each(|word| *word = pair(quarter(), quarter()));
        let (left, right) = (Lines::new(&tiles, 2, 1, 2), Lines::new(&tiles[1..], 2, 2, 2));
        let value = |word: u32, k: usize| f32::from_bits(if k.is_multiple_of(2) { word << 16 } else { word & 0xFFFF_0000 });
        for arch in sets {
            let mut sums = Sums::ZERO;
            multiply_with(arch, left, right, &mut sums);
            for (row, column) in (0..16 * 32).map(|at| (at / 32, at % 32)) {
                let term = |k: usize| {
                    let [a, b] = [
                        left.line(0)[k / DEPTH].0[row][k % DEPTH / 2],
                        right.line(column / SIDE)[k / DEPTH].0[k % DEPTH / 2][column % SIDE],
                    ];
                    value(a, k) * value(b, k)
                };
                assert_eq!(sums.0[row][column], (0..2 * DEPTH).map(term).sum::<f32>(), "{arch:?} at {row}, {column}");
            }
        }
    }
}
