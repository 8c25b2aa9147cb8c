//! The outputs of a convolution in tiles of 2 × 2, numbered item by item and row by row, and the runs of neighbours
//! that a strip of them consists of.

use std::ops::Range;

use super::super::columns::Geometry;
use super::super::lanes::prefetch;

/// Outputs of a tile along each axis.
pub(super) const SIDE: usize = 2;

/// All tiles of a batch.
#[derive(Clone, Copy)]
pub(super) struct Tiling {
    pub(super) items: usize,
    /// Input map, `[height, width]`.
    pub(super) input: [usize; 2],
    /// Output map.
    pub(super) output: [usize; 2],
    padding: [usize; 2],
    rows: usize,
    columns: usize,
}

/// Neighbouring tiles of one row.
#[derive(Clone, Copy)]
pub(super) struct TileRun {
    /// Place of the first one in the strip.
    pub(super) at: usize,
    pub(super) len: usize,
    pub(super) item: usize,
    /// First output, `[row, column]`.
    pub(super) output: [usize; 2],
    /// The input under its first tap, which may lie in the padding.
    pub(super) input: [isize; 2],
}

impl Tiling {
    pub(super) fn new(geometry: &Geometry, items: usize) -> Self {
        let output = geometry.output();
        let [rows, columns] = output.map(|size| size.div_ceil(SIDE));
        Self { items, input: geometry.input, output, padding: geometry.padding, rows, columns }
    }

    pub(super) fn count(&self) -> usize {
        self.items * self.rows * self.columns
    }

    /// The runs of a range of tiles.
    pub(super) fn runs(self, range: Range<usize>) -> impl Iterator<Item = TileRun> + Clone {
        let mut tile = range.start;
        std::iter::from_fn(move || {
            let (row, column) = (tile / self.columns, tile % self.columns);
            let len = (self.columns - column).min(range.end - tile);
            let output = [row % self.rows * SIDE, column * SIDE];
            let input = [0, 1].map(|axis| output[axis] as isize - self.padding[axis] as isize);
            let run = TileRun { at: tile - range.start, len, item: row / self.rows, output, input };
            tile += len;
            (len > 0).then_some(run)
        })
    }
}

impl TileRun {
    /// Asks for the inputs of the run in a map with `width` columns.
    #[inline(always)]
    pub(super) fn prefetch_inputs(&self, map: &[f32], width: usize) {
        prefetch_rows(map, width, self.input, SIDE * self.len + 2, 4);
    }

    /// Asks for the outputs of the run.
    #[inline(always)]
    pub(super) fn prefetch_outputs(&self, map: &[f32], width: usize) {
        prefetch_rows(map, width, self.output.map(|at| at as isize), SIDE * self.len, 2);
    }
}

#[inline(always)]
fn prefetch_rows(map: &[f32], width: usize, [top, left]: [isize; 2], columns: usize, rows: isize) {
    for row in top.max(0)..top + rows {
        let start = row as usize * width;
        let [from, until] =
            [left, left + columns as isize].map(|column| start + column.clamp(0, width as isize) as usize);
        if let Some(inputs) = map.get(from..until) {
            prefetch(inputs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cover_a_strip_in_order_and_stay_inside_their_row() {
        let geometry = Geometry { input: [5, 13], kernel: [3, 3], stride: [1, 1], padding: [1, 0], dilation: [1, 1] };
        let tiling = Tiling::new(&geometry, 2);
        assert_eq!((tiling.output, tiling.count()), ([5, 11], 2 * 3 * 6));
        for (start, end) in [(0, 36), (4, 5), (7, 30), (36, 36)] {
            let runs: Vec<_> = tiling.runs(start..end).collect();
            assert_eq!(runs.iter().map(|run| run.len).sum::<usize>(), end - start);
            let mut tile = start;
            for run in runs {
                assert_eq!(run.at, tile - start);
                assert_eq!([run.item, run.output[0] / 2, run.output[1] / 2], [tile / 18, tile / 6 % 3, tile % 6]);
                assert!(run.output[1] / 2 + run.len <= 6);
                assert_eq!(run.input, [run.output[0] as isize - 1, run.output[1] as isize]);
                tile += run.len;
            }
        }
    }
}
