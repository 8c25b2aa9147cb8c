//! The closed loop: an optimizer whose λ is steered to a target sparsity.

use crate::controller::{Controller, ControllerConfig, LoopGain, LoopState};
use crate::error::{Error, Result};
use crate::groups::Groups;
use crate::optimizer::{Engine, Host, Optimizer, OptimizerState, Rule};

/// What one step did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepReport {
    /// λ used by this step's prox (the mean over loops where control is layerwise).
    pub lambda: f64,
    /// s(θ) over the controlled tensors.
    pub sparsity: f64,
    /// s* at this step.
    pub target: f64,
}

impl StepReport {
    /// ε = s* − s(θ).
    pub fn epsilon(&self) -> f64 {
        self.target - self.sparsity
    }
}

/// An [`Optimizer`] with a [`Controller`]: Algorithm 1 of the paper. Two lines put it into a training loop, see the
/// [crate's front page](crate).
#[derive(Debug, Clone)]
pub struct AdaptiveOptimizer {
    optimizer: Optimizer,
    controller: Controller,
}

impl AdaptiveOptimizer {
    /// Starts at the weights `theta`, which should be sparse already: see [`sparse_init`](crate::sparse_init).
    ///
    /// # Errors
    /// Whatever [`Optimizer::new`] and [`Controller::new`] refuse, and optimizers that do not threshold.
    pub fn new(rule: Rule, groups: Groups, config: ControllerConfig, theta: &[impl AsRef<[f32]>]) -> Result<Self> {
        let needs_threshold =
            Error::Unsupported {
                what: "a λ controller", needs: "LinBreg, AdaBreg or ProxSGD", optimizer: rule.name()
            };
        let lambda = rule.default_lambda().ok_or(needs_threshold)?;
        let controller = Controller::new(config, &groups, lambda)?;
        let optimizer = Optimizer::new(rule, groups, controller.state()[0].lambda, theta)?;
        if controller.config().law.needs_duals() && optimizer.duals().is_none() {
            return Err(Error::NoDuals);
        }
        Ok(Self { optimizer, controller })
    }

    /// One step with learning rate `tau`, then the controller's update where one is due.
    ///
    /// # Errors
    /// See [`Optimizer::step`] and [`Controller::update`].
    pub fn step<T>(&mut self, theta: &mut [T], grads: &[impl AsRef<[f32]>], tau: f64) -> Result<StepReport>
    where
        T: AsRef<[f32]> + AsMut<[f32]>,
    {
        self.step_on(&mut Host { theta, grads }, tau)
    }

    /// As [`AdaptiveOptimizer::step`], on arrays that an engine keeps.
    ///
    /// # Errors
    /// As [`AdaptiveOptimizer::step`].
    pub fn step_on(&mut self, engine: &mut impl Engine, tau: f64) -> Result<StepReport> {
        let loops = self.controller.state();
        let lambda = loops.iter().map(|state| state.lambda).sum::<f64>() / loops.len() as f64;
        engine.step(&mut self.optimizer, tau)?;
        let step = self.optimizer.state().step;
        if engine.control(&self.optimizer, &mut self.controller)? {
            engine.set_lambda(&mut self.optimizer, self.controller.lambda())?;
            if self.controller.config().law.needs_duals() {
                engine.reproject(&mut self.optimizer)?; // λ was computed for the duals as they are: so are the weights
            }
        }
        Ok(StepReport {
            lambda,
            sparsity: self.controller.controlled(self.optimizer.stats()).sparsity(),
            target: self.controller.target_at(step),
        })
    }

    /// The optimizer.
    pub fn optimizer(&self) -> &Optimizer {
        &self.optimizer
    }

    /// The optimizer, to move its arrays to an engine and back.
    pub fn optimizer_mut(&mut self) -> &mut Optimizer {
        &mut self.optimizer
    }

    /// The controller.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// The gain of each control loop now; its [`warning`](LoopGain::warning) says when α or κ is too large.
    ///
    /// # Errors
    /// See [`Controller::loop_gains`].
    pub fn loop_gains(&self) -> Result<Vec<LoopGain>> {
        self.controller.loop_gains(self.optimizer.state().step, self.optimizer.stats(), self.optimizer.duals())
    }

    /// Continues from saved states and the weights saved with them.
    ///
    /// # Errors
    /// States that do not fit, see [`Optimizer::restore`] and [`Controller::restore`]; then nothing has changed.
    pub fn restore(
        &mut self,
        optimizer: OptimizerState,
        controller: Vec<LoopState>,
        theta: &[impl AsRef<[f32]>],
    ) -> Result<()> {
        let mut continued = self.controller.clone();
        continued.restore(controller)?;
        self.optimizer.restore(optimizer, theta)?;
        self.controller = continued;
        Ok(())
    }
}
