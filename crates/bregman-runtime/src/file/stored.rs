//! A layer in its encoding, decoded while it is read.

use std::ops::Range;

use bregman_network::LayerSpec;

use super::{Positions, ValueFormat, positions};
use crate::{Error, Result};

/// A layer in its encoding.
pub(crate) struct StoredLayer<'a> {
    pub(crate) spec: LayerSpec,
    pub(crate) positions: Positions,
    pub(crate) values: ValueFormat,
    /// Values stored.
    pub(crate) live: usize,
    pub(super) position_bytes: &'a [u8],
    pub(super) value_bytes: &'a [u8],
    pub(super) vector_bytes: &'a [u8],
}

impl StoredLayer<'_> {
    /// Bytes in the file.
    pub(crate) fn bytes(&self) -> usize {
        self.position_bytes.len() + self.value_bytes.len() + self.vector_bytes.len()
    }

    /// Calls `found` with row, column and value of every stored weight, in rising order.
    pub(crate) fn for_each(&self, mut found: impl FnMut(usize, usize, f32)) -> Result<()> {
        let ([rows, columns], count) = (self.spec.matrix(), self.spec.weights());
        let (mut i, mut finite) = (0, true);
        let (mut row, mut row_end) = (0, columns);
        let decoded = positions::decode(self.positions, self.position_bytes, count, self.live, |at| {
            while at >= row_end {
                (row, row_end) = (row + 1, row_end + columns);
            }
            let value = self.values.get(self.value_bytes, rows, i, row);
            finite &= value.is_finite();
            found(row, at + columns - row_end, value);
            i += 1;
        });
        decoded.map_err(|problem| Error::tensor(&self.spec.name, problem))?;
        if finite { Ok(()) } else { Err(Error::tensor(&self.spec.name, "has a weight that is not finite")) }
    }

    /// Bias, scale and shift; the latter two empty where there is no norm.
    pub(crate) fn vectors(&self) -> Result<[Vec<f32>; 3]> {
        let rows = self.spec.outputs;
        let norm = if self.spec.norm_after_relu().is_some() { rows } else { 0 };
        let [bias, scale, shift] =
            [0..rows, rows..rows + norm, rows + norm..rows + 2 * norm].map(|at| self.numbers(at));
        Ok([bias?, scale?, shift?])
    }

    /// Scale and shift of the norm before a ReLU of the input; empty where there is none.
    pub(crate) fn before(&self) -> Result<[Vec<f32>; 2]> {
        let all = self.vector_bytes.len() / ValueFormat::F32.bytes();
        let first = self.spec.outputs * if self.spec.norm_after_relu().is_some() { 3 } else { 1 };
        let middle = first + (all - first) / 2;
        Ok([self.numbers(first..middle)?, self.numbers(middle..all)?])
    }

    fn numbers(&self, range: Range<usize>) -> Result<Vec<f32>> {
        let values: Vec<f32> = range.map(|i| ValueFormat::F32.get(self.vector_bytes, 1, i, 0)).collect();
        if values.iter().all(|value| value.is_finite()) {
            return Ok(values);
        }
        Err(Error::tensor(&self.spec.name, "has a bias, scale or shift that is not finite"))
    }
}
