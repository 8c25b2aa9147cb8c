//! The paper's method: a Bregman optimizer with a λ controller.

use std::borrow::Cow;

use bregman::controller::LoopState;
use bregman::optimizer::TensorState;
use bregman::{AdaptiveOptimizer, Optimizer, OptimizerState};
use bregman_nn::Model;

use super::{Method, MethodStep, start_sparse, take_back, weights};
use crate::config::{self, AdaptiveConfig};
use crate::{Device, Result};

/// A loop swings if the sparsity crosses its target more often than once in so many updates.
const SWINGING: u64 = 8;

pub(super) struct Adaptive<B: Device> {
    optimizer: AdaptiveOptimizer,
    arrays: B::Arrays,
}

impl<B: Device> Adaptive<B> {
    pub(super) fn new(config: &AdaptiveConfig, model: &mut Model<B>, total: u64, lr: f64, seed: u64) -> Result<Self> {
        let groups = config::groups(model.params().described(), &config.groups, config.general_rule())?;
        let weights = start_sparse(&groups, config.survivors, model, seed)?;
        let mut optimizer = AdaptiveOptimizer::new(config.optimizer, groups, config.controller(total, lr), &weights)?;
        let arrays = model.backend().place(optimizer.optimizer_mut())?;
        Ok(Self { optimizer, arrays })
    }
}

impl<B: Device> Method<B> for Adaptive<B> {
    fn begin_epoch(&mut self, _: u64, _: &mut Model<B>) -> Result<bool> {
        Ok(false)
    }

    fn step(&mut self, _: u64, model: &mut Model<B>, lr: f64) -> Result<MethodStep> {
        let (device, params) = model.parts_mut();
        let report = self.optimizer.step_on(&mut device.engine(params, &mut self.arrays), lr)?;
        Ok(MethodStep { lambda: Some(report.lambda), sparsity: report.sparsity, target: Some(report.target) })
    }

    fn optimizer(&self) -> &Optimizer {
        self.optimizer.optimizer()
    }

    fn unrest(&self) -> Option<String> {
        let updates = self.optimizer.optimizer().state().step / self.optimizer.controller().config().period;
        let crossings = self
            .optimizer
            .controller()
            .state()
            .iter()
            .map(|state| u64::from(state.memory.crossings))
            .max()
            .unwrap_or(0);
        let advice =
            "start from a smaller λ (method.lambda), lower the gain (method.law.alpha), or take the quantile law";
        (SWINGING * crossings > updates).then(|| {
            format!("λ swings: the sparsity crossed its target {crossings} times in {updates} updates without coming to rest; {advice}")
        })
    }

    fn loops(&self) -> &[LoopState] {
        self.optimizer.controller().state()
    }

    fn arrays(&self, device: &B) -> Result<Cow<'_, [TensorState]>> {
        device.fetch(self.optimizer.optimizer(), &self.arrays)
    }

    fn restore(&mut self, optimizer: OptimizerState, loops: Vec<LoopState>, model: &Model<B>) -> Result<()> {
        take_back(model.backend(), self.optimizer.optimizer_mut(), &self.arrays)?; // what the saved ones are compared with
        self.optimizer.restore(optimizer, loops, &weights(model)?)?;
        self.arrays = model.backend().place(self.optimizer.optimizer_mut())?;
        Ok(())
    }
}
