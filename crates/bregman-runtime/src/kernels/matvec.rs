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
        let rows = layer.spec.outputs;
        let weights = Sparse::new(layer, columns)?;
        let bias = if bias { layer.vectors()?[0].clone() } else { vec![0.0; rows] };
        Ok(Self { weights, bias })
    }

    /// Outputs.
    pub(crate) fn rows(&self) -> usize {
        self.bias.len()
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
        y.copy_from_slice(&self.bias);
        self.weights.add_product(x, y);
    }
}
