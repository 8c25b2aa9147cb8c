//! Optimizers: one step is one pass over memory.
//!
//! [`Rule`] chooses the optimizer, [`Groups`] says which penalty each tensor carries, and [`Optimizer`] owns the state.
//! λ comes from outside: set it yourself with [`Optimizer::set_lambda`], or let
//! [`AdaptiveOptimizer`](crate::AdaptiveOptimizer) steer it.
//!
//! | file | what it has |
//! | --- | --- |
//! | `rule` | the optimizers: settings, coefficients, the update of one element |
//! | `engine` | what an optimizer and its arrays tell each other, wherever the arrays are |
//! | `deferred` | a step in two halves, where a device computes while the host goes on |
//! | `plan` | what a step does to every tensor: its update and its prox |
//! | `host`, `pass` | arrays in memory, and the fused pass over slices |
//! | `duals` | what a controller may ask of the duals |
//! | `correction` | how the duals follow λ |
//! | `masks` | which weights may be non-zero |
//! | `state` | what is saved |

mod correction;
mod deferred;
mod duals;
mod engine;
mod host;
mod masks;
mod pass;
mod plan;
pub(crate) mod rule;
mod state;

pub use correction::Correction;
pub use deferred::Deferred;
pub use duals::{DualKey, Duals, HostDuals};
pub use engine::{Arrays, Counted, Engine, HostArrays, Prox, TensorStep};
pub use host::StateSlices;
pub use pass::pull;
pub use rule::*;
pub use state::{OptimizerState, TensorState};

use rule::Moments;

use crate::controller::{Controller, LoopGain};
use crate::error::{Error, Result, require};
use crate::freeze::Freeze;
use crate::groups::Groups;
use crate::penalty::Shrinkage;
use crate::sparsity::TensorStats;

/// An optimizer with its state, whose arrays are of type `A`: in memory, or on a device after [`Optimizer::place`].
///
/// ```
/// use bregman::{Groups, LinBreg, Optimizer, Param, Role, Rule};
/// let groups = Groups::resolve(vec![Param::new("w", [1, 4], Role::LinearWeight)], vec![])?;
/// let mut weights = vec![vec![0.0f32; 4]];
/// let mut optimizer = Optimizer::new(Rule::LinBreg(LinBreg::default()), groups, 0.5, &weights)?;
/// let gradient = vec![vec![-1.0, -0.1, 0.0, 3.0]];
/// for _ in 0..10 {
///     optimizer.step(&mut weights, &gradient, 0.1)?; // p moves by 0.1·g, θ wakes up where |p| > 0.5
/// }
/// assert!((weights[0][0] - 0.5).abs() < 1e-6 && (weights[0][3] + 2.5).abs() < 1e-6);
/// assert_eq!(weights[0][1..3], [0.0, 0.0]);
/// assert_eq!(optimizer.stats()[0].zeros, 2);
/// # Ok::<(), bregman::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Optimizer<A = HostArrays> {
    rule: Rule,
    groups: Groups,
    shrinkage: Vec<Shrinkage>,
    freeze: Freeze,
    state: OptimizerState<A>,
    stats: Vec<TensorStats>,
}

/// On plain slices.
impl Optimizer {
    /// An optimizer at rest at `theta`, with p⁰ = θ⁰/δ + λ·∂R(θ⁰). Dense rules ignore penalties and λ.
    ///
    /// # Errors
    /// A setting out of range, λ ≤ 0, weights that do not fit their shapes or are not finite.
    pub fn new(rule: Rule, groups: Groups, lambda: f64, theta: &[impl AsRef<[f32]>]) -> Result<Self> {
        rule.check()?;
        check_lambda(lambda)?;
        check_count("weights", groups.params().len(), theta.len())?;
        let mut optimizer = Self {
            shrinkage: shrinkage(&rule, &groups),
            state: OptimizerState {
                step: 0,
                lambda: vec![lambda; theta.len()],
                tensors: vec![TensorState::default(); theta.len()],
            },
            stats: vec![TensorStats::default(); theta.len()],
            freeze: Freeze::default(),
            rule,
            groups,
        };
        check_learnt(&rule, &optimizer.shrinkage, &optimizer.state.lambda)?;
        for (tensor, theta) in theta.iter().map(AsRef::as_ref).enumerate() {
            let param = &optimizer.groups.params()[tensor];
            param.check_len("weight", theta.len())?;
            param.check_finite("weight", theta)?;
            let zeros = |kept: bool| if kept { vec![0.0; theta.len()] } else { vec![] };
            let (m, v) = (zeros(rule.moments() != Moments::Neither), zeros(rule.moments() == Moments::Both));
            let p = if rule.mirror().is_some() { optimizer.initial_dual(tensor, theta) } else { vec![] };
            optimizer.state.tensors[tensor] = TensorState { p, m, v, mask: vec![] };
            optimizer.stats[tensor] = stats(theta.len(), &pass::count(theta));
        }
        Ok(optimizer)
    }

