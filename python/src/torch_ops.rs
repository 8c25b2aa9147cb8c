//! Passes that torch computes with its own operations, on any device that it has: `bregman/torch/_ops.py` does what is
//! asked for here. Slower than the other ways, and the only one on devices for which there is no kernel of ours.

use bregman::optimizer::{Correction, Counted, DualKey, Duals, TensorStep, Update};
use bregman::select::Digit;
use bregman::{Result, Shrinkage};
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;

use crate::reduce::refused;

/// The Python object that has the tensors of the step.
pub(crate) struct TorchOps {
    ops: Py<PyAny>,
}

/// What Python counted in a tensor: zeros, squares, and place and value of the first gradient that is not finite.
type CountedByTorch = (u64, f64, Option<(usize, f32)>);

/// A prox or a correction of one tensor: kind and group length.
type Structure = (&'static str, usize);

fn structure(shrinkage: Shrinkage) -> Structure {
    (Shrinkage::KINDS[shrinkage.code() as usize], shrinkage.group_len())
}

impl TorchOps {
    pub(crate) fn new(ops: Py<PyAny>) -> Self {
        Self { ops }
    }

    pub(crate) fn pass(&self, steps: &[TensorStep]) -> Result<Vec<Counted>> {
        let step = |step: &TensorStep| {
            let update = (step.update.code(), floats(&step.update));
            (update, structure(step.prox.shrinkage), step.prox.threshold, step.prox.scale)
        };
        let counted: Vec<CountedByTorch> =
            self.call("run_pass", (steps.iter().map(step).collect::<Vec<_>>(),), |counted| counted.extract())?;
        let counted = counted.into_iter();
        Ok(counted.map(|(zeros, sum_squares, non_finite)| Counted { zeros, sum_squares, non_finite }).collect())
    }

    pub(crate) fn correct(&self, corrections: &[Option<Correction>]) -> Result<()> {
        let correction =
            |correction: &Option<Correction>| correction.map(|c| (structure(c.shrinkage), c.ratio, c.delta, c.bound));
        self.call("correct", (corrections.iter().map(correction).collect::<Vec<_>>(),), |_| Ok(()))
    }

    /// Σ g·sgn(θ) of the weights at this address.
    pub(crate) fn pull(&self, theta: usize) -> Result<f64> {
        self.call("pull", (theta,), |sum| sum.extract())
    }

    pub(crate) fn duals(&self, keys: Vec<DualKey>) -> TorchDuals<'_> {
        TorchDuals { ops: self, keys }
    }

    /// Calls a method of the Python object, and reads what it returns.
    fn call<T>(
        &self,
        method: &str,
        args: impl for<'py> PyCallArgs<'py>,
        read: impl FnOnce(Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Result<T> {
        let call = |py: Python<'_>| read(self.ops.bind(py).call_method1(method, args)?);
        Python::attach(call).map_err(|error| refused(&error))
    }
}

/// The coefficients of an update, in the order of its fields.
fn floats(update: &Update) -> Vec<f32> {
    update.bytes().as_chunks().0.iter().map(|&bytes| f32::from_ne_bytes(bytes)).collect()
}

/// The duals of these tensors, counted by torch.
pub(crate) struct TorchDuals<'a> {
    ops: &'a TorchOps,
    keys: Vec<DualKey>,
}

impl TorchDuals<'_> {
    fn keys(&self, tensors: &[usize]) -> Vec<(usize, Structure, f64)> {
        tensors.iter().map(|&t| (t, structure(self.keys[t].shrinkage), self.keys[t].weight)).collect()
    }
}

impl Duals for TorchDuals<'_> {
    fn histogram(&self, tensors: &[usize], Digit { prefix, shift, width }: Digit, bins: &mut [u64]) -> Result<()> {
        let counts: Vec<u64> =
            self.ops.call("histogram", (self.keys(tensors), prefix, shift, width), |counts| counts.extract())?;
        bins.iter_mut().zip(counts).for_each(|(bin, count)| *bin += count);
        Ok(())
    }

    fn live_at(&self, tensors: &[usize], lambda: f64) -> Result<u64> {
        self.ops.call("live_at", (self.keys(tensors), lambda), |count| count.extract())
    }
}
