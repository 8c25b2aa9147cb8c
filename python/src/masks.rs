//! Masks that move, for any optimizer of torch: which weights may be non-zero is decided here, by the core's policies;
//! keeping the others at zero is the Python side's part.

use bregman::topology::{
    AcDc, DropGrow, Exchange, GraNet, GradualPruning, Growth, MaskedLayer, Mest, MutationStage, OneShotPruning, Phases,
    RunClock, Snip, StaticMask,
};
use bregman::{Param, Pruning, Ramp, Topology};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::Deserialize;

use crate::lent::Lent;
use crate::settings::role;
use crate::{raise, read_settings};

/// A policy in the words of the recipes.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum Policy {
    Static { target: f64 },
    Set { target: f64, period: u64, fraction: f64, until: f64 },
    Rigl { target: f64, period: u64, fraction: f64, until: f64 },
    Granet { target: f64, from: f64, period: u64, fraction: f64, until: f64 },
    Mest { target: f64, period: u64, stages: Vec<MutationStage>, gradient_weight: f64 },
    Gradual { target: f64, ramp: Ramp },
    OneShot { target: f64, at: u64 },
    Snip { target: f64, rounds: u64 },
    Acdc { target: f64, epochs: u64 },
}

impl Policy {
    fn topology(self, pruning: Pruning, seed: u64) -> bregman::Result<Topology> {
        let drop_grow = |target, exchange, growth| DropGrow { target, exchange, growth };
        match self {
            Self::Static { target } => Topology::new(StaticMask { target }, pruning, seed),
            Self::Set { target, period, fraction, until } => {
                Topology::new(drop_grow(target, Exchange { period, fraction, until }, Growth::Random), pruning, seed)
            }
            Self::Rigl { target, period, fraction, until } => {
                Topology::new(drop_grow(target, Exchange { period, fraction, until }, Growth::Steepest), pruning, seed)
            }
            Self::Granet { target, from, period, fraction, until } => {
                Topology::new(GraNet { target, from, period, fraction, until }, pruning, seed)
            }
            Self::Mest { target, period, stages, gradient_weight } => {
                Topology::new(Mest { target, period, stages, gradient_weight }, pruning, seed)
            }
            Self::Gradual { target, ramp } => Topology::new(GradualPruning { target, ramp }, pruning, seed),
            Self::OneShot { target, at } => Topology::new(OneShotPruning { target, epoch: at }, pruning, seed),
            Self::Snip { target, rounds } => Topology::new(Snip { target, rounds }, pruning, seed),
            Self::Acdc { target, epochs } => {
                Topology::new(AcDc { target, phases: Phases::published(epochs) }, pruning, seed)
            }
        }
    }
}

/// Where a run stands: steps taken, steps in all, epoch, steps taken in it.
type Clock = (u64, u64, u64, u64);

fn clock((step, total, epoch, batch): Clock) -> RunClock {
    RunClock { step, total, epoch, batch }
}

/// Decides which weights are masked. Memory is lent for the length of a call, masks are one byte per weight.
#[pyclass(module = "bregman._bregman")]
pub(crate) struct MaskMover {
    topology: Topology,
    layers: Vec<Param>,
    seed: u64,
}

#[pymethods]
impl MaskMover {
    #[new]
    fn new(policy: &str, pruning: &str, layers: Vec<(String, Vec<usize>)>, seed: u64) -> PyResult<Self> {
        let (policy, pruning): (Policy, Pruning) = (read_settings(policy)?, read_settings(pruning)?);
        let layers = layers.into_iter().map(|(name, shape)| Param { role: role(true, &shape), name, shape }).collect();
        Ok(Self { topology: policy.topology(pruning, seed).map_err(raise)?, layers, seed })
    }

    /// Whether masks change before the step at this clock, or after it where the policy looks at gradients.
    fn is_due(&self, at: Clock) -> bool {
        self.topology.policy().change(&clock(at)).is_some()
    }

    #[getter]
    fn needs_gradients(&self) -> bool {
        self.topology.policy().needs_gradients()
    }

    /// The masks before the first step, after a round of those that make them; none where there is no such round.
    fn start<'py>(
        &self,
        py: Python<'py>,
        round: usize,
        theta: Vec<usize>,
        grads: Vec<usize>,
        masks: Vec<Vec<u8>>,
    ) -> PyResult<Option<Vec<Bound<'py, PyBytes>>>> {
        let Some(sparsity) = self.topology.policy().start().round(round) else { return Ok(None) };
        let masks = bools(masks);
        let masks = py.detach(|| self.topology.start_masks(sparsity, &self.seen(&theta, &grads, &masks, 0)));
        Ok(Some(self.bytes(py, masks.map_err(raise)?)))
    }

    /// The masks after the change that is due at this clock.
    fn change<'py>(
        &self,
        py: Python<'py>,
        at: Clock,
        theta: Vec<usize>,
        grads: Vec<usize>,
        masks: Vec<Vec<u8>>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let masks = bools(masks);
        let Some(change) = self.topology.policy().change(&clock(at)) else { return Ok(self.bytes(py, masks)) };
        let masks = py.detach(|| self.topology.masks(change, &self.seen(&theta, &grads, &masks, at.0)));
        Ok(self.bytes(py, masks.map_err(raise)?))
    }
}

impl MaskMover {
    /// The layers as the policy sees them; without gradients or masks where there are none.
    fn seen<'a>(&'a self, theta: &[usize], grads: &[usize], masks: &'a [Vec<bool>], step: u64) -> Vec<MaskedLayer<'a>> {
        let layer = |(at, param): (usize, &'a Param)| {
            let lent = |all: &[usize]| all.get(at).map_or(&[][..], |&address| Lent::new(address, param.len()).values());
            let mask = masks.get(at).map_or(&[][..], Vec::as_slice);
            MaskedLayer::new(param, lent(theta), lent(grads), mask, self.seed, step)
        };
        self.layers.iter().enumerate().map(layer).collect()
    }

    /// One byte per weight, 1 where it may be non-zero.
    fn bytes<'py>(&self, py: Python<'py>, masks: Vec<Vec<bool>>) -> Vec<Bound<'py, PyBytes>> {
        let bytes = |(mask, param): (Vec<bool>, &Param)| {
            let bytes: Vec<u8> =
                if mask.is_empty() { vec![1; param.len()] } else { mask.into_iter().map(u8::from).collect() };
            PyBytes::new(py, &bytes)
        };
        masks.into_iter().zip(&self.layers).map(bytes).collect()
    }
}

fn bools(masks: Vec<Vec<u8>>) -> Vec<Vec<bool>> {
    masks.into_iter().map(|mask| mask.into_iter().map(|bit| bit != 0).collect()).collect()
}
