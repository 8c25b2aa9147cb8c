//! Rows over time whose input is still arriving, with what lies before the beginning and beyond the end.

use bregman_network::Padding;

use super::{ROUND, SLACK};
use crate::kernels::STRIP;

/// Columns of a row: those that wait for later parts, a round and a vector.
pub(super) const PITCH: usize = 64 + ROUND + SLACK;

/// The last columns of a few rows over time.
pub(super) struct Tape {
    pub(super) values: Vec<f32>,
    /// The frame in column 0: before the beginning lie zeros, or mirrored frames.
    pub(super) first: isize,
    padding: Padding,
}

impl Tape {
    pub(super) fn new(rows: usize, before: usize, padding: Padding) -> Self {
        Self { values: vec![0.0; rows * PITCH + STRIP], first: -(before as isize), padding }
    }

    pub(super) fn column(&self, frame: usize) -> usize {
        (frame as isize - self.first) as usize
    }

    /// Drops frames before `frame`.
    pub(super) fn forget(&mut self, frame: isize) {
        let surplus = usize::try_from(frame - self.first).unwrap_or(0);
        if surplus > 0 {
            self.values.chunks_exact_mut(PITCH).for_each(|row| row.copy_within(surplus.., 0));
            self.first = frame;
        }
    }

    /// Fills `count` columns before frame 0, once more than `count` frames are here.
    pub(super) fn begin(&mut self, count: usize) {
        if self.padding == Padding::Reflected {
            let first = self.column(0);
            for row in self.values.chunks_exact_mut(PITCH) {
                (1..=count).for_each(|k| row[first - k] = row[first + k]);
            }
        }
    }

    /// Fills `count` columns from `frame` on, the first beyond the end.
    pub(super) fn end(&mut self, frame: usize, count: usize) {
        let column = self.column(frame);
        for row in self.values.chunks_exact_mut(PITCH) {
            match self.padding {
                Padding::Zeros => row[column..column + count].fill(0.0),
                Padding::Reflected => (0..count).for_each(|k| row[column + k] = row[column - 2 - k]),
            }
        }
    }
}
