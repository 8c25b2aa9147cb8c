//! The optimizer behind `bregman.torch`: what a step does and how λ moves, over arrays that Python owns.

use bregman::controller::{LoopState, Memory};
use bregman::{AdaptiveOptimizer, Controller, Error, Groups, Optimizer, Rule, Scope, Sparsity, StepReport};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::cuda::CudaPlace;
use crate::engine::{LentArrays, LentState, Place};
use crate::lent::{Lent, check_apart};
use crate::reduce::Reduction;
use crate::settings::{Saved, Settings, state, stats};
use crate::torch_ops::TorchOps;
use crate::{raise, read_settings, to_json};

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
    /// Values of every tensor that this process has, and of all of it.
    sizes: Vec<(usize, usize)>,
    /// Where the weights were at the last step.
    theta: Vec<usize>,
    /// The arrays that were lent, of which weights must stay apart; none where addresses are not those of memory.
    lent: Vec<LentState>,
    /// The weights of a step that a GPU may still be computing.
    under_way: Option<Vec<Lent>>,
}

/// Addresses of a tensor's weights, dual and moments, and how many values this process and all have of it.
type Placed = (usize, usize, usize, usize, usize, usize);

/// What a step did: λ, the sparsity, and its target unless λ stays.
type Report = (f64, f64, Option<f64>);

#[pymethods]
impl Stepper {
    /// An optimizer of these settings, at its start or where `saved` was. Tensors that are new since then, all of them
    /// last, begin with the λ of the others.
    #[new]
    #[pyo3(signature = (settings_json, saved = None))]
    fn new(settings_json: &str, saved: Option<&str>) -> PyResult<Self> {
        let Settings { rule, controller, lambda, params } = read_settings(settings_json)?;
        let groups = Groups::paired(params.into_iter().map(Into::into).collect()).map_err(raise)?;
        let lambda = lambda.or(rule.default_lambda()).unwrap_or(1.0);
        let mut controller =
            controller.map(|config| Controller::new(config, &groups, lambda)).transpose().map_err(raise)?;
        let start = controller.as_ref().map_or(lambda, |controller| controller.state()[0].lambda);
        let mut saved = match saved {
            Some(json) => read_settings(json)?,
            None => Saved { rule: None, step: 0, lambda: vec![], loops: vec![] },
        };
        saved.rule = Some(rule.name().into());
        let common = saved.lambda.iter().copied().find(|_| saved.loops.len() <= 1).unwrap_or(start);
        saved.lambda.resize(groups.params().len().max(saved.lambda.len()), common);
        if let Some(controller) = &mut controller {
            let loops = controller.state().len();
            saved.loops.resize(loops.max(saved.loops.len()), LoopState { lambda: start, memory: Memory::default() });
            controller.restore(saved.loops.clone()).map_err(raise)?;
        }
        // refuses what the optimizer would refuse, before there are arrays
        Optimizer::over(rule, groups.clone(), state(&saved, ()), stats(&groups)).map_err(raise)?;
        let (sizes, theta, lent) = (vec![], vec![], vec![]);
        Ok(Self { rule, groups, controller, saved, steering: None, sizes, theta, lent, under_way: None })
    }