    /// One step with learning rate `tau`: gradients in, weights out, zeros counted. A tensor whose gradient is empty
    /// rests: it moves only where λ does.
    ///
    /// # Errors
    /// Slices that do not fit, τ ≤ 0, and a gradient that is not finite. In the last case the error names the first
    /// offender, the step is not counted, and elements with such a gradient were treated as if theirs was 0: state
    /// and weights stay finite, but the others have advanced, so go back to a checkpoint to repeat the step.
    pub fn step(&mut self, theta: &mut [impl AsMut<[f32]>], grads: &[impl AsRef<[f32]>], tau: f64) -> Result<()> {
        self.step_on(&mut slices_mut(theta), &slices(grads), tau)
    }

    /// θ ← prox(p) once more with the present λ, without a gradient. Does nothing without duals.
    ///
    /// # Errors
    /// Weights that do not fit their shapes.
    pub fn reproject(&mut self, theta: &mut [impl AsMut<[f32]>]) -> Result<()> {
        self.reproject_on(&mut slices_mut(theta))
    }

    /// Sets λ of every tensor (before its λ-scale). The weights follow at the next step; with
    /// [`Variant::SubgradientCorrection`] and [`Variant::Steady`] the duals are corrected now, for which `theta` must
    /// be the present weights.
    ///
    /// # Errors
    /// λ ≤ 0 or not finite, or a wrong number of entries.
    pub fn set_lambda(&mut self, lambda: &[f64], theta: &[impl AsRef<[f32]>]) -> Result<()> {
        self.set_lambda_on(lambda, &slices(theta))
    }

    /// Counting access to the duals, for the optimizers that keep them.
    pub fn duals(&self) -> Option<HostDuals<'_>> {
        let duals = || self.state.tensors.iter().map(|state| &*state.p).collect();
        self.rule.mirror().map(|_| HostDuals::new(duals(), self.dual_keys()))
    }

    /// Moves the arrays to where `place` puts them, such as the memory of a GPU.
    ///
    /// # Errors
    /// Those of `place`.
    pub fn place<A, E>(
        self,
        place: impl FnOnce(HostArrays) -> std::result::Result<A, E>,
    ) -> std::result::Result<Optimizer<A>, E> {
        let Self { rule, groups, shrinkage, freeze, state: OptimizerState { step, lambda, tensors }, stats } = self;
        let state = OptimizerState { step, lambda, tensors: place(tensors)? };
        Ok(Optimizer { rule, groups, shrinkage, freeze, state, stats })
    }

    /// p⁰ = θ/δ + λ·∂R(θ); under prox rescaling β times (θ/δ + ∂R(θ)), of which θ is the prox there.
    fn initial_dual(&self, tensor: usize, theta: &[f32]) -> Vec<f32> {
        let (delta, variant) = self.rule.mirror().unwrap_or((1.0, Variant::Plain));
        let shrinkage = self.shrinkage[tensor];
        let lambda = (self.state.lambda[tensor] * self.groups.rule(tensor).lambda_scale) as f32;
        let rescaled = variant == Variant::ProxRescaling && shrinkage != Shrinkage::Identity;
        let of_theta = if rescaled { lambda / delta as f32 } else { 1.0 / delta as f32 };
        theta.iter().zip(shrinkage.subgradient(theta)).map(|(&x, g)| of_theta * x + lambda * g).collect()
    }
}

