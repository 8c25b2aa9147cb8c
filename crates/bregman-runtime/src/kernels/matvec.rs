//! A linear layer of one vector.

use super::sparse::Sparse;
use crate::Result;
use crate::file::StoredLayer;

/// `y = W·x + b` for a single x.
pub(crate) struct Linear {
    weights: Sparse,
    bias: Vec<f32>,
}

impl Linear {
    /// Those columns of a stored layer, with its bias or without.
    pub(crate) fn new(layer: &StoredLayer, columns: std::ops::Range<usize>, bias: bool) -> Result<Self> {
        let (rows, all) = (layer.spec.shape[0], layer.spec.shape[1..].iter().product::<usize>());
        let mut weights = Sparse::new(rows);
        layer.for_each(|at, value| {
            if value != 0.0 && columns.contains(&(at % all)) {
                weights.push(at / all, (at % all - columns.start) as u32, value);
            }
        })?;
        weights.finish();
        let bias = if bias { layer.vectors()?[0].clone() } else { vec![0.0; rows] };
        Ok(Self { weights, bias })
    }

    /// Weights that are not zero.
    pub(crate) fn live(&self) -> usize {
        self.weights.live()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.weights.bytes() + 4 * self.bias.len()
    }

    /// # Panics
    /// If a vector has another length.
    pub(crate) fn apply(&self, x: &[f32], y: &mut [f32]) {
        assert_eq!(y.len(), self.bias.len(), "one output per row");
        for (row, (y, bias)) in y.iter_mut().zip(&self.bias).enumerate() {
            *y = bias + self.weights.dot(row, x);
        }
    }
}
