//! The closed loop: an optimizer whose λ is steered to a target sparsity.

use crate::controller::{Controller, ControllerConfig, LoopGain, LoopState};
use crate::error::{Error, Result, require};
use crate::freeze::Freeze;
use crate::groups::Groups;
use crate::optimizer::{
    Arrays, Deferred, Engine, HostArrays, Optimizer, OptimizerState, Rule, Variant, slices, slices_mut,
};

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
pub struct AdaptiveOptimizer<A = HostArrays> {
    optimizer: Optimizer<A>,
    controller: Controller,
}

/// On plain slices.
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
        Self::over(optimizer, controller)
    }

    /// One step with learning rate `tau`, then the controller's update where one is due.
    ///
    /// # Errors
    /// See [`Optimizer::step`] and [`Controller::update`].
    pub fn step(
        &mut self,
        theta: &mut [impl AsMut<[f32]>],
        grads: &[impl AsRef<[f32]>],
        tau: f64,
    ) -> Result<StepReport> {
        self.step_on(&mut slices_mut(theta), &slices(grads), tau)
    }

    /// Moves the optimizer's arrays to where `place` puts them, see [`Optimizer::place`].
    ///
    /// # Errors
    /// Those of `place`.
    pub fn place<A, E>(
        self,
        place: impl FnOnce(HostArrays) -> std::result::Result<A, E>,
    ) -> std::result::Result<AdaptiveOptimizer<A>, E> {
        Ok(AdaptiveOptimizer { optimizer: self.optimizer.place(place)?, controller: self.controller })
    }
}

/// Wherever the arrays are.
impl<A> AdaptiveOptimizer<A> {
    /// An optimizer and the controller that steers it, both of the same groups.
    ///
    /// # Errors
    /// A law that computes λ from duals with an optimizer that keeps none, or no order among them.
    pub fn over(optimizer: Optimizer<A>, controller: Controller) -> Result<Self> {
        if controller.config().law.needs_duals() {
            let (_, variant) = optimizer.rule().mirror().ok_or(Error::NoDuals)?;
            // It pulls the duals of zero weights back under every new λ, so that no order among them is left.
            let ordered = variant != Variant::SubgradientCorrection;
            require(ordered, "optimizer.variant", "subgradient_correction", "another variant with the quantile law")?;
        }
        Ok(Self { optimizer, controller })
    }

    /// [`AdaptiveOptimizer::step`] on weights and gradients where the arrays are.
    ///
    /// # Errors
    /// As [`AdaptiveOptimizer::step`]; a lost device.
    pub fn step_on<W: ?Sized>(&mut self, theta: &mut [&mut W], grads: &[&W], tau: f64) -> Result<StepReport>
    where
        A: Engine<W>,
    {
        require(tau > 0.0 && tau.is_finite(), "learning rate", tau, "a number > 0")?;
        self.step_at(theta, grads, |_| tau)
    }

    /// [`AdaptiveOptimizer::step_on`] with a learning rate for every tensor, see [`Optimizer::step_at`].
    ///
    /// # Errors
    /// As [`AdaptiveOptimizer::step_on`].
    pub fn step_at<W: ?Sized>(
        &mut self,
        theta: &mut [&mut W],
        grads: &[&W],
        tau: impl Fn(usize) -> f64,
    ) -> Result<StepReport>
    where
        A: Engine<W>,
    {
        self.optimizer.step_at(theta, grads, tau)?;
        self.steer(theta)
    }

    /// The first half of [`AdaptiveOptimizer::step_on`], see [`Optimizer::launch_on`].
    ///
    /// # Errors
    /// As [`Optimizer::launch_on`].
    pub fn launch_on<W: ?Sized>(&mut self, theta: &mut [&mut W], grads: &[&W], tau: f64) -> Result<()>
    where
        A: Deferred<W>,
    {
        self.optimizer.launch_on(theta, grads, tau)
    }

    /// The first half of [`AdaptiveOptimizer::step_at`], see [`Optimizer::launch_at`].
    ///
    /// # Errors
    /// As [`Optimizer::launch_at`].
    pub fn launch_at<W: ?Sized>(&mut self, theta: &mut [&mut W], grads: &[&W], tau: impl Fn(usize) -> f64) -> Result<()>
    where
        A: Deferred<W>,
    {
        self.optimizer.launch_at(theta, grads, tau)
    }

    /// Whether λ may move after the step that was launched, so that it should be settled at once.
    pub fn is_due(&self) -> bool {
        self.controller.is_due(self.optimizer.state().step + 1)
    }

    /// The second half: waits, counts the step, and moves λ where that is due.
    ///
    /// # Errors
    /// As [`AdaptiveOptimizer::step_at`].
    pub fn settle<W: ?Sized>(&mut self, theta: &mut [&mut W]) -> Result<StepReport>
    where
        A: Deferred<W>,
    {
        self.optimizer.settle()?;
        self.steer(theta)
    }

    /// Moves λ where an update is due after the step just counted.
    fn steer<W: ?Sized>(&mut self, theta: &mut [&mut W]) -> Result<StepReport>
    where
        A: Engine<W>,
    {
        let loops = self.controller.state();
        let lambda = loops.iter().map(|state| state.lambda).sum::<f64>() / loops.len() as f64;
        let before = self.controller.lambda().to_vec();
        // after frozen steps nothing is due
        if self.optimizer.control(&mut self.controller)? {
            let weights: Vec<&W> = theta.iter().map(|theta| &**theta).collect();
            let moved = self.optimizer.lambda_after(&before, self.controller.lambda());
            self.optimizer.set_lambda_on(&moved, &weights)?;
            if self.controller.config().law.needs_duals() {
                self.optimizer.reproject_on(theta)?; // λ was computed for the duals as they are: so are the weights
            }
        }
        Ok(StepReport {
            lambda,
            sparsity: self.controller.controlled(self.optimizer.stats()).sparsity(),
            target: self.controller.target_at(self.optimizer.state().step),
        })
    }

    /// Makes only some steps full, see [`Optimizer::set_freeze`]. λ moves after these.
    ///
    /// # Errors
    /// As [`Optimizer::set_freeze`].
    pub fn set_freeze(&mut self, freeze: Freeze) -> Result<()> {
        self.optimizer.set_freeze(freeze)?;
        self.controller.set_freeze(freeze);
        Ok(())
    }

    /// The gain of each control loop now; its [`warning`](LoopGain::warning) says when α or κ is too large. Two passes
    /// over the duals, so ask now and then, not every step.
    ///
    /// # Errors
    /// See [`Controller::loop_gains`].
    pub fn loop_gains(&mut self) -> Result<Vec<LoopGain>>
    where
        A: Arrays,
    {
        self.optimizer.loop_gains(&self.controller)
    }

    /// The optimizer.
    pub fn optimizer(&self) -> &Optimizer<A> {
        &self.optimizer
    }

    /// The controller.
    pub fn controller(&self) -> &Controller {
        &self.controller
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
    ) -> Result<()>
    where
        A: Arrays,
    {
        let mut continued = self.controller.clone();
        continued.restore(controller)?;
        self.optimizer.restore(optimizer, theta)?;
        self.controller = continued;
        Ok(())
    }
}
