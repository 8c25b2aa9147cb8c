//! λ controllers: given the step, what it counted and access to the duals, the next λ of every tensor.
//!
//! A [`Controller`] is one control loop over all controlled tensors, or one per tensor (*layerwise*), each with its own
//! target from a [`Budget`]. Which [`Law`] closes the loop, how the target is shared out and whether it moves
//! (a [`Ramp`]) are separate choices; any combination works.

mod density;
mod law;
mod multiplicative;
mod quantile;
mod stability;

pub use density::Density;
pub use law::{Law, Memory, Reading};
pub use multiplicative::{Damping, Multiplicative};
pub use quantile::Quantile;
pub use stability::{LoopGain, OVERSHOOT, UNSTABLE};

use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::error::{Error, Result, require};
use crate::freeze::Freeze;
use crate::groups::Groups;
use crate::optimizer::Duals;
use crate::param::Param;
use crate::schedule::Ramp;
use crate::sparsity::TensorStats;

/// Settings of a controller.
///
/// | setting | default | purpose | range |
/// | --- | --- | --- | --- |
/// | `target` | – | s*, the sparsity asked for | (0, 1) |
/// | `law` | quantile | see [`Law`] | |
/// | `lambda` | the optimizer's: 0.01 LinBreg, 1 AdaBreg | λ₀ | > 0 |
/// | `period` | 50 | f, steps between updates (fewer at first with the quantile law); in short runs total / 150 | ≥ 1 |
/// | `warmup` | 0 | steps before the first update is possible | |
/// | `ramp` | none | movement of s*, in steps | see [`Ramp`] |
/// | `layers` | none | layerwise control with this budget | see [`Budget`] |
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerConfig {
    /// s*.
    pub target: f64,
    /// The control law.
    #[serde(default)]
    pub law: Law,
    /// λ₀; `None` takes the optimizer's default.
    #[serde(default)]
    pub lambda: Option<f64>,
    /// f.
    #[serde(default = "default_period")]
    pub period: u64,
    /// Steps during which λ is held.
    #[serde(default)]
    pub warmup: u64,
    /// Movement of the target.
    #[serde(default)]
    pub ramp: Option<Ramp>,
    /// One loop per layer, targets from this budget.
    #[serde(default)]
    pub layers: Option<Budget>,
}

/// The quantile law acts every t / `EARLY` steps at step t, until that is its period: then the duals spread by less
/// than 1 / `EARLY` between two updates.
const EARLY: u64 = 64;

fn default_period() -> u64 {
    50
}

impl ControllerConfig {
    /// The default controller for a target sparsity.
    pub fn new(target: f64) -> Self {
        Self {
            target,
            law: Law::default(),
            lambda: None,
            period: default_period(),
            warmup: 0,
            ramp: None,
            layers: None,
        }
    }

    fn check(&self) -> Result<()> {
        require(self.target > 0.0 && self.target < 1.0, "target", self.target, "a share in (0, 1), such as 0.95")?;
        require(self.period >= 1, "period", self.period, "a whole number ≥ 1")?;
        if let Some(lambda) = self.lambda {
            require(lambda > 0.0 && lambda.is_finite(), "lambda", lambda, "a number > 0")?;
        }
        self.ramp.as_ref().map_or(Ok(()), Ramp::check)?;
        self.law.check()
    }
}

/// Where a loop stands: all that has to be saved.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LoopState {
    /// Present λ.
    pub lambda: f64,
    /// What the law remembers.
    pub memory: Memory,
}

/// The control loops of a network.
#[derive(Debug, Clone)]
pub struct Controller {
    config: ControllerConfig,
    /// Parameters under control.
    params: Vec<Param>,
    /// The tensors of each loop.
    scopes: Vec<Vec<usize>>,
    loops: Vec<LoopState>,
    /// λ of every tensor of the network.
    lambda: Vec<f64>,
    freeze: Freeze,
}

impl Controller {
    /// A controller for the penalised tensors of `groups`, starting from `lambda` unless the settings say otherwise.
    ///
    /// # Errors
    /// A setting out of range, nothing to control, or a budget that cannot be met.
    pub fn new(config: ControllerConfig, groups: &Groups, lambda: f64) -> Result<Self> {
        config.check()?;
        let lambda = config.lambda.unwrap_or(lambda);
        require(lambda > 0.0 && lambda.is_finite(), "λ", lambda, "a number > 0")?;
        let controlled = groups.controlled();
        if controlled.is_empty() {
            return Err(Error::NothingControlled);
        }
        let params = controlled.iter().map(|&tensor| groups.params()[tensor].clone()).collect();
        let scopes = match config.layers {
            None => vec![controlled],
            Some(_) => controlled.into_iter().map(|tensor| vec![tensor]).collect(),
        };
        let controller = Self {
            loops: vec![LoopState { lambda, memory: Memory::default() }; scopes.len()],
            lambda: vec![lambda; groups.params().len()],
            freeze: Freeze::default(),
            config,
            params,
            scopes,
        };
        controller.targets(0)?;
        controller.targets(u64::MAX)?;
        Ok(controller)
    }