    /// Lends the weights and arrays of every tensor, `(θ, p, m, v, len, whole)`, 0 where the rule keeps none, of which
    /// this process has `len` values of `whole`. With `gpu`, a number, they are there; with `ops` torch computes
    /// wherever they are; else they are in memory. `sum` adds up the counts of several processes, of which this one
    /// counts the tensors marked in `counts`. Two that share memory are refused, unless the addresses are `opaque`.
    #[pyo3(signature = (states, gpu = None, ops = None, sum = None, counts = vec![], opaque = false))]
    fn lend(
        &mut self,
        states: Vec<Placed>,
        gpu: Option<usize>,
        ops: Option<Py<PyAny>>,
        sum: Option<Py<PyAny>>,
        counts: Vec<bool>,
        opaque: bool,
    ) -> PyResult<()> {
        self.sizes = states.iter().map(|&(_, _, _, _, len, whole)| (len, whole)).collect();
        let theta = states.iter().map(|&(theta, ..)| theta).collect();
        let lend = |(_, p, m, v, len, _): Placed| {
            let [p, m, v] = [p, m, v].map(|array| if array == 0 { Lent::NOTHING } else { Lent::new(array, len) });
            LentState { p, m, v }
        };
        let states: Vec<LentState> = states.into_iter().map(lend).collect();
        self.lent = if opaque && ops.is_some() { vec![] } else { states.clone() };
        self.move_weights(theta).map_err(raise)?;
        let place = match (ops, gpu) {
            (Some(ops), _) => Place::Torch(TorchOps::new(ops)),
            (None, Some(gpu)) => Place::Cuda(Box::new(CudaPlace::open(gpu, &states).map_err(raise)?)),
            (None, None) => Place::Host(states),
        };
        let names = self.groups.params().iter().map(|param| param.name.clone()).collect();
        let arrays =
            LentArrays { names, place, counted: vec![], reduction: sum.map(|sum| Reduction::new(sum, counts)) };
        let state = state(&self.saved, arrays);
        let optimizer = Optimizer::over(self.rule, self.groups.clone(), state, stats(&self.groups)).map_err(raise)?;
        self.steering = Some(match self.controller.take() {
            Some(controller) => Steering::Adaptive(AdaptiveOptimizer::over(optimizer, controller).map_err(raise)?),
            None => Steering::Fixed(optimizer),
        });
        Ok(())
    }

    /// One step: addresses of weights (nothing if they are where they were) and gradients (0 for none), and learning
    /// rates, each with the number of tensors that it is for. Returns its report, or nothing where a GPU still computes
    /// in `stream` and λ does not move: `settle` has it then.
    #[pyo3(signature = (theta, grads, rates, stream = 0))]
    fn step(
        &mut self,
        py: Python<'_>,
        theta: Option<Vec<usize>>,
        grads: Vec<usize>,
        rates: Vec<(f64, usize)>,
        stream: u64,
    ) -> PyResult<Option<Report>> {
        py.detach(|| {
            self.launch(theta, &grads, &rates, stream, false)?;
            self.settle_if_due()
        })
        .map_err(raise)
    }

    /// The report of a step that was under way, after waiting for it; nothing if none was.
    fn settle(&mut self, py: Python<'_>) -> PyResult<Option<Report>> {
        py.detach(|| self.wait()).map_err(raise)
    }

    /// Puts a step into `stream`, which is being captured in a graph.
    fn capture(&self, stream: u64) -> PyResult<()> {
        if matches!(self.rule, Rule::Str(_)) {
            let problem = "STR cannot be captured in a CUDA graph: before a step, thresholds move by its gradients";
            return Err(PyRuntimeError::new_err(problem));
        }
        let place = self.gpu().ok_or_else(|| PyRuntimeError::new_err("only steps of our kernel can be captured"))?;
        place.follow(stream);
        place.capture().map_err(raise)
    }

    /// Before the replay of a graph with a step in it: as `step` but for the step itself.
    fn prepare(
        &mut self,
        py: Python<'_>,
        theta: Option<Vec<usize>>,
        grads: Vec<usize>,
        rates: Vec<(f64, usize)>,
        stream: u64,
    ) -> PyResult<()> {
        py.detach(|| self.launch(theta, &grads, &rates, stream, true)).map_err(raise)
    }

    /// After the replay, in the same stream: the report as from `step`.
    fn replayed(&mut self, py: Python<'_>) -> PyResult<Option<Report>> {
        py.detach(|| {
            self.gpu().map_or(Ok(()), CudaPlace::count)?;
            self.settle_if_due()
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
                let rule = Some(self.rule.name().into());
                to_json(&Saved { rule, step: state.step, lambda: state.lambda.clone(), loops })
            }
        }
    }

    /// Length and zeros of every tensor at the last step.
    fn zeros(&self) -> PyResult<Vec<(u64, u64)>> {
        let steering = self.steering.as_ref().ok_or_else(|| raise(no_arrays()))?;
        Ok(steering.optimizer().stats().iter().map(|stats| (stats.len, stats.zeros)).collect())
    }

    /// Which tensors have a penalty.
    fn controlled(&self) -> Vec<usize> {
        self.groups.controlled()
    }
}

impl Stepper {
    fn gpu(&self) -> Option<&CudaPlace> {
        match &self.steering.as_ref()?.optimizer().state().tensors.place {
            Place::Cuda(place) => Some(place),
            Place::Host(_) | Place::Torch(_) => None,
        }
    }

