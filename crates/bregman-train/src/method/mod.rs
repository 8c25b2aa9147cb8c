//! The method of a run: an optimizer, what moves its λ, and which weights are masked.
//!
//! | recipe | optimizer | λ | masks |
//! | --- | --- | --- | --- |
//! | `adaptive` | LinBreg, AdaBreg, ProxSGD | a controller moves it towards a target | none |
//! | `fixed` | the same | stays | none |
//! | `dense` | SGD, AdamW | none | none |
//! | `str` | SGD | every layer learns its own, and a controller multiplies all of them | none |
//! | `gradual`, `one_shot` | SGD, AdamW | none | the smallest weights |
//! | `static`, `snip` | SGD, AdamW | none | drawn at random, or by connection sensitivity |
//! | `set`, `rigl`, `granet`, `mest` | SGD, AdamW | none | weights are exchanged for others |
//! | `acdc` | SGD, AdamW | none | on and off in turns |
//!
//! What masks do and when is a policy, see [`bregman::topology`].

mod survival;

use std::borrow::Cow;

use bregman::controller::LoopState;
use bregman::optimizer::{Arrays, TensorState};
use bregman::topology::{RunClock, Start};
use bregman::{AdaptiveOptimizer, Groups, Law, Optimizer, OptimizerState, Rule, Scope, Sparsity, Topology};
use bregman_nn::{Extent, TrainableModel};
use bregman_tensor::Backend;

use crate::config::{self, MaskedRun, MethodConfig};
use crate::{Device, Experiment, Result};

pub(crate) use survival::GrownWeights;
pub use survival::Survival;

/// A control loop swings if the sparsity crosses its target more often than once in so many updates.
const SWINGING: u64 = 8;

/// λ of optimizers that have none.
const UNUSED: f64 = 1.0;

/// What one step did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MethodStep {
    /// λ, where there is one.
    pub lambda: Option<f64>,
    /// s(θ).
    pub sparsity: f64,
    /// s* at this step, where there is one.
    pub target: Option<f64>,
    /// What became of the weights that the last exchange of masks grew, if there was another in this step.
    pub survival: Survival,
}

/// How a run moves its weights and keeps count of the zeros.
pub struct Method<B: Device> {
    steering: Steering<B::Arrays>,
    /// The sparsity asked for, where neither a controller nor masks have one.
    target: Option<f64>,
    topology: Option<Topology>,
    /// What the last exchange of masks grew.
    grown: GrownWeights,
    /// What became of those that the one before had grown, until a step is told.
    survival: Survival,
    /// A step was launched and not settled.
    launched: bool,
}

/// An optimizer, and what moves its λ.
#[expect(clippy::large_enum_variant, reason = "there is one in a run")]
enum Steering<A> {
    /// A controller.
    Adaptive(AdaptiveOptimizer<A>),
    /// Nothing; the λ of optimizers that have one.
    Fixed(Optimizer<A>, Option<f64>),
}

