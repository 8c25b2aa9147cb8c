//! Optimizers on plain slices: one step is one pass over memory.
//!
//! [`Rule`] chooses the optimizer, [`Groups`] says which penalty each tensor carries, and [`Optimizer`] owns the state.
//! λ comes from outside: set it yourself with [`Optimizer::set_lambda`], or let
//! [`AdaptiveOptimizer`](crate::AdaptiveOptimizer) steer it.

mod adabreg;
mod adamw;
mod correction;
mod duals;
mod engine;
mod linbreg;
mod pass;
mod prox_sgd;
mod rule;
mod sgd;
mod state;

pub use adabreg::AdaBreg;
pub use adamw::AdamW;
pub use correction::Correction;
pub use duals::Duals;
pub use engine::{Counted, Engine, Host, Motion, Plan};
pub use linbreg::LinBreg;
pub use prox_sgd::ProxSgd;
pub use rule::{Rule, Variant};
pub use sgd::Sgd;
pub use state::{OptimizerState, TensorState};

use duals::threshold;
use pass::{After, Block, Gradient, Job, Prox, Tally, Update};

use crate::error::{Error, Result, require};
use crate::groups::Groups;
use crate::penalty::Shrinkage;
use crate::sparsity::TensorStats;

/// An optimizer with its state.
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
pub struct Optimizer {
    rule: Rule,
    groups: Groups,
    shrinkage: Vec<Shrinkage>,
    state: OptimizerState,
    stats: Vec<TensorStats>,
}

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
            shrinkage: (0..groups.params().len())
                .map(|tensor| if rule.is_dense() { Shrinkage::Identity } else { groups.shrinkage(tensor) })
                .collect(),
            state: OptimizerState {
                step: 0,
                lambda: vec![lambda; theta.len()],
                tensors: vec![TensorState::default(); theta.len()],
            },
            stats: vec![TensorStats::default(); theta.len()],
            rule,
            groups,
        };
        for (tensor, theta) in theta.iter().map(AsRef::as_ref).enumerate() {
            let param = &optimizer.groups.params()[tensor];
            param.check_len("weight", theta.len())?;
            param.check_finite("weight", theta)?;
            let (keeps_m, keeps_v) = rule.moments();
            let zeros = |kept: bool| if kept { vec![0.0; theta.len()] } else { vec![] };
            let p = if rule.mirror().is_some() { optimizer.initial_dual(tensor, theta) } else { vec![] };
            optimizer.state.tensors[tensor] = TensorState { p, m: zeros(keeps_m), v: zeros(keeps_v), mask: vec![] };
            optimizer.stats[tensor] = stats(theta.len(), pass::tally(theta));
        }
        Ok(optimizer)
    }

    /// One step with learning rate `tau`: gradients in, weights out, zeros counted.
    ///
    /// # Errors
    /// Slices that do not fit, τ ≤ 0, and a gradient that is not finite. In the last case the error names the first
    /// offender, the step is not counted, and elements with such a gradient were treated as if theirs was 0: state
    /// and weights stay finite, but the others have advanced, so go back to a checkpoint to repeat the step.
    pub fn step(&mut self, theta: &mut [impl AsMut<[f32]>], grads: &[impl AsRef<[f32]>], tau: f64) -> Result<()> {
        require(tau > 0.0 && tau.is_finite(), "learning rate", tau, "a number > 0")?;
        check_count("gradients", self.groups.params().len(), grads.len())?;
        for (param, g) in self.groups.params().iter().zip(grads) {
            param.check_len("gradient", g.as_ref().len())?;
        }
        let step = self.state.step + 1;
        let grads = |tensor: usize| grads[tensor].as_ref();
        let tallies = match self.rule {
            Rule::LinBreg(rule) => self.pass(theta, grads, tau, |tau| rule.at(tau)),
            Rule::AdaBreg(rule) => self.pass(theta, grads, tau, |tau| rule.at(step, tau)),
            Rule::ProxSgd(rule) => self.pass(theta, grads, tau, |tau| rule.at(tau)),
            Rule::Sgd(rule) => self.pass(theta, grads, tau, |tau| rule.at(tau)),
            Rule::AdamW(rule) => self.pass(theta, grads, tau, |tau| rule.at(step, tau)),
        }?;
        if let Some((tensor, index)) =
            tallies.iter().enumerate().find_map(|(tensor, tally)| Some((tensor, tally.non_finite?)))
        {
            let parameter = self.groups.params()[tensor].name.clone();
            return Err(Error::NonFinite { parameter, what: "gradient", index, value: grads(tensor)[index] });
        }
        self.state.step = step;
        Ok(())
    }

    /// θ ← prox(p) once more with the present λ, without a gradient. Does nothing without duals.
    ///
    /// # Errors
    /// Weights that do not fit their shapes.
    pub fn reproject(&mut self, theta: &mut [impl AsMut<[f32]>]) -> Result<()> {
        if self.rule.mirror().is_some() {
            self.pass(theta, |_| &[], 1.0, |_| Rest)?;
        }
        Ok(())
    }

    /// Sets λ of every tensor (before its λ-scale). The weights follow at the next step; with
    /// [`Variant::SubgradientCorrection`] and [`Variant::Steady`] the duals are corrected now, for which `theta` must
    /// be the present weights.
    ///
    /// # Errors
    /// λ ≤ 0 or not finite, or a wrong number of entries.
    pub fn set_lambda(&mut self, lambda: &[f64], theta: &[impl AsRef<[f32]>]) -> Result<()> {
        let corrections = self.corrections(lambda)?;
        if corrections.iter().any(Option::is_some) {
            self.check_weights(theta.iter().map(|theta| theta.as_ref().len()))?;
            for ((correction, state), theta) in corrections.into_iter().zip(&mut self.state.tensors).zip(theta) {
                if let Some(correction) = correction {
                    correction.apply(&mut state.p, theta.as_ref());
                }
            }
        }
        self.state.lambda.copy_from_slice(lambda);
        Ok(())
    }

    /// Restricts a tensor to the weights marked `true` from the next step on: pruning. An empty mask lifts it.
    ///
    /// # Errors
    /// A mask of the wrong length, and an optimizer that thresholds by itself.
    pub fn set_mask(&mut self, tensor: usize, mask: Vec<bool>) -> Result<()> {
        if !self.rule.is_dense() {
            return Err(Error::Unsupported {
                what: "a pruning mask",
                needs: "SGD or AdamW",
                optimizer: self.rule.name(),
            });
        }
        if !mask.is_empty() {
            self.groups.params()[tensor].check_len("mask", mask.len())?;
        }
        self.state.tensors[tensor].mask = mask;
        Ok(())
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

    /// Counting access to the duals, for the optimizers that keep them.
    pub fn duals(&self) -> Option<&dyn Duals> {
        self.rule.mirror().map(|_| self as &dyn Duals)
    }

    /// Everything remembered between steps, to be saved.
    pub fn state(&self) -> &OptimizerState {
        &self.state
    }

    /// Continues from a saved state and the weights saved with it.
    ///
    /// # Errors
    /// A state of another network or another optimizer, λ ≤ 0, numbers that are not finite; then nothing has changed.
    pub fn restore(&mut self, state: OptimizerState, theta: &[impl AsRef<[f32]>]) -> Result<()> {
        check_count("saved tensors", self.state.tensors.len(), state.tensors.len())?;
        check_count("saved λ", self.state.lambda.len(), state.lambda.len())?;
        state.lambda.iter().try_for_each(|&lambda| check_lambda(lambda))?;
        self.check_weights(theta.iter().map(|theta| theta.as_ref().len()))?;
        for ((saved, own), param) in state.tensors.iter().zip(&self.state.tensors).zip(self.groups.params()) {
            saved.check_like(own, param)?;
        }
        self.stats = theta.iter().map(|theta| stats(theta.as_ref().len(), pass::tally(theta.as_ref()))).collect();
        self.state = state;
        Ok(())
    }

    /// How each dual follows λ to these values.
    fn corrections(&self, lambda: &[f64]) -> Result<Vec<Option<Correction>>> {
        check_count("λ", self.state.lambda.len(), lambda.len())?;
        lambda.iter().try_for_each(|&lambda| check_lambda(lambda))?;
        let correction = |(tensor, &new): (usize, &f64)| {
            let (delta, variant) = self.rule.mirror()?;
            let scale = self.groups.rule(tensor).lambda_scale;
            Correction::of(variant, self.shrinkage[tensor], delta, self.state.lambda[tensor] * scale, new * scale)
        };
        Ok(lambda.iter().enumerate().map(correction).collect())
    }

    /// The fused pass, with the coefficients of `update` at each tensor's learning rate.
    fn pass<'a, U: Update>(
        &mut self,
        theta: &mut [impl AsMut<[f32]>],
        grads: impl Fn(usize) -> &'a [f32],
        tau: f64,
        update: impl Fn(f64) -> U,
    ) -> Result<Vec<Tally>> {
        let mut theta: Vec<&mut [f32]> = theta.iter_mut().map(AsMut::as_mut).collect();
        self.check_weights(theta.iter().map(|theta| theta.len()))?;
        let rates: Vec<f64> = (0..theta.len()).map(|tensor| tau * self.groups.rule(tensor).lr_scale).collect();
        let proxes: Vec<Prox> = (0..theta.len()).map(|tensor| self.prox(tensor, rates[tensor])).collect();
        let jobs = theta
            .iter_mut()
            .zip(&mut self.state.tensors)
            .enumerate()
            .map(|(tensor, (theta, state))| Job {
                update: update(rates[tensor]),
                after: if state.mask.is_empty() { After::Prox(proxes[tensor]) } else { After::Mask(&state.mask) },
                slices: Block { g: Gradient(grads(tensor)), theta, p: &mut state.p, m: &mut state.m, v: &mut state.v },
            })
            .collect();
        let tallies = pass::run(jobs);
        self.stats =
            self.groups.params().iter().zip(&tallies).map(|(param, &tally)| stats(param.len(), tally)).collect();
        Ok(tallies)
    }

    /// The prox between the variable a tensor's update steps in and its weights: prox_{δλR}(δ·p) = δ·prox_{λR}(p) of
    /// the dual, prox_{τλR} of the weights for ProxSGD, the identity for dense rules.
    fn prox(&self, tensor: usize, tau: f64) -> Prox {
        let (shrinkage, lambda) = (self.shrinkage[tensor], self.state.lambda[tensor]);
        let (lambda, scale) = match self.rule.mirror() {
            Some((delta, Variant::ProxRescaling)) if shrinkage != Shrinkage::Identity => {
                (lambda, delta / (lambda * self.groups.rule(tensor).lambda_scale))
            }
            Some((delta, _)) => (lambda, delta),
            None => (lambda * tau, 1.0),
        };
        Prox { shrinkage, threshold: threshold(lambda, self.weight(tensor)), scale: scale as f32 }
    }

    /// a·√n: what λ is multiplied with for this tensor.
    fn weight(&self, tensor: usize) -> f64 {
        self.groups.rule(tensor).lambda_scale * self.shrinkage[tensor].weight()
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

    fn check_weights(&self, lens: impl ExactSizeIterator<Item = usize>) -> Result<()> {
        check_count("weights", self.groups.params().len(), lens.len())?;
        self.groups.params().iter().zip(lens).try_for_each(|(param, len)| param.check_len("weight", len))
    }
}

/// An update that leaves the dual where it is: a pass with it is the prox alone.
#[derive(Clone, Copy)]
struct Rest;

impl Update for Rest {
    #[inline(always)]
    fn advance(self, Block { theta, p, .. }: Block<'_>, shrink: impl Fn(f32) -> f32 + Copy) {
        for (x, p) in theta.iter_mut().zip(p) {
            *x = shrink(*p);
        }
    }
}

fn stats(len: usize, tally: Tally) -> TensorStats {
    TensorStats { len: len as u64, zeros: tally.zeros, sum_squares: tally.sum_squares }
}

fn check_lambda(lambda: f64) -> Result<()> {
    require(lambda > 0.0 && lambda.is_finite(), "λ", lambda, "a number > 0")
}

fn check_count(what: &'static str, expected: usize, found: usize) -> Result<()> {
    if found == expected { Ok(()) } else { Err(Error::Count { what, expected, found }) }
}
