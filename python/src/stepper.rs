//! The optimizer behind `bregman.torch`: what a step does and how λ moves, over arrays that Python owns.

use bregman::controller::{LoopState, Memory};
use bregman::{
    AdaptiveOptimizer, Controller, ControllerConfig, GroupRule, Groups, Optimizer, OptimizerState, Param, Penalty,
    Role, Rule, Scope, Sparsity, StepReport, TensorStats,
};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

use crate::cuda::CudaPlace;
use crate::engine::{LentArrays, LentState, Place};
use crate::lent::Lent;
use crate::reduce::Reduction;
use crate::torch_ops::TorchOps;
use crate::{raise, settings, to_json};

/// All of an optimizer but its arrays.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    rule: Rule,
    /// Absent where λ stays.
    controller: Option<ControllerConfig>,
    /// λ₀; the rule's own where absent.
    lambda: Option<f64>,
    params: Vec<ParamSettings>,
}

/// A parameter and its group's settings.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ParamSettings {
    name: String,
    shape: Vec<usize>,
    /// Whether it may have a penalty; biases and normalisations may not.
    weight: bool,
    penalty: Penalty,
    lambda_scale: f64,
}

impl From<ParamSettings> for (Param, GroupRule) {
    fn from(settings: ParamSettings) -> Self {
        let ParamSettings { name, shape, weight, penalty, lambda_scale } = settings;
        let role = role(weight, &shape);
        (Param { name, shape, role }, GroupRule { penalty, lambda_scale, ..GroupRule::default() })
    }
}

/// The role of a parameter of which only the shape is known, and whether it is a weight.
pub(crate) fn role(weight: bool, shape: &[usize]) -> Role {
    match (weight, shape.len()) {
        (false, _) => Role::Bias,
        (true, ..=2) => Role::LinearWeight,
        (true, _) => Role::ConvWeight,
    }
}

/// Everything that is remembered between steps and is not an array.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    step: u64,
    /// λ of every tensor, before its λ-scale.
    lambda: Vec<f64>,
    /// The control loops; empty where λ stays.
    loops: Vec<LoopState>,
}

/// An optimizer, and what moves its λ.
#[expect(clippy::large_enum_variant, reason = "there is one of them")]
enum Steering {
    Adaptive(AdaptiveOptimizer<LentArrays>),
    Fixed(Optimizer<LentArrays>),
}

impl Steering {
    fn optimizer(&self) -> &Optimizer<LentArrays> {
        match self {
            Steering::Adaptive(optimizer) => optimizer.optimizer(),
            Steering::Fixed(optimizer) => optimizer,
        }
    }
}

/// An optimizer that is made in two steps: from settings (and what was saved), then with the arrays Python lends it.
#[pyclass(module = "bregman._bregman")]
pub(crate) struct Stepper {
    rule: Rule,
    groups: Groups,
    controller: Option<Controller>,
    saved: Saved,
    steering: Option<Steering>,
}

#[pymethods]
impl Stepper {
    /// An optimizer of these settings, at its start or where `saved` was. Tensors that are new since then, all of them
    /// last, begin with the λ of the others.
    #[new]
    #[pyo3(signature = (settings_json, saved = None))]
    fn new(settings_json: &str, saved: Option<&str>) -> PyResult<Self> {
        let Settings { rule, controller, lambda, params } = settings(settings_json)?;
        let groups = Groups::paired(params.into_iter().map(Into::into).collect()).map_err(raise)?;
        let lambda = lambda.or(rule.default_lambda()).unwrap_or(1.0);
        let mut controller =
            controller.map(|config| Controller::new(config, &groups, lambda)).transpose().map_err(raise)?;
        let start = controller.as_ref().map_or(lambda, |controller| controller.state()[0].lambda);
        let mut saved = match saved {
            Some(json) => settings(json)?,
            None => Saved { step: 0, lambda: vec![], loops: vec![] },
        };
        let common = saved.lambda.iter().copied().find(|_| saved.loops.len() <= 1).unwrap_or(start);
        saved.lambda.resize(groups.params().len().max(saved.lambda.len()), common);
        if let Some(controller) = &mut controller {
            let loops = controller.state().len();
            saved.loops.resize(loops.max(saved.loops.len()), LoopState { lambda: start, memory: Memory::default() });
            controller.restore(saved.loops.clone()).map_err(raise)?;
        }
        // refuses what the optimizer would refuse, before there are arrays
        Optimizer::over(rule, groups.clone(), state(&saved, ()), stats(&groups)).map_err(raise)?;
        Ok(Self { rule, groups, controller, saved, steering: None })
    }

