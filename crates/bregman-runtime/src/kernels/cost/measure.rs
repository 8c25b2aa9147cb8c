//! The costs of this CPU, on a few small layers.

use std::time::{Duration, Instant};

use bregman_base::{Buffer, Disjoint, Rng};
use pulp::Arch;

use super::BlockCosts;
use crate::kernels::sparse::Entries;
use crate::kernels::tile::{PANEL, Tiling};
use crate::kernels::{Epilogue, Offsets, Place, Weights};

/// Repetitions, of which the fastest counts: others use the machine too.
const TIMES: usize = 9;
/// Rows of the layers that are measured.
const ROWS: usize = 240;

/// The costs of blocks of `block` positions.
pub(super) fn measure(arch: Arch, block: usize) -> BlockCosts {
    // columns of a tile, and of a layer whose x does not fit the first-level cache
    let (tile, wide) = (PANEL / block, 8 * PANEL / block);
    let sparse = |columns: usize, of_row: usize, tiling: Tiling, shift: usize| {
        let weights = Weights::sparse(&Entries::random(ROWS, columns, of_row), columns, block, tiling);
        nanoseconds(arch, &weights, block, shift)
    };
    // of two layers that differ in the number of non-zeros only
    let nonzero = |columns: usize, shift: usize| {
        let [few, many] = [2, 22].map(|of_row| sparse(columns, of_row, Tiling::Whole, shift));
        (many - few) / (20 * ROWS) as f64
    };
    let (far, near) = ([0, 1].map(|shift| nonzero(wide, shift)), [0, 1].map(|shift| nonzero(tile, shift)));
    let of_row = |tiling| sparse(wide, 8, tiling, 0);
    let tiles = of_row(Tiling::Tiles(tile));
    let row = (tiles - 8.0 * near[0] * ROWS as f64) / (8 * ROWS) as f64;
    let copy = (of_row(Tiling::Packed { block }) - tiles) / wide as f64;
    let full = Weights::dense(&vec![0.5; ROWS * wide], wide, block);
    let dense = nanoseconds(arch, &full, block, 0) / (ROWS * wide) as f64;
    BlockCosts { block, dense, far, near, row, copy }
}

/// Of one block; columns lie as those of a pointwise layer, or `shift`ed as those of three taps.
fn nanoseconds(arch: Arch, weights: &Weights, block: usize, shift: usize) -> f64 {
    let mut offsets = Offsets::default();
    let shifted = |column: usize| column / 3 * (block + Buffer::LINE) + column % 3 + 1;
    weights.resolve(|column| if shift > 0 { shifted(column) } else { column * block }, &mut offsets);
    let [mut x, mut y] = [Buffer::default(), Buffer::default()];
    x.grow(offsets.window(0).end);
    y.grow(ROWS * block);
    let bias = vec![0.0; ROWS];
    let epilogue = Epilogue { bias: &bias, residual: None, relu: true, norm: [&[], &[]] };
    let place = Place { x: 0, y: 0, pitch: block, width: block };
    let mut least = Duration::MAX;
    for _ in 0..TIMES {
        let start = Instant::now();
        // SAFETY: nothing else has y.
        unsafe { weights.apply(arch, &offsets, &x[..], &[], place, &epilogue, Disjoint::new(&mut y)) };
        least = least.min(start.elapsed());
    }
    least.as_secs_f64() * 1e9
}

impl Entries {
    /// `of_row` non-zeros in each row, in random columns.
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