impl<B: Device> Method<B> {
    /// The method of an experiment for a run of `total` steps. Starts the weights sparse where the method wants that.
    pub(crate) fn new(experiment: &Experiment, model: &mut TrainableModel<B>, total: u64) -> Result<Self> {
        let (config, seed) = (&experiment.method, experiment.seed);
        let (rule, freeze, params) =
            (config.rule(), config.freeze(total, experiment.train.epochs), model.params().described());
        let steering = match config {
            MethodConfig::Adaptive(config) => {
                let (groups, theta) = start_sparse(config.start(), model, seed)?;
                let mut optimizer =
                    AdaptiveOptimizer::new(rule, groups, config.controller(&experiment.length(total)), &theta)?;
                optimizer.set_freeze(freeze)?;
                Steering::Adaptive(optimizer.place(|arrays| model.backend().place(arrays, &params))?)
            }
            MethodConfig::Fixed(config) => {
                let (groups, theta) = start_sparse(config.start(), model, seed)?;
                let lambda = config.lambda.or(rule.default_lambda());
                let mut optimizer = Optimizer::new(rule, groups, lambda.unwrap_or(UNUSED), &theta)?;
                optimizer.set_freeze(freeze)?;
                Steering::Fixed(optimizer.place(|arrays| model.backend().place(arrays, &params))?, lambda)
            }
            MethodConfig::Str(settings) => {
                let (length, groups, theta) =
                    (experiment.length(total), config.groups(params.clone())?, weights(model)?);
                let rule = settings.rule(&length)?;
                match settings.controller(&length) {
                    Some(controller) => {
                        let optimizer = AdaptiveOptimizer::new(rule, groups, controller, &theta)?;
                        Steering::Adaptive(optimizer.place(|arrays| model.backend().place(arrays, &params))?)
                    }
                    None => {
                        let optimizer = Optimizer::new(rule, groups, settings.threshold, &theta)?;
                        Steering::Fixed(optimizer.place(|arrays| model.backend().place(arrays, &params))?, None)
                    }
                }
            }
            _ => {
                let groups = config.groups(params.clone())?;
                let optimizer = Optimizer::new(rule, groups, UNUSED, &weights(model)?)?;
                Steering::Fixed(optimizer.place(|arrays| model.backend().place(arrays, &params))?, None)
            }
        };
        let run = MaskedRun { seed, steps: total, epochs: experiment.train.epochs };
        let method = Self {
            steering,
            target: config.target(),
            topology: config.topology(run)?,
            grown: GrownWeights::default(),
            survival: Survival::default(),
            launched: false,
        };
        for (tensor, parameter) in model.params_mut().all_mut().iter_mut().enumerate() {
            let masked = method.topology.is_some() && parameter.param.role.is_weight();
            parameter.sparse = masked || method.optimizer().is_sparse(tensor);
        }
        model.refresh()?;
        Ok(method)
    }

    /// Whether some weights are masked.
    pub fn has_masks(&self) -> bool {
        self.topology.is_some()
    }

    /// The masks before the first step.
    pub fn start(&self) -> Start {
        self.topology.as_ref().map_or(Start::Dense, |topology| topology.policy().start())
    }

    /// Sets the masks of a round of the [start](Method::start), counted from 0, from the gradients in `model` where
    /// they are made from gradients.
    ///
    /// # Errors
    /// As [`Method::before_step`].
    pub fn start_masks(&mut self, round: usize, model: &mut TrainableModel<B>) -> Result<()> {
        if let (Some(topology), Steering::Fixed(optimizer, _)) = (&self.topology, &mut self.steering) {
            let (mut theta, grads) = model.parts_mut().1.values_and_gradients();
            optimizer.start_masks_on(topology, round, &mut theta, &grads)?;
            self.show_masks(model)?;
        }
        Ok(())
    }

    /// Which gradients the step at `clock` needs. Under masks those of the weights that they allow, and in frozen steps
    /// those of the weights that are not zero, as in STR always; all of them where zero weights wake up by their
    /// gradients, or masks follow from these.
    pub fn extent(&self, clock: &RunClock) -> Extent {
        let on_support = match self.topology.as_ref().map(Topology::policy) {
            Some(policy) => {
                let by_gradients = policy.needs_gradients() && policy.change(clock).is_some();
                policy.sparsity(clock) > 0.0 && !by_gradients
            }
            None => self.is_learnt() || !self.optimizer().is_full_after(u64::from(self.launched)),
        };
        if on_support { Extent::Support } else { Extent::All }
    }

    /// Which weights a step with gradients of this extent may have moved, zeros or not.
    pub fn moved(&self, gradients: Extent) -> Extent {
        if self.is_learnt() { Extent::All } else { gradients }
    }

    /// Whether thresholds are learnt. Zero weights then move without a gradient, by their momentum and decay, and wake
    /// up where a threshold falls.
    fn is_learnt(&self) -> bool {
        matches!(self.optimizer().rule(), Rule::Str(_))
    }

    /// Before the forward pass of the step at `clock`; tells whether weights changed.
    ///
    /// # Errors
    /// Weights that are not finite, a budget that cannot be met, a lost device.
    pub fn before_step(&mut self, clock: &RunClock, model: &mut TrainableModel<B>) -> Result<bool> {
        self.move_masks(clock, model, false)
    }

