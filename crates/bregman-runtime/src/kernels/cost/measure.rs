//! The costs of this CPU, on a few small layers.

use std::time::{Duration, Instant};

use bregman_base::{Buffer, Disjoint, Rng};
use pulp::Arch;

use super::KernelCosts;
use crate::kernels::sparse::Entries;
use crate::kernels::tile::{TILE, Tiling};
use crate::kernels::{BLOCK, Offsets, Place, Store, Weights};

/// The least of so many times counts: others use the machine too.
const TIMES: usize = 9;
/// Rows of the layers that are measured.
const ROWS: usize = 240;
/// Columns of a layer whose x does not fit the first-level cache.
const WIDE: usize = 8 * TILE;

pub(super) fn measure(arch: Arch) -> KernelCosts {
    let sparse = |columns: usize, of_row: usize, tiling: Tiling, shift: usize| {
        let weights = Weights::sparse(&Entries::random(ROWS, columns, of_row), columns, tiling);
        nanoseconds(arch, &weights, shift)
    };
    // of two layers that differ in the number of non-zeros only
    let nonzero = |columns: usize, shift: usize| {
        let [few, many] = [2, 22].map(|of_row| sparse(columns, of_row, Tiling::Whole, shift));
        (many - few) / (20 * ROWS) as f64
    };
    let (far, near) = ([0, 1].map(|shift| nonzero(WIDE, shift)), [0, 1].map(|shift| nonzero(TILE, shift)));
    let of_row = |tiling| sparse(WIDE, 8, tiling, 0);
    let tiles = of_row(Tiling::Tiles(TILE));
    let row = (tiles - 8.0 * near[0] * ROWS as f64) / (8 * ROWS) as f64;
    let copy = (of_row(Tiling::Packed) - tiles) / WIDE as f64;
    let dense = nanoseconds(arch, &Weights::dense(&vec![0.5; ROWS * WIDE], WIDE), 0) / (ROWS * WIDE) as f64;
    KernelCosts { dense, far, near, row, copy }
}

/// Of one block; columns lie as those of a pointwise layer, or `shift`ed as those of three taps.
fn nanoseconds(arch: Arch, weights: &Weights, shift: usize) -> f64 {
    let mut offsets = Offsets::default();
    let shifted = |column: usize| column / 3 * (BLOCK + Buffer::LINE) + column % 3 + 1;
    weights.resolve(|column| if shift > 0 { shifted(column) } else { column * BLOCK }, &mut offsets);
    let [mut x, mut y] = [Buffer::default(), Buffer::default()];
    x.grow(offsets.window(0).end);
    y.grow(ROWS * BLOCK);
    let bias = vec![0.0; ROWS];
    let store = Store { bias: &bias, residual: None, relu: true, norm: [&[], &[]] };
    let place = Place { x: 0, y: 0, pitch: BLOCK, width: BLOCK };
    let mut least = Duration::MAX;
    for _ in 0..TIMES {
        let start = Instant::now();
        // SAFETY: nobody else has y.
        unsafe { weights.apply(arch, &offsets, &x, &[], place, &store, Disjoint::new(&mut y)) };
        least = least.min(start.elapsed());
    }
    least.as_secs_f64() * 1e9
}

impl Entries {
    /// So many non-zeros in each row, in random columns.
    fn random(rows: usize, columns: usize, of_row: usize) -> Self {
        let mut rng = Rng::new(1);
        let mut entries = Self::default();
        for _ in 0..rows {
            let mut row: Vec<u32> = (0..of_row).map(|_| rng.below(columns) as u32).collect();
            row.sort_unstable();
            entries.columns.extend(row);
            entries.values.resize(entries.columns.len(), 0.5);
            entries.ends.push(entries.columns.len());
        }
        entries
    }
}
