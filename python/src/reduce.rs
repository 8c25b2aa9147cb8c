//! Counts of tensors whose parts are in several processes (FSDP2): each counts its part, and all add them up.

use bregman::optimizer::{Counted, Duals};
use bregman::select::Digit;
use bregman::{Error, Result};
use pyo3::prelude::*;

/// How counts become those of all processes.
pub(crate) struct Reduction {
    /// Python's `list[float] -> list[float]`, the sum over the processes. Counts below 2⁵³ are exact.
    sum: Py<PyAny>,
    /// For every tensor, whether this process counts it: others may have the same values, and one count is enough.
    counts: Vec<bool>,
}

impl Reduction {
    pub(crate) fn new(sum: Py<PyAny>, counts: Vec<bool>) -> Self {
        Self { sum, counts }
    }

    /// The sum of these numbers over all processes.
    fn sum(&self, numbers: Vec<f64>) -> Result<Vec<f64>> {
        let asked = numbers.len();
        let call = |py: Python<'_>| self.sum.call1(py, (numbers,))?.extract::<Vec<f64>>(py);
        let sums = Python::attach(call).map_err(|error| refused(&error))?;
        if sums.len() == asked { Ok(sums) } else { Err(Error::Engine { problem: "a sum of another length".into() }) }
    }

    /// What all processes counted. A gradient that is not finite is an error in every one of them.
    pub(crate) fn counted(&self, mut counted: Vec<Counted>, names: &[String]) -> Result<Vec<Counted>> {
        let own = |(counted, &counts): (&Counted, &bool)| {
            let share = if counts { [counted.zeros as f64, counted.sum_squares] } else { [0.0; 2] };
            [share[0], share[1], f64::from(u8::from(counted.non_finite.is_some()))]
        };
        let sums = self.sum(counted.iter().zip(&self.counts).flat_map(own).collect())?;
        for ((counted, sums), name) in counted.iter_mut().zip(sums.as_chunks::<3>().0).zip(names) {
            (counted.zeros, counted.sum_squares) = (sums[0] as u64, sums[1]);
            if sums[2] > 0.0 && counted.non_finite.is_none() {
                return Err(Error::NonFiniteElsewhere { parameter: name.clone() });
            }
        }
        Ok(counted)
    }

    /// The tensors among these that this process counts.
    fn counted_here(&self, tensors: &[usize]) -> Vec<usize> {
        tensors.iter().copied().filter(|&tensor| self.counts[tensor]).collect()
    }
}

/// Duals of which this process has a part, or all.
pub(crate) struct Reduced<'a> {
    pub(crate) own: Box<dyn Duals + 'a>,
    pub(crate) reduction: Option<&'a Reduction>,
}

impl Duals for Reduced<'_> {
    fn histogram(&self, tensors: &[usize], digit: Digit, bins: &mut [u64]) -> Result<()> {
        let Some(reduction) = self.reduction else { return self.own.histogram(tensors, digit, bins) };
        let mut own = vec![0; bins.len()];
        self.own.histogram(&reduction.counted_here(tensors), digit, &mut own)?;
        let sums = reduction.sum(own.into_iter().map(|count| count as f64).collect())?;
        bins.iter_mut().zip(sums).for_each(|(bin, sum)| *bin += sum as u64);
        Ok(())
    }

    fn live_at(&self, tensors: &[usize], lambda: f64) -> Result<u64> {
        let Some(reduction) = self.reduction else { return self.own.live_at(tensors, lambda) };
        let own = self.own.live_at(&reduction.counted_here(tensors), lambda)?;
        Ok(reduction.sum(vec![own as f64])?[0] as u64)
    }
}

/// An exception of Python code that the method called, as an error of the method.
pub(crate) fn refused(error: &PyErr) -> Error {
    Error::Engine { problem: error.to_string() }
}
