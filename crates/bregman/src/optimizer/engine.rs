//! Where an optimizer's arrays live and its passes run: on slices in this machine's memory, or on a device that keeps
//! them.
//!
//! An [`Engine`] binds the arrays of one step together. [`Host`] is the one for slices; a GPU brings its own, which
//! reads off [`Optimizer::plan`] what to do to every tensor and tells [`Optimizer::record`] what it counted.

use super::{Correction, Optimizer, TensorState};
use crate::controller::Controller;
use crate::error::{Error, Result};
use crate::penalty::Shrinkage;
use crate::sparsity::TensorStats;

/// Runs the passes of an optimizer over arrays that it holds.
pub trait Engine {
    /// One step with learning rate `tau`.
    ///
    /// # Errors
    /// As [`Optimizer::step`].
    fn step(&mut self, optimizer: &mut Optimizer, tau: f64) -> Result<()>;

    /// θ ← prox(p), without a gradient.
    ///
    /// # Errors
    /// As [`Optimizer::reproject`].
    fn reproject(&mut self, optimizer: &mut Optimizer) -> Result<()>;

    /// As [`Optimizer::set_lambda`].
    ///
    /// # Errors
    /// As [`Optimizer::set_lambda`].
    fn set_lambda(&mut self, optimizer: &mut Optimizer, lambda: &[f64]) -> Result<()>;

    /// Moves λ if an update is due, and tells whether it did.
    ///
    /// # Errors
    /// As [`Controller::update`].
    fn control(&mut self, optimizer: &Optimizer, controller: &mut Controller) -> Result<bool>;
}

/// The engine of plain slices.
pub struct Host<'a, T, G> {
    /// The weights.
    pub theta: &'a mut [T],
    /// Their gradients.
    pub grads: &'a [G],
}

impl<T: AsRef<[f32]> + AsMut<[f32]>, G: AsRef<[f32]>> Engine for Host<'_, T, G> {
    fn step(&mut self, optimizer: &mut Optimizer, tau: f64) -> Result<()> {
        optimizer.step(self.theta, self.grads, tau)
    }

    fn reproject(&mut self, optimizer: &mut Optimizer) -> Result<()> {
        optimizer.reproject(self.theta)
    }

    fn set_lambda(&mut self, optimizer: &mut Optimizer, lambda: &[f64]) -> Result<()> {
        optimizer.set_lambda(lambda, self.theta)
    }

    fn control(&mut self, optimizer: &Optimizer, controller: &mut Controller) -> Result<bool> {
        controller.update(optimizer.state().step, optimizer.stats(), optimizer.duals())
    }
}

/// What a pass does to one tensor, all numbers worked out: the update in the variable x (the dual p, or θ itself), then
/// θ ← scale·prox(x).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// How x moves.
    pub motion: Motion,
    /// The prox.
    pub shrinkage: Shrinkage,
    /// Its threshold, λ-scale and group weight in it.
    pub threshold: f32,
    /// What its result is multiplied with.
    pub scale: f32,
}

/// How a gradient moves the variable x. A gradient that is not finite counts as 0 (and is reported).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Motion {
    /// Not at all: x = p stays.
    Rest,
    /// LinBreg: m ← μ·m + fresh·g, p ← p − m; without momentum (μ = 0, no m) p ← p − τ·g.
    LinBreg {
        /// τ
        tau: f32,
        /// μ
        mu: f32,
        /// (1 − μ)·τ
        fresh: f32,
    },
    /// AdaBreg on p, AdamW on θ: m ← β₁m + fresh₁g, v ← β₂v + fresh₂g², x ← keep·x − rate·m/(√v·per_root + ε).
    Adam {
        /// β₁ and β₂
        beta: [f32; 2],
        /// 1 − β₁ and 1 − β₂
        fresh: [f32; 2],
        /// ε
        eps: f32,
        /// 1/√(1 − β₂ᵏ)
        per_root: f32,
        /// τ/(1 − β₁ᵏ)
        rate: f32,
        /// 1 − τ·w
        keep: f32,
    },
    /// SGD and ProxSGD on θ: g ← g + decay·θ, m ← μ·m + g, θ ← θ − τ·(of_g·g + of_m·m); without m, θ ← θ − τ·g.
    Sgd {
        /// τ
        tau: f32,
        /// μ
        mu: f32,
        /// Weight decay.
        decay: f32,
        /// Share of the gradient.
        of_g: f32,
        /// Share of the momentum.
        of_m: f32,
    },
}