    /// Begins a step with learning rate `lr`, from the gradients in `model`; [`Method::settle`] ends it.
    ///
    /// # Errors
    /// A lost device.
    pub fn launch(&mut self, model: &mut TrainableModel<B>, lr: f64) -> Result<()> {
        let (mut theta, grads) = model.parts_mut().1.values_and_gradients();
        match &mut self.steering {
            Steering::Adaptive(optimizer) => optimizer.launch_on(&mut theta, &grads, lr)?,
            Steering::Fixed(optimizer, _) => optimizer.launch_on(&mut theta, &grads, lr)?,
        }
        self.launched = true;
        Ok(())
    }

    /// Whether the step that was launched changes more than its own weights once it is counted, λ or masks, so that it
    /// must be settled before the next pass.
    pub fn is_due(&self) -> bool {
        match &self.steering {
            Steering::Adaptive(optimizer) => optimizer.is_due(),
            Steering::Fixed(..) => self.topology.is_some(),
        }
    }

    /// Waits for the step that was launched, that at `clock`, and counts it; moves λ or masks where that is due.
    ///
    /// # Errors
    /// A gradient that is not finite, a lost device.
    pub fn settle(&mut self, clock: &RunClock, model: &mut TrainableModel<B>) -> Result<MethodStep> {
        self.launched = false;
        match &mut self.steering {
            Steering::Adaptive(optimizer) => {
                let (mut theta, _) = model.parts_mut().1.values_and_gradients();
                let report = optimizer.settle(&mut theta)?;
                let (lambda, target) = (Some(report.lambda), Some(report.target));
                Ok(MethodStep { lambda, sparsity: report.sparsity, target, survival: Survival::default() })
            }
            Steering::Fixed(optimizer, lambda) => {
                optimizer.settle::<B::Buffer>()?;
                let lambda = *lambda;
                self.move_masks(clock, model, true)?;
                let target = self.topology.as_ref().map(|topology| topology.policy().sparsity(clock)).or(self.target);
                let survival = std::mem::take(&mut self.survival);
                Ok(MethodStep { lambda, sparsity: self.sparsity(), target, survival })
            }
        }
    }

    /// Changes masks where the policy wants that, and now is the time: with gradients or without.
    fn move_masks(&mut self, clock: &RunClock, model: &mut TrainableModel<B>, gradients: bool) -> Result<bool> {
        let Some(policy) = self.topology.as_ref().map(Topology::policy) else { return Ok(false) };
        if policy.needs_gradients() != gradients || policy.change(clock).is_none() {
            return Ok(false);
        }
        let before = self.masks()?;
        if let (Some(topology), Steering::Fixed(optimizer, _)) = (&self.topology, &mut self.steering) {
            let (mut theta, grads) = model.parts_mut().1.values_and_gradients();
            optimizer.move_masks_on(topology, clock, &mut theta, &grads)?;
        }
        self.survival = self.grown.exchange(&before, &self.masks()?);
        self.show_masks(model)?;
        Ok(true)
    }

    /// Tells the network which weights have gradients in passes on the support, from its next refresh on: also those
    /// under the mask that are zero, so that a grown weight moves as soon as it has a gradient.
    fn show_masks(&self, model: &mut TrainableModel<B>) -> Result<()> {
        let (device, params) = model.parts_mut();
        params.all_mut().iter_mut().zip(self.masks()?).try_for_each(|(each, mask)| Ok(each.set_mask(device, &mask)?))
    }

    /// The mask of every tensor, empty where nothing is masked.
    fn masks(&self) -> Result<Vec<Vec<bool>>> {
        let tensors = &self.optimizer().state().tensors;
        (0..self.optimizer().groups().params().len()).map(|tensor| Ok(tensors.mask(tensor)?.into_owned())).collect()
    }

    /// What the last exchange of masks grew, to be saved.
    pub(crate) fn grown(&self) -> &GrownWeights {
        &self.grown
    }

    /// The optimizer with its state and statistics.
    pub fn optimizer(&self) -> &Optimizer<B::Arrays> {
        match &self.steering {
            Steering::Adaptive(optimizer) => optimizer.optimizer(),
            Steering::Fixed(optimizer, _) => optimizer,
        }
    }