/// Wherever the arrays are.
impl<A> Optimizer<A> {
    /// An optimizer over arrays that are in their place already, and what was counted in the weights that go with
    /// them. That the arrays are those the rule keeps is for their owner to see to.
    ///
    /// # Errors
    /// A setting out of range, λ ≤ 0, statistics or a number of λ that do not fit the parameters.
    pub fn over(rule: Rule, groups: Groups, state: OptimizerState<A>, stats: Vec<TensorStats>) -> Result<Self> {
        rule.check()?;
        check_count("λ", groups.params().len(), state.lambda.len())?;
        check_count("statistics", groups.params().len(), stats.len())?;
        state.lambda.iter().try_for_each(|&lambda| check_lambda(lambda))?;
        let shrinkage = shrinkage(&rule, &groups);
        check_learnt(&rule, &shrinkage, &state.lambda)?;
        Ok(Self { shrinkage, freeze: Freeze::default(), rule, groups, state, stats })
    }

    /// [`Optimizer::step`] on weights and gradients where the arrays are.
    ///
    /// # Errors
    /// As [`Optimizer::step`]; a lost device.
    pub fn step_on<W: ?Sized>(&mut self, theta: &mut [&mut W], grads: &[&W], tau: f64) -> Result<()>
    where
        A: Engine<W>,
    {
        require(tau > 0.0 && tau.is_finite(), "learning rate", tau, "a number > 0")?;
        self.step_at(theta, grads, |_| tau)
    }

    /// [`Optimizer::step_on`] with a learning rate for every tensor (before its group's factor), which may be 0: then
    /// its weights and duals stay where they are, and its moments move.
    ///
    /// # Errors
    /// As [`Optimizer::step_on`].
    pub fn step_at<W: ?Sized>(&mut self, theta: &mut [&mut W], grads: &[&W], tau: impl Fn(usize) -> f64) -> Result<()>
    where
        A: Engine<W>,
    {
        let steps = self.plan_step(theta, grads, tau)?;
        let counted = self.state.tensors.pass(theta, grads, &steps)?;
        self.count_step(&counted)
    }

    /// [`Optimizer::reproject`] on weights where the arrays are.
    ///
    /// # Errors
    /// As [`Optimizer::reproject`]; a lost device.
    pub fn reproject_on<W: ?Sized>(&mut self, theta: &mut [&mut W]) -> Result<()>
    where
        A: Engine<W>,
    {
        if self.rule.mirror().is_none() {
            return Ok(());
        }
        self.check_lens("weights", "weight", theta.iter().map(|theta| A::len(theta)))?;
        let steps = self.plan(|_| 1.0, |_, _| Update::Rest, false);
        let counted = self.state.tensors.pass(theta, &[], &steps)?;
        self.record(&counted);
        Ok(())
    }

    /// [`Optimizer::set_lambda`] with weights where the arrays are.
    ///
    /// # Errors
    /// As [`Optimizer::set_lambda`]; a lost device.
    pub fn set_lambda_on<W: ?Sized>(&mut self, lambda: &[f64], theta: &[&W]) -> Result<()>
    where
        A: Engine<W>,
    {
        check_count("λ", self.state.lambda.len(), lambda.len())?;
        lambda.iter().try_for_each(|&lambda| check_lambda(lambda))?;
        let correction = |(tensor, &new): (usize, &f64)| {
            let (delta, variant) = self.rule.mirror()?;
            let scale = self.groups.rule(tensor).lambda_scale;
            Correction::of(variant, self.shrinkage[tensor], delta, self.state.lambda[tensor] * scale, new * scale)
        };
        let corrections: Vec<Option<Correction>> = lambda.iter().enumerate().map(correction).collect();
        if corrections.iter().any(Option::is_some) {
            self.check_lens("weights", "weight", theta.iter().map(|theta| A::len(theta)))?;
            self.state.tensors.correct(theta, &corrections)?;
        }
        self.state.lambda.copy_from_slice(lambda);
        Ok(())
    }

