//! A linear layer of one vector.

use std::ops::Range;

use bregman_base::lanes::nonzeros;

use super::Runs;
use super::sparse::{Entries, Sparse};
use super::tile::Tiling;
use crate::Result;
use crate::file::StoredLayer;

/// `y = W·x + b` for a single x.
pub(crate) struct Linear {
    weights: Form,
    bias: Vec<f32>,
}

enum Form {
    Sparse(Sparse),
    /// Rows, where more than half of the weights are not zero: a non-zero takes as much memory as two of them.
    Dense(Vec<f32>),
}

/// Sums of a row, so that no addition waits for the one before.
const SUMS: usize = 32;

impl Linear {
    /// Those columns of a stored layer, with its bias or without.
    pub(crate) fn new(layer: &StoredLayer, columns: Range<usize>, bias: bool) -> Result<Self> {
        let rows = layer.spec.outputs;
        let weights = if 2 * layer.live > layer.spec.weights() {
            Form::Dense(layer.rows_of(columns)?)
        } else {
            Form::Sparse(Sparse::new(&Entries::of(layer, columns.clone())?, columns.len(), Tiling::Whole))
        };
        let bias = if bias { layer.vectors()?[0].clone() } else { vec![0.0; rows] };
        Ok(Self { weights, bias })
    }

    /// Outputs.
    pub(crate) fn rows(&self) -> usize {
        self.bias.len()
    }

    /// Weights that are not zero.
    pub(crate) fn live(&self) -> usize {
        match &self.weights {
            Form::Sparse(sparse) => sparse.live(),
            Form::Dense(rows) => nonzeros(rows),
        }
    }

    pub(crate) fn runs(&self) -> Runs {
        match self.weights {
            Form::Sparse(_) => Runs::Sparse,
            Form::Dense(_) => Runs::Dense,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let weights = match &self.weights {
            Form::Sparse(sparse) => sparse.bytes(),
            Form::Dense(rows) => 4 * rows.len(),
        };
        weights + 4 * self.bias.len()
    }

    /// # Panics
    /// If a vector has another length.
    pub(crate) fn apply(&self, x: &[f32], y: &mut [f32]) {
        assert_eq!(y.len(), self.bias.len(), "one output per row");
        y.copy_from_slice(&self.bias);
        match &self.weights {
            Form::Sparse(sparse) => sparse.add_product(x, y),
            Form::Dense(rows) => {
                assert_eq!(rows.len(), x.len() * y.len(), "one weight per input and output");
                rows.chunks_exact(x.len()).zip(y).for_each(|(row, y)| *y += dot(row, x));
            }
        }
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<SUMS>(), b.as_chunks::<SUMS>());
    let mut sums = [0f32; SUMS];
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}