    /// The names of all tensors, in the optimizer's order.
    pub(crate) fn names(&self) -> Vec<String> {
        self.optimizer().groups().params().iter().map(|param| param.name.clone()).collect()
    }

    /// The optimizer's arrays, wherever the device keeps them, to be saved.
    ///
    /// # Errors
    /// A lost device.
    pub fn arrays(&self) -> Result<Cow<'_, [TensorState]>> {
        Ok(self.optimizer().state().tensors.fetch()?)
    }

    /// The control loops, where there are some.
    pub fn loops(&self) -> &[LoopState] {
        match &self.steering {
            Steering::Adaptive(optimizer) => optimizer.controller().state(),
            Steering::Fixed(..) => &[],
        }
    }

    /// A warning if λ swings around its target instead of settling, or if its control loop is so strong that it will.
    ///
    /// # Errors
    /// A lost device.
    pub fn unsettled(&mut self) -> Result<Option<String>> {
        let Steering::Adaptive(optimizer) = &mut self.steering else { return Ok(None) };
        let updates = optimizer.optimizer().state().step / optimizer.controller().config().period;
        let loops = optimizer.controller().state();
        let crossings = loops.iter().map(|state| u64::from(state.memory.crossings)).max().unwrap_or(0);
        if SWINGING * crossings > updates {
            let lower = |gain: &str| {
                format!(", lower the gain (method.law.{gain}), or take the quantile law (method.law.kind=quantile)")
            };
            let lower = match optimizer.controller().config().law {
                Law::Multiplicative(_) => lower("alpha"),
                Law::Density(_) => lower("kappa"),
                Law::Fixed | Law::Quantile(_) => String::new(),
            };
            return Ok(Some(format!(
                "λ swings: the sparsity crossed its target {crossings} times in {updates} updates without settling; \
                 start from a smaller λ (method.lambda){lower}"
            )));
        }
        let gains = optimizer.loop_gains()?;
        let strongest = gains.into_iter().max_by(|a, b| a.gain.total_cmp(&b.gain));
        Ok(strongest.and_then(|gain| gain.warning()))
    }

    /// Continues from saved states; the weights are those of `model`.
    ///
    /// # Errors
    /// States of another network or method.
    pub(crate) fn restore(
        &mut self,
        optimizer: OptimizerState,
        loops: Vec<LoopState>,
        grown: GrownWeights,
        model: &mut TrainableModel<B>,
    ) -> Result<()> {
        let theta = weights(model)?;
        match &mut self.steering {
            Steering::Adaptive(own) => own.restore(optimizer, loops, &theta)?,
            Steering::Fixed(own, _) => own.restore(optimizer, &theta)?,
        }
        self.grown = grown;
        if self.topology.is_some() {
            self.show_masks(model)?;
            model.refresh()?;
        }
        Ok(())
    }

    /// The sparsity of the weights now.
    pub fn sparsity(&self) -> f64 {
        Sparsity::new(self.optimizer().groups(), self.optimizer().stats()).total(Scope::Controlled).sparsity()
    }
}

/// Copies of all weights.
fn weights<B: Backend>(model: &TrainableModel<B>) -> Result<Vec<Vec<f32>>> {
    let read = |parameter: &bregman_nn::Parameter<B>| {
        let mut values = vec![0.0; parameter.param.len()];
        model.backend().download(&parameter.value, &mut values)?;
        Ok(values)
    };
    model.params().all().iter().map(read).collect()
}

/// The parameters in groups, and all weights, those of every penalised tensor masked at random.
fn start_sparse<B: Backend>(
    start: config::SparseStart<'_>,
    model: &mut TrainableModel<B>,
    seed: u64,
) -> Result<(Groups, Vec<Vec<f32>>)> {
    let groups = start.groups(model.params().described())?;
    let mut weights = weights(model)?;
    bregman::sparse_init(&groups, &mut weights, start.mask, seed)?;
    let (device, params) = model.parts_mut();
    for (parameter, values) in params.all_mut().iter_mut().zip(&weights) {
        device.upload(values, &mut parameter.value)?;
    }
    Ok((groups, weights))
}