    /// Makes only some steps full. In the others only weights that are not 0 move; zero weights keep their duals and
    /// moments, so that their gradients need not be computed. Tensors without a penalty always move.
    ///
    /// ```
    /// use bregman::{Freeze, Groups, LinBreg, Optimizer, Param, Role, Rule};
    /// let groups = Groups::resolve(vec![Param::new("w", [1, 2], Role::LinearWeight)], vec![])?;
    /// let mut weights = vec![vec![1.0f32, 0.0]];
    /// let mut optimizer = Optimizer::new(Rule::LinBreg(LinBreg::default()), groups, 0.5, &weights)?;
    /// optimizer.set_freeze(Freeze { every: 10, ..Freeze::default() })?;
    /// for _ in 0..10 {
    ///     let seen = if optimizer.next_is_full() { -1.0 } else { 0.0 }; // the zero weight's gradient
    ///     optimizer.step(&mut weights, &[[-1.0, seen]], 0.1)?;
    /// }
    /// assert!((weights[0][0] - 2.0).abs() < 1e-5 && weights[0][1] == 0.0);
    /// # Ok::<(), bregman::Error>(())
    /// ```
    ///
    /// # Errors
    /// Every 0-th step, and frozen steps of an optimizer without a threshold.
    pub fn set_freeze(&mut self, freeze: Freeze) -> Result<()> {
        freeze.check()?;
        if freeze.every > 1 && self.rule.is_dense() {
            let (what, needs, optimizer) = ("frozen support", "LinBreg, AdaBreg or ProxSGD", self.rule.name());
            return Err(Error::Unsupported { what, needs, optimizer });
        }
        self.freeze = freeze;
        Ok(())
    }

    /// Whether the next step moves all weights, so that it needs all gradients.
    pub fn next_is_full(&self) -> bool {
        self.is_full_after(0)
    }

    /// As [`Optimizer::next_is_full`], of the step after so many more: those that were launched and not settled yet.
    pub fn is_full_after(&self, steps: u64) -> bool {
        self.freeze.is_full(self.state.step + steps)
    }

    /// Whether the weights of a tensor are thresholded.
    pub fn is_sparse(&self, tensor: usize) -> bool {
        self.shrinkage[tensor] != Shrinkage::Identity
    }

    /// The optimizer and its settings.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// The parameters and their groups.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Zeros and norm of every tensor after the last step.
    pub fn stats(&self) -> &[TensorStats] {
        &self.stats
    }

    /// Everything remembered between steps, to be saved.
    pub fn state(&self) -> &OptimizerState<A> {
        &self.state
    }

    /// Continues from a saved state and the weights saved with it.
    ///
    /// # Errors
    /// A state of another network or another optimizer, λ ≤ 0, numbers that are not finite; then nothing has changed.
    pub fn restore(&mut self, state: OptimizerState, theta: &[impl AsRef<[f32]>]) -> Result<()>
    where
        A: Arrays,
    {
        let params = self.groups.params();
        check_count("saved tensors", params.len(), state.tensors.len())?;
        check_count("saved λ", params.len(), state.lambda.len())?;
        state.lambda.iter().try_for_each(|&lambda| check_lambda(lambda))?;
        self.check_lens("weights", "weight", theta.iter().map(|theta| theta.as_ref().len()))?;
        state.tensors.iter().zip(params).try_for_each(|(saved, param)| saved.check(&self.rule, param))?;
        self.state.tensors.replace(state.tensors)?;
        (self.state.step, self.state.lambda) = (state.step, state.lambda);
        self.stats = theta.iter().map(AsRef::as_ref).map(|theta| stats(theta.len(), &pass::count(theta))).collect();
        Ok(())
    }

    /// Lets `controller` move its λ if an update is due, and tells whether it did; [`Optimizer::set_lambda_on`] is the
    /// next thing to do then.
    ///
    /// # Errors
    /// As [`Controller::update`]; a lost device.
    pub fn control(&mut self, controller: &mut Controller) -> Result<bool>
    where
        A: Arrays,
    {
        let step = self.state.step;
        if !controller.is_due(step) || !controller.config().law.needs_duals() || self.rule.mirror().is_none() {
            return controller.update(step, &self.stats, None);
        }
        let keys = self.keys_under(controller.lambda());
        let duals = self.state.tensors.duals(keys)?;
        controller.update(step, &self.stats, Some(&duals))
    }

    /// λ of every tensor after its controller has moved `from` there `to`: the same, unless a tensor learns its own λ,
    /// which keeps its ratio to the controller's.
    pub(crate) fn lambda_after(&self, from: &[f64], to: &[f64]) -> Vec<f64> {
        self.state.lambda.iter().zip(from.iter().zip(to)).map(|(own, (from, to))| own / from * to).collect()
    }

