//! Where a layer reads and writes.

use std::ops::Range;

/// Offsets of a layer's columns in a buffer: of each weight in turn (sparse), or of each column (dense). In whole
/// numbers they count from the least.
#[derive(Default)]
pub(crate) struct Offsets {
    pub(super) list: Vec<u32>,
    /// In whole numbers, each offset once.
    pub(super) distinct: Vec<u32>,
    /// The smallest.
    pub(super) least: usize,
    /// One beyond the largest.
    pub(super) reach: usize,
    /// Positions of a block at most.
    pub(super) block: usize,
}

impl Offsets {
    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        4 * (self.list.len() + self.distinct.len())
    }

    /// What a layer reads of a buffer for a block at position `at`.
    pub(crate) fn window(&self, at: usize) -> Range<usize> {
        at + self.least..at + self.reach.max(1) - 1 + self.block
    }
}

/// Where a block lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Position 0 of the block in x: where offset 0 points.
    pub(crate) x: usize,
    /// Row 0, position 0 of the block in y.
    pub(crate) y: usize,
    /// Numbers between rows of y.
    pub(crate) pitch: usize,
    /// Positions, at most those of a block; whole vectors are computed and written.
    pub(crate) width: usize,
}