    /// Weights are at these addresses now. Refuses those that overlap one another or the arrays: both would be written
    /// at once.
    fn move_weights(&mut self, theta: Vec<usize>) -> bregman::Result<()> {
        let weights = theta.iter().zip(&self.sizes).map(|(&address, &(len, _))| Lent::new(address, len));
        let each = self.groups.params().iter().zip(weights).zip(&self.lent);
        let lent = each.flat_map(|((param, weights), state)| {
            let all = state.arrays().into_iter().chain([weights]);
            all.map(move |lent| (param.name.as_str(), lent))
        });
        check_apart(lent)?;
        self.theta = theta;
        Ok(())
    }

    /// Begins a step, or only makes it ready for the replay of a graph.
    fn launch(
        &mut self,
        theta: Option<Vec<usize>>,
        grads: &[usize],
        rates: &[(f64, usize)],
        stream: u64,
        replayed: bool,
    ) -> bregman::Result<()> {
        self.wait()?;
        if let Some(theta) = theta.filter(|theta| *theta != self.theta) {
            self.move_weights(theta)?;
        }
        let rates: Vec<f64> = rates.iter().flat_map(|&(rate, count)| std::iter::repeat_n(rate, count)).collect();
        let lend = |(&address, &(len, whole)): (&usize, &(usize, usize))| Lent::new(address, len).part(whole);
        let given = |lent: Lent| if lent.address() == 0 { Lent::NOTHING } else { lent };
        let grads: Vec<Lent> = grads.iter().zip(&self.sizes).map(lend).map(given).collect();
        let mut weights: Vec<Lent> = self.theta.iter().zip(&self.sizes).map(lend).collect();
        if let Some(place) = self.gpu() {
            place.follow(stream);
            place.replays(replayed);
        }
        let Some(steering) = &mut self.steering else { return Err(no_arrays()) };
        let (grads, tau) = (grads.iter().collect::<Vec<_>>(), |tensor: usize| rates[tensor]);
        let mut theta: Vec<&mut Lent> = weights.iter_mut().collect();
        let launched = match steering {
            Steering::Adaptive(optimizer) => optimizer.launch_at(&mut theta, &grads, tau),
            Steering::Fixed(optimizer) => optimizer.launch_at(&mut theta, &grads, tau),
        };
        if let Some(place) = self.gpu() {
            place.replays(false);
        }
        self.under_way = launched.is_ok().then_some(weights);
        launched
    }

    /// Waits for a step where λ may move after it, and where nothing is gained by going on meanwhile.
    fn settle_if_due(&mut self) -> bregman::Result<Option<Report>> {
        let due = matches!(&self.steering, Some(Steering::Adaptive(optimizer)) if optimizer.is_due());
        if due || self.gpu().is_none() { self.wait() } else { Ok(None) }
    }

    /// Waits for a step that is under way, and moves λ where that is due.
    fn wait(&mut self) -> bregman::Result<Option<Report>> {
        let (Some(mut theta), Some(steering)) = (self.under_way.take(), &mut self.steering) else { return Ok(None) };
        let report = match steering {
            Steering::Adaptive(optimizer) => {
                let StepReport { lambda, sparsity, target } =
                    optimizer.settle(&mut theta.iter_mut().collect::<Vec<_>>())?;
                (lambda, sparsity, Some(target))
            }
            Steering::Fixed(optimizer) => {
                optimizer.settle()?;
                let stats = Sparsity::new(optimizer.groups(), optimizer.stats()).total(Scope::Controlled);
                (mean(&optimizer.state().lambda, &optimizer.groups().controlled()), stats.sparsity(), None)
            }
        };
        Ok(Some(report))
    }
}

/// The mean λ of these tensors; that of the first where none has a penalty.
fn mean(lambda: &[f64], tensors: &[usize]) -> f64 {
    match tensors {
        [] => lambda[0],
        [first, rest @ ..] if rest.iter().all(|&tensor| lambda[tensor] == lambda[*first]) => lambda[*first],
        all => all.iter().map(|&tensor| lambda[tensor]).sum::<f64>() / all.len() as f64,
    }
}

fn no_arrays() -> Error {
    Error::Engine { problem: "the optimizer has no arrays yet".into() }
}