/// What a pass over one tensor counted.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counted {
    /// Weights that are exactly 0.
    pub zeros: u64,
    /// ‖θ‖².
    pub sum_squares: f64,
    /// The first gradient that is not finite: its place and value.
    pub non_finite: Option<(usize, f32)>,
}

impl Optimizer {
    /// The next step with learning rate `tau`, for an engine that keeps the arrays.
    ///
    /// # Errors
    /// τ ≤ 0.
    pub fn plan(&self, tau: f64) -> Result<Vec<Plan>> {
        crate::error::require(tau > 0.0 && tau.is_finite(), "learning rate", tau, "a number > 0")?;
        let step = self.state.step + 1;
        let plan = |tensor: usize| {
            let tau = tau * self.groups.rule(tensor).lr_scale;
            self.planned(tensor, tau, self.rule.motion(step, tau))
        };
        Ok((0..self.shrinkage.len()).map(plan).collect())
    }

    /// θ ← prox(p) for an engine that keeps the arrays.
    pub fn plan_projection(&self) -> Vec<Plan> {
        (0..self.shrinkage.len()).map(|tensor| self.planned(tensor, 1.0, Motion::Rest)).collect()
    }

    fn planned(&self, tensor: usize, tau: f64, motion: Motion) -> Plan {
        let prox = self.prox(tensor, tau);
        Plan { motion, shrinkage: prox.shrinkage, threshold: prox.threshold, scale: prox.scale }
    }

    /// [`Optimizer::set_lambda`] for an engine that keeps the arrays: sets λ, and tells which duals have to follow and
    /// how.
    ///
    /// # Errors
    /// λ ≤ 0 or not finite, or a wrong number of entries; then nothing has changed.
    pub fn move_lambda(&mut self, lambda: &[f64]) -> Result<Vec<Option<Correction>>> {
        let corrections = self.corrections(lambda)?;
        self.state.lambda.copy_from_slice(lambda);
        Ok(corrections)
    }

    /// What lives and dies together in a tensor, and its weight a·√n: all that an engine which keeps the arrays must
    /// know to count the keys of [`Duals`](super::Duals).
    pub fn key_of(&self, tensor: usize) -> (Shrinkage, f64) {
        (self.shrinkage[tensor], self.weight(tensor))
    }

    /// Takes note of a pass that an engine ran; `step` if it was one, rather than a projection.
    ///
    /// # Errors
    /// A gradient that was not finite; then the step is not counted.
    pub fn record(&mut self, counted: &[Counted], step: bool) -> Result<()> {
        let stats = |(param, counted): (&crate::Param, &Counted)| TensorStats {
            len: param.len() as u64,
            zeros: counted.zeros,
            sum_squares: counted.sum_squares,
        };
        self.stats = self.groups.params().iter().zip(counted).map(stats).collect();
        if let Some((tensor, (index, value))) =
            counted.iter().enumerate().find_map(|(tensor, counted)| Some((tensor, counted.non_finite?)))
        {
            let parameter = self.groups.params()[tensor].name.clone();
            return Err(Error::NonFinite { parameter, what: "gradient", index, value });
        }
        self.state.step += u64::from(step);
        Ok(())
    }

    /// Moves the arrays out, to an engine that keeps them. The optimizer holds none afterwards, until
    /// [`Optimizer::give_arrays`].
    pub fn take_arrays(&mut self) -> Vec<TensorState> {
        let empty = vec![TensorState::default(); self.state.tensors.len()];
        std::mem::replace(&mut self.state.tensors, empty)
    }

    /// Takes arrays back that [`Optimizer::take_arrays`] gave.
    pub fn give_arrays(&mut self, arrays: Vec<TensorState>) {
        assert_eq!(arrays.len(), self.state.tensors.len(), "arrays of another optimizer");
        self.state.tensors = arrays;
    }
}
