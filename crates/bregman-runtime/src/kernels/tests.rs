//! All ways to compute a layer in f32 against each other, to the bit.

use bregman_base::{Buffer, Disjoint, Rng};

use super::cost::Plan;
use super::sparse::Entries;
use super::tile::{PANEL, TILE, Tiling};
use super::*;

const ROWS: usize = 33;
/// Three tiles of a panel of strips, the last one short.
const COLUMNS: usize = 2 * PANEL / STRIP + 27;

/// A third of the weights, and rows and tiles without any.
fn weights(rng: &mut Rng) -> Vec<f32> {
    let is_zero = |row: usize, column: usize, unit: f64| row == 7 || (row == 8 && column / TILE == 1) || unit > 0.33;
    let mut weight = |at: usize| {
        let value = rng.symmetric(1.0);
        if is_zero(at / COLUMNS, at % COLUMNS, rng.unit()) { 0.0 } else { value }
    };
    (0..ROWS * COLUMNS).map(&mut weight).collect()
}

fn planned(weights: &[f32], plan: Plan, block: usize) -> Weights {
    let Plan::Sparse(tiling) = plan else { return Weights::dense(weights, COLUMNS, block) };
    Weights::sparse(&Entries::of_rows(weights, COLUMNS), COLUMNS, block, tiling)
}

#[test]
fn every_kernel_computes_the_same_sums_to_the_bit() {
    let mut rng = Rng::new(3);
    let (weights, shift) = (weights(&mut rng), |column: usize| column / 9 * 300 + column % 9 / 3 * 95 + column % 3);
    let mut numbers = |count: usize| (0..count).map(|_| rng.symmetric(1.0)).collect::<Vec<f32>>();
    let (x, residual) = (numbers(COLUMNS / 9 * 300 + 400), numbers(ROWS * BLOCK));
    let [bias, scale, offset] = [0, 1, 2].map(|_| numbers(ROWS));
    let epilogue = Epilogue { bias: &bias, residual: Some(residual[..].into()), relu: true, norm: [&scale, &offset] };
    for instructions in Instructions::available() {
        for (block, width) in [(STRIP, 1), (STRIP, 17), (STRIP, STRIP), (BLOCK, STRIP + 1), (BLOCK, BLOCK)] {
            let sparse = [Tiling::Whole, Tiling::Tiles(45), Tiling::Tiles(500), Tiling::Packed { block }];
            let sparse = sparse.map(Plan::Sparse);
            let place = Place { x: 3, y: 0, pitch: BLOCK, width };
            let computed = [Plan::Dense].into_iter().chain(sparse).map(|plan| {
                let (weights, mut offsets, mut y) =
                    (planned(&weights, plan, block), Offsets::default(), Buffer::default());
                weights.resolve(shift, &mut offsets);
                y.grow(ROWS * BLOCK);
                // SAFETY: nothing else has y.
                unsafe {
                    weights.apply(
                        instructions.arch().unwrap(),
                        &offsets,
                        &x[..],
                        &[],
                        place,
                        &epilogue,
                        Disjoint::new(&mut y),
                    );
                }
                (plan, y.chunks_exact(BLOCK).flat_map(|row| &row[..width]).map(|y| y.to_bits()).collect::<Vec<_>>())
            });
            let computed: Vec<(Plan, Vec<u32>)> = computed.collect();
            for (plan, sums) in &computed {
                assert!(*sums == computed[0].1, "{plan:?} with {instructions:?}, {width} of {block} positions");
            }
        }
    }
}
