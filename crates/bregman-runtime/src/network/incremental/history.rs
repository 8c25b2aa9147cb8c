//! What the local part of a network said about the last seconds.

use bregman_base::Buffer;

use super::SLACK;
use crate::kernels::BLOCK;

/// The last columns of a signal that grows: `[row][column]`, a column every few frames.
pub(crate) struct History {
    values: Buffer,
    rows: usize,
    /// Numbers from one row to the next.
    pitch: usize,
    /// Columns that stay readable.
    keep: usize,
    /// The number of the first column in memory.
    first: usize,
    /// One beyond the last column that counts.
    pub(super) end: usize,
}

impl History {
    /// Of `rows` rows, the last `keep` columns.
    pub(super) fn new(rows: usize, keep: usize) -> Self {
        // twice as many, so that moving them to the front costs one copy per column
        let pitch = (2 * keep + SLACK).next_multiple_of(Buffer::LINE);
        let pitch = pitch + if pitch.is_multiple_of(256) { Buffer::LINE } else { 0 };
        Self { values: Buffer::zeros(rows * pitch + BLOCK), rows, pitch, keep, first: 0, end: 0 }
    }

    /// Columns from the beginning until now.
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    /// The first column that can still be read.
    pub(crate) fn start(&self) -> usize {
        self.end.saturating_sub(self.keep)
    }

    /// Makes room for `columns` more and as many again in whole vectors.
    pub(super) fn reserve(&mut self, columns: usize) {
        if self.end - self.first + columns + SLACK <= self.pitch {
            return;
        }
        let start = self.start();
        assert!(self.end - start + columns + SLACK <= self.pitch, "{columns} columns at once");
        let (from, to) = (start - self.first, self.pitch);
        let rows = self.values.chunks_exact_mut(self.pitch).take(self.rows);
        rows.for_each(|row| row.copy_within(from..to, 0));
        self.first = start;
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Where column `column` of row 0 lies, and the distance of rows.
    pub(super) fn place(&self, column: usize) -> (usize, usize) {
        (column - self.first, self.pitch)
    }

    /// All rows.
    pub(super) fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }

    /// All rows.
    pub(super) fn values(&self) -> &[f32] {
        &self.values
    }

    /// Row `row`, from column `column` on.
    pub(super) fn row(&self, row: usize, column: usize) -> &[f32] {
        let (at, pitch) = self.place(column);
        &self.values[row * pitch + at..(row + 1) * pitch]
    }

    /// Appends a column.
    pub(super) fn push(&mut self, column: impl Iterator<Item = f32>) {
        self.reserve(1);
        let (at, pitch) = self.place(self.end);
        let mut rows = 0;
        for (row, value) in column.enumerate() {
            self.values[row * pitch + at] = value;
            rows = row + 1;
        }
        debug_assert_eq!(rows, self.rows, "a value for every row");
        self.end += 1;
    }

    pub(super) fn bytes(&self) -> usize {
        self.values.bytes()
    }
}
