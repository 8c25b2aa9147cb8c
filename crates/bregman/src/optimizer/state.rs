//! Everything an optimizer remembers between steps, in the open.

use serde::{Deserialize, Serialize};

use super::engine::HostArrays;
use super::rule::{Moments, Rule};
use crate::error::{Error, Result};
use crate::param::Param;

/// The state of an [`Optimizer`](super::Optimizer) whose arrays are of type `A`. With it and the weights a run
/// continues to the same bits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OptimizerState<A = HostArrays> {
    /// Steps taken.
    pub step: u64,
    /// λ of every tensor, before the group's λ-scale.
    pub lambda: Vec<f64>,
    /// Arrays of every tensor.
    pub tensors: A,
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
    /// Weights that may be non-zero; empty where all may.
    pub mask: Vec<bool>,
}

impl TensorState {
    /// The float arrays with their names, for a file of named tensors.
    pub fn arrays(&self) -> [(&'static str, &[f32]); 3] {
        [("p", &self.p), ("m", &self.m), ("v", &self.v)]
    }

    /// Puts another mask in place; weights that were masked and may grow again start with moments of 0.
    pub(super) fn set_mask(&mut self, mask: Vec<bool>) {
        for moment in [&mut self.m, &mut self.v] {
            for (i, (moment, before)) in moment.iter_mut().zip(&self.mask).enumerate() {
                if !before && mask.get(i).copied().unwrap_or(true) {
                    *moment = 0.0;
                }
            }
        }
        self.mask = mask;
    }

    /// Whether this has the arrays that `rule` keeps, in the sizes the parameter asks for.
    pub(super) fn check(&self, rule: &Rule, param: &Param) -> Result<()> {
        let moments = rule.moments();
        for (array, what, kept) in [
            (&self.p, "saved dual", rule.mirror().is_some()),
            (&self.m, "saved first moment", moments != Moments::Neither),
            (&self.v, "saved second moment", moments == Moments::Both),
        ] {
            let (expected, found) = (if kept { param.len() } else { 0 }, array.len());
            if found != expected {
                return Err(Error::Length { parameter: param.name.clone(), what, expected, found });
            }
            param.check_finite(what, array)?;
        }
        if self.mask.is_empty() { Ok(()) } else { param.check_len("saved mask", self.mask.len()) }
    }
}