    /// Lends the arrays of every tensor as `(p, m, v, len)`, an address of 0 where the rule keeps none. With `gpu`, a
    /// number, they are there; with `ops` torch computes wherever they are; else they are in memory. `sum` adds up the
    /// counts of several processes, of which this one counts the tensors marked in `counts`.
    #[pyo3(signature = (states, gpu = None, ops = None, sum = None, counts = vec![]))]
    fn lend(
        &mut self,
        states: Vec<(usize, usize, usize, usize)>,
        gpu: Option<usize>,
        ops: Option<Py<PyAny>>,
        sum: Option<Py<PyAny>>,
        counts: Vec<bool>,
    ) -> PyResult<()> {
        let lend = |(p, m, v, len): (usize, usize, usize, usize)| {
            let [p, m, v] = [p, m, v].map(|array| if array == 0 { Lent::NOTHING } else { Lent::new(array, len) });
            LentState { p, m, v }
        };
        let states: Vec<LentState> = states.into_iter().map(lend).collect();
        let keeps_duals = self.rule.mirror().is_some();
        let place = match (ops, gpu) {
            (Some(ops), _) => Place::Torch(TorchOps::new(ops, keeps_duals)),
            (None, Some(gpu)) => Place::Cuda(Box::new(CudaPlace::open(gpu, &states, keeps_duals).map_err(raise)?)),
            (None, None) => Place::Host(states),
        };
        let names = self.groups.params().iter().map(|param| param.name.clone()).collect();
        let arrays = LentArrays { names, place, reduction: sum.map(|sum| Reduction::new(sum, counts)) };
        let state = state(&self.saved, arrays);
        let optimizer = Optimizer::over(self.rule, self.groups.clone(), state, stats(&self.groups)).map_err(raise)?;
        self.steering = Some(match self.controller.take() {
            Some(controller) => Steering::Adaptive(AdaptiveOptimizer::over(optimizer, controller).map_err(raise)?),
            None => Steering::Fixed(optimizer),
        });
        Ok(())
    }

    /// One step: weights as `(address, len, whole)`, addresses of gradients (0 for none), and learning rates. Returns
    /// λ, the sparsity and its target; the target is absent where λ stays. On a GPU it begins when all is done that
    /// `stream` was given.
    #[pyo3(signature = (theta, grads, rates, stream = 0))]
    fn step(
        &mut self,
        py: Python<'_>,
        theta: Vec<(usize, usize, usize)>,
        grads: Vec<usize>,
        rates: Vec<f64>,
        stream: u64,
    ) -> PyResult<(f64, f64, Option<f64>)> {
        let steering = self.steering.as_mut().ok_or_else(no_arrays)?;
        let grads: Vec<Lent> =
            theta.iter().zip(&grads).map(|(theta, &g)| Lent::new(g, theta.1).part(theta.2)).collect();
        let mut theta: Vec<Lent> =
            theta.into_iter().map(|(address, len, whole)| Lent::new(address, len).part(whole)).collect();
        py.detach(|| {
            let grads: Vec<&Lent> = grads.iter().collect();
            let mut theta: Vec<&mut Lent> = theta.iter_mut().collect();
            if let Place::Cuda(place) = &steering.optimizer().state().tensors.place {
                place.begin_after(stream)?;
            }
            let done = match steering {
                Steering::Adaptive(optimizer) => {
                    let report = optimizer.step_at(&mut theta, &grads, |tensor| rates[tensor]);
                    report.map(|StepReport { lambda, sparsity, target }| (lambda, sparsity, Some(target)))
                }
                Steering::Fixed(optimizer) => optimizer.step_at(&mut theta, &grads, |tensor| rates[tensor]).map(|()| {
                    let stats = Sparsity::new(optimizer.groups(), optimizer.stats()).total(Scope::Controlled);
                    (optimizer.state().lambda[0], stats.sparsity(), None)
                }),
            };
            if let Place::Cuda(place) = &steering.optimizer().state().tensors.place {
                place.finish()?;
            }
            done
        })
        .map_err(raise)
    }

    /// λ of every tensor, before its λ-scale.
    fn lambdas(&self) -> Vec<f64> {
        match &self.steering {
            Some(steering) => steering.optimizer().state().lambda.clone(),
            None => self.saved.lambda.clone(),
        }
    }

    /// Steps taken, λ and the control loops as JSON, from which `Stepper` continues to the same bits.
    fn save(&self) -> PyResult<String> {
        match &self.steering {
            None => to_json(&self.saved),
            Some(steering) => {
                let (state, loops) = (
                    steering.optimizer().state(),
                    match steering {
                        Steering::Adaptive(optimizer) => optimizer.controller().state().to_vec(),
                        Steering::Fixed(_) => vec![],
                    },
                );
                to_json(&Saved { step: state.step, lambda: state.lambda.clone(), loops })
            }
        }
    }

    /// Length and zeros of every tensor at the last step.
    fn zeros(&self) -> PyResult<Vec<(u64, u64)>> {
        let steering = self.steering.as_ref().ok_or_else(no_arrays)?;
        Ok(steering.optimizer().stats().iter().map(|stats| (stats.len, stats.zeros)).collect())
    }

    /// Which tensors have a penalty.
    fn controlled(&self) -> Vec<usize> {
        self.groups.controlled()
    }
}

fn state<A>(saved: &Saved, tensors: A) -> OptimizerState<A> {
    OptimizerState { step: saved.step, lambda: saved.lambda.clone(), tensors }
}

/// Of tensors in which nothing was counted yet.
fn stats(groups: &Groups) -> Vec<TensorStats> {
    groups.params().iter().map(|param| TensorStats { len: param.len() as u64, ..TensorStats::default() }).collect()
}

fn no_arrays() -> PyErr {
    PyRuntimeError::new_err("the optimizer has no arrays yet")
}