    /// [`Optimizer::dual_keys`] with respect to a controller's λ.
    fn keys_under(&self, lambda: &[f64]) -> Vec<DualKey> {
        let key = |(tensor, lambda): (usize, &f64)| {
            let key = self.dual_key(tensor);
            DualKey { weight: self.state.lambda[tensor] / lambda * key.weight, ..key }
        };
        lambda.iter().enumerate().map(key).collect()
    }

    /// The gain of each loop of `controller`, measured on the duals; nothing without duals.
    pub(crate) fn loop_gains(&mut self, controller: &Controller) -> Result<Vec<LoopGain>>
    where
        A: Arrays,
    {
        if self.rule.mirror().is_none() {
            return Ok(vec![]);
        }
        let keys = self.keys_under(controller.lambda());
        let duals = self.state.tensors.duals(keys)?;
        controller.loop_gains(self.state.step, &self.stats, Some(&duals))
    }

    /// For every tensor: what becomes zero together, and its weight a·√n.
    pub fn dual_keys(&self) -> Vec<DualKey> {
        (0..self.shrinkage.len()).map(|tensor| self.dual_key(tensor)).collect()
    }

    /// Counts the step, unless a gradient was not finite.
    fn count_step(&mut self, counted: &[Counted]) -> Result<()> {
        self.record(counted);
        if let Some((tensor, (index, value))) =
            counted.iter().enumerate().find_map(|(tensor, counted)| Some((tensor, counted.non_finite?)))
        {
            let parameter = self.groups.params()[tensor].name.clone();
            return Err(Error::NonFinite { parameter, what: "gradient", index, value });
        }
        self.state.step += 1;
        Ok(())
    }

    fn dual_key(&self, tensor: usize) -> DualKey {
        let shrinkage = self.shrinkage[tensor];
        DualKey { shrinkage, weight: self.groups.rule(tensor).lambda_scale * shrinkage.weight() }
    }

    fn record(&mut self, counted: &[Counted]) {
        let lens = self.groups.params().iter().map(crate::Param::len);
        self.stats = lens.zip(counted).map(|(len, counted)| stats(len, counted)).collect();
    }

    fn check_lens(
        &self,
        all: &'static str,
        one: &'static str,
        lens: impl ExactSizeIterator<Item = usize>,
    ) -> Result<()> {
        check_count(all, self.groups.params().len(), lens.len())?;
        self.groups.params().iter().zip(lens).try_for_each(|(param, len)| param.check_len(one, len))
    }
}

pub(crate) fn slices(values: &[impl AsRef<[f32]>]) -> Vec<&[f32]> {
    values.iter().map(AsRef::as_ref).collect()
}

pub(crate) fn slices_mut(values: &mut [impl AsMut<[f32]>]) -> Vec<&mut [f32]> {
    values.iter_mut().map(AsMut::as_mut).collect()
}

/// What a rule makes of the penalties of every tensor.
fn shrinkage(rule: &Rule, groups: &Groups) -> Vec<Shrinkage> {
    let of = |tensor| if rule.is_dense() { Shrinkage::Identity } else { groups.shrinkage(tensor) };
    (0..groups.params().len()).map(of).collect()
}

fn stats(len: usize, counted: &Counted) -> TensorStats {
    TensorStats { len: len as u64, zeros: counted.zeros, sum_squares: counted.sum_squares }
}

/// Thresholds that are learnt are those of single weights, and lie in (0, 1).
fn check_learnt(rule: &Rule, shrinkage: &[Shrinkage], lambda: &[f64]) -> Result<()> {
    if !matches!(rule, Rule::Str(_)) {
        return Ok(());
    }
    if shrinkage.iter().any(|kind| !matches!(kind, Shrinkage::Identity | Shrinkage::Soft)) {
        let (what, needs, optimizer) = ("a penalty other than ℓ1", "LinBreg, AdaBreg or ProxSGD", rule.name());
        return Err(Error::Unsupported { what, needs, optimizer });
    }
    lambda.iter().try_for_each(|&lambda| require(lambda < 1.0, "λ", lambda, "a threshold in (0, 1) with STR"))
}

fn check_lambda(lambda: f64) -> Result<()> {
    require(lambda > 0.0 && lambda.is_finite(), "λ", lambda, "a number > 0")
}

fn check_count(what: &'static str, expected: usize, found: usize) -> Result<()> {
    if found == expected { Ok(()) } else { Err(Error::Count { what, expected, found }) }
}
