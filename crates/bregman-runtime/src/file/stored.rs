//! A layer in its encoding, decoded while it is read.

use std::ops::Range;

use bregman_network::LayerSpec;

use super::source::Part;
use super::{Positions, ValueFormat, positions};
use crate::{Error, Result};

/// A layer in its encoding.
pub(crate) struct StoredLayer<'a> {
    pub(crate) spec: LayerSpec,
    pub(crate) positions: Positions,
    pub(crate) values: ValueFormat,
    /// Values stored.
    pub(crate) live: usize,
    /// Where its input lay when the model was calibrated, −range..=range; its weights are `Int8` then.
    pub(crate) input_range: Option<f32>,
    pub(super) position_part: Part<'a>,
    pub(super) value_part: Part<'a>,
    pub(super) vector_part: Part<'a>,
}

impl StoredLayer<'_> {
    /// Bytes in the file.
    pub(crate) fn bytes(&self) -> usize {
        self.position_part.len() + self.value_part.len() + self.vector_part.len()
    }

    /// Calls `found` with row, column and value of every stored weight, in rising order.
    pub(crate) fn for_each(&self, mut found: impl FnMut(usize, usize, f32)) -> Result<()> {
        let (rows, values, mut finite) = (self.spec.outputs, self.value_part.bytes()?, true);
        self.each_position(|i, row, column| {
            let value = self.values.get(&values, rows, i, row);
            finite &= value.is_finite();
            found(row, column, value);
        })?;
        if finite { Ok(()) } else { Err(Error::tensor(&self.spec.name, "has a weight that is not finite")) }
    }

    /// Calls `found` with every row and its weights, if all of them are stored; otherwise gives false.
    pub(crate) fn for_each_row(&self, mut found: impl FnMut(usize, &[f32])) -> Result<bool> {
        let [rows, columns] = self.spec.matrix();
        if self.positions != Positions::Dense || self.live != rows * columns || self.position_part.len() > 0 {
            return Ok(false);
        }
        let (mut weights, mut finite, mut row) = (vec![0.0; columns], true, 0);
        let mut next = |bytes: &[u8], at: usize| {
            self.values.get_all(bytes, rows, at * columns, row, &mut weights);
            finite &= weights.iter().fold(true, |finite, weight| finite & weight.is_finite());
            found(row, &weights);
            row += 1;
        };
        if self.values == ValueFormat::Int8 {
            let bytes = self.value_part.bytes()?; // a row's scale and its levels lie apart
            (0..rows).for_each(|row| next(&bytes, row));
        } else {
            let row = self.values.bytes() * columns;
            self.value_part.each(row, |bytes| (0..bytes.len() / row).for_each(|at| next(bytes, at)))?;
        }
        if finite { Ok(true) } else { Err(Error::tensor(&self.spec.name, "has a weight that is not finite")) }
    }

    /// Those columns of every row, one row after the other.
    pub(crate) fn rows_of(&self, columns: Range<usize>) -> Result<Vec<f32>> {
        let mut rows = vec![0.0; self.spec.outputs * columns.len()];
        let whole = self.for_each_row(|row, weights| {
            rows[row * columns.len()..][..columns.len()].copy_from_slice(&weights[columns.clone()]);
        })?;
        if !whole {
            self.for_each(|row, column, value| {
                if columns.contains(&column) {
                    rows[row * columns.len() + column - columns.start] = value;
                }
            })?;
        }
        Ok(rows)
    }

    /// As [`StoredLayer::for_each`] for 8-bit weights, as multiples of their [row's scale](StoredLayer::row_scales).
    pub(crate) fn for_each_level(&self, mut found: impl FnMut(usize, usize, i8)) -> Result<()> {
        let bytes = self.value_part.bytes()?;
        let levels = self.values.levels(&bytes, self.spec.outputs).expect("a range, so int8 weights");
        self.each_position(|i, row, column| found(row, column, levels[i] as i8))
    }

    /// What the levels of each row are multiplied by.
    pub(crate) fn row_scales(&self) -> Result<Vec<f32>> {
        let scales = self.numbers_of(&self.value_part.bytes()?, 0..self.spec.outputs)?;
        let finite = scales.iter().all(|scale| (scale * f32::from(i8::MIN)).is_finite());
        if finite { Ok(scales) } else { Err(Error::tensor(&self.spec.name, "has a weight that is not finite")) }
    }

    /// Calls `found` with number, row and column of every stored weight, in rising order.
    fn each_position(&self, mut found: impl FnMut(usize, usize, usize)) -> Result<()> {
        let ([_, columns], count) = (self.spec.matrix(), self.spec.weights());
        let mut i = 0;
        let (mut row, mut row_end) = (0, columns);
        let bytes = self.position_part.bytes()?;
        let decoded = positions::decode(self.positions, &bytes, count, self.live, |at| {
            while at >= row_end {
                (row, row_end) = (row + 1, row_end + columns);
            }
            found(i, row, at + columns - row_end);
            i += 1;
        });
        decoded.map_err(|problem| Error::tensor(&self.spec.name, problem))
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
        let all = self.vector_part.len() / ValueFormat::F32.bytes();
        let first = self.spec.outputs * if self.spec.norm_after_relu().is_some() { 3 } else { 1 };
        let middle = first + (all - first) / 2;
        Ok([self.numbers(first..middle)?, self.numbers(middle..all)?])
    }

    fn numbers(&self, range: Range<usize>) -> Result<Vec<f32>> {
        self.numbers_of(&self.vector_part.bytes()?, range)
    }

    fn numbers_of(&self, bytes: &[u8], range: Range<usize>) -> Result<Vec<f32>> {
        let values: Vec<f32> = range.map(|i| ValueFormat::F32.get(bytes, 1, i, 0)).collect();
        if values.iter().all(|value| value.is_finite()) {
            return Ok(values);
        }
        Err(Error::tensor(&self.spec.name, "has a bias, scale or shift that is not finite"))
    }
}