    /// After step `step`: moves λ if an update is due, and tells whether it did.
    ///
    /// # Errors
    /// A law that needs duals with an optimizer that has none.
    pub fn update(&mut self, step: u64, stats: &[TensorStats], duals: Option<&dyn Duals>) -> Result<bool> {
        if !self.is_due(step) {
            return Ok(false);
        }
        let targets = self.targets(step)?;
        let before: Vec<f64> = self.loops.iter().map(|state| state.lambda).collect();
        for ((state, scope), target) in self.loops.iter_mut().zip(&self.scopes).zip(targets) {
            let reading = reading(step / self.config.period, target, scope, stats, duals);
            state.lambda = self.config.law.next(state.lambda, &reading, &mut state.memory)?;
        }
        self.spread();
        Ok(self.loops.iter().zip(before).any(|(state, before)| state.lambda != before))
    }

    /// Whether λ moves after step `step`: an update is due now, or was in the frozen steps since the last full one.
    pub fn is_due(&self, step: u64) -> bool {
        let due = |step: u64| {
            let warming_up = step <= self.config.warmup && self.config.warmup > 0;
            let period = match self.config.law.needs_duals() {
                // Duals spread by the share 1/t at step t: as long as that is much, so do the weights that pass λ
                // between two updates.
                true => self.config.period.min((step / EARLY).max(1)),
                false => self.config.period,
            };
            let ends_epoch = self.config.law.needs_duals() && self.freeze.ends_epoch(step.saturating_sub(1));
            !warming_up && (step.is_multiple_of(period) || ends_epoch)
        };
        let taken = step.saturating_sub(1);
        self.freeze.is_full(taken) && ((step + 1).saturating_sub(self.freeze.gap(taken))..=step).any(due)
    }

    /// Moves λ after full steps only, as [`Optimizer::set_freeze`](crate::Optimizer::set_freeze) makes them.
    pub(crate) fn set_freeze(&mut self, freeze: Freeze) {
        self.freeze = freeze;
    }

    /// λ of every tensor of the network, before its λ-scale.
    pub fn lambda(&self) -> &[f64] {
        &self.lambda
    }

    /// The settings.
    pub fn config(&self) -> &ControllerConfig {
        &self.config
    }

    /// s* of the whole network at a step.
    pub fn target_at(&self, step: u64) -> f64 {
        self.config.ramp.map_or(self.config.target, |ramp| ramp.at(step, self.config.target))
    }

    /// The statistics of everything under control, taken together.
    pub fn controlled(&self, stats: &[TensorStats]) -> TensorStats {
        self.scopes.iter().flatten().map(|&tensor| &stats[tensor]).sum()
    }

    /// The gain of each loop, measured on the duals: two passes over them, so ask now and then, not every step.
    ///
    /// # Errors
    /// Duals that cannot be reached.
    pub fn loop_gains(&self, step: u64, stats: &[TensorStats], duals: Option<&dyn Duals>) -> Result<Vec<LoopGain>> {
        let targets = self.targets(step)?;
        let gain = |((state, scope), target): ((&LoopState, &Vec<usize>), f64)| {
            stability::loop_gain(&self.config.law, state.lambda, &reading(0, target, scope, stats, duals))
        };
        self.loops.iter().zip(&self.scopes).zip(targets).filter_map(|each| gain(each).transpose()).collect()
    }

    /// Everything to be saved: one entry per loop.
    pub fn state(&self) -> &[LoopState] {
        &self.loops
    }

    /// Continues from a saved state.
    ///
    /// # Errors
    /// A state with another number of loops, or a λ that is not a number > 0; then nothing has changed.
    pub fn restore(&mut self, state: Vec<LoopState>) -> Result<()> {
        if state.len() != self.loops.len() {
            return Err(Error::Count { what: "saved control loops", expected: self.loops.len(), found: state.len() });
        }
        for LoopState { lambda, .. } in &state {
            require(*lambda > 0.0 && lambda.is_finite(), "saved λ", lambda, "a number > 0")?;
        }
        self.loops = state;
        self.spread();
        Ok(())
    }

    /// The target of each loop.
    fn targets(&self, step: u64) -> Result<Vec<f64>> {
        let target = self.target_at(step);
        match &self.config.layers {
            None => Ok(vec![target]),
            Some(budget) => budget.targets(&self.params.iter().collect::<Vec<_>>(), target),
        }
    }

    fn spread(&mut self) {
        for (state, scope) in self.loops.iter().zip(&self.scopes) {
            scope.iter().for_each(|&tensor| self.lambda[tensor] = state.lambda);
        }
    }
}

fn reading<'a>(
    tick: u64,
    target: f64,
    tensors: &'a [usize],
    stats: &[TensorStats],
    duals: Option<&'a dyn Duals>,
) -> Reading<'a> {
    let total: TensorStats = tensors.iter().map(|&tensor| &stats[tensor]).sum();
    Reading { tick, target, len: total.len, live: total.nonzeros(), tensors, duals }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::param::Role;

    fn updates(law: Law, steps: std::ops::RangeInclusive<u64>) -> u64 {
        let groups = Groups::resolve(vec![Param::new("w", [1, 10], Role::LinearWeight)], vec![]).unwrap();
        let controller = Controller::new(ControllerConfig { law, ..ControllerConfig::new(0.9) }, &groups, 1.0).unwrap();
        steps.filter(|&step| controller.is_due(step)).count() as u64
    }

    #[test]
    fn the_quantile_law_acts_at_every_step_at_first_and_once_in_a_period_later() {
        assert_eq!(updates(Law::default(), 1..=127), 127);
        assert_eq!(updates(Law::default(), 128..=191), 32);
        assert_eq!(updates(Law::default(), 10_001..=20_000), 200);
        assert_eq!(updates(Law::Multiplicative(Multiplicative::default()), 1..=1000), 20);
    }
}
