//! Everything an optimizer remembers between steps, in the open.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::param::Param;

/// The state of an [`Optimizer`](super::Optimizer). With it and the weights a run continues to the same bits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OptimizerState {
    /// Steps taken.
    pub step: u64,
    /// λ of every tensor, before the group's λ-scale.
    pub lambda: Vec<f64>,
    /// Arrays of every tensor.
    pub tensors: Vec<TensorState>,
}

/// The arrays kept for one tensor; an array the optimizer does not use is empty.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TensorState {
    /// Dual variable p of the Bregman optimizers.
    pub p: Vec<f32>,
    /// Momentum or first moment.
    pub m: Vec<f32>,
    /// Second moment.
    pub v: Vec<f32>,
    /// Weights that pruning lets live; empty where nothing is pruned.
    pub mask: Vec<bool>,
}

impl TensorState {
    /// The float arrays with their names, for a file of named tensors.
    pub fn arrays(&self) -> [(&'static str, &[f32]); 3] {
        [("p", &self.p), ("m", &self.m), ("v", &self.v)]
    }

    /// Whether this has the arrays of `like`, in the sizes the parameter asks for.
    pub(super) fn check_like(&self, like: &TensorState, param: &Param) -> Result<()> {
        let fits = |what, found: usize, expected: usize| match found == expected {
            true => Ok(()),
            false => Err(Error::Length { parameter: param.name.clone(), what, expected, found }),
        };
        fits("saved dual", self.p.len(), like.p.len())?;
        fits("saved first moment", self.m.len(), like.m.len())?;
        fits("saved second moment", self.v.len(), like.v.len())?;
        for (array, what) in
            self.arrays().map(|(_, array)| array).into_iter().zip(["saved dual", "saved moment", "saved second moment"])
        {
            param.check_finite(what, array)?;
        }
        if self.mask.is_empty() { Ok(()) } else { param.check_len("saved mask", self.mask.len()) }
    }
}
