//! The paper's method: a Bregman optimizer with a λ controller.

use bregman::controller::{LoopGain, LoopState, UNSTABLE};
use bregman::optimizer::TensorState;
use bregman::{AdaptiveOptimizer, Optimizer, OptimizerState};
use bregman_nn::Model;

use super::{Method, MethodStep, describe, start_sparse, weights};
use crate::config::{self, AdaptiveConfig};
use crate::{Device, Result};

pub(super) struct Adaptive<B: Device> {
    optimizer: AdaptiveOptimizer,
    arrays: B::Arrays,
}

impl<B: Device> Adaptive<B> {
    pub(super) fn new(config: &AdaptiveConfig, model: &mut Model<B>, total: u64, lr: f64, seed: u64) -> Result<Self> {
        let groups = config::groups(describe(model.params()), &config.groups, config.general_rule())?;
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

    fn unrest(&self, device: &B) -> Result<Option<String>> {
        let mut host = self.optimizer.clone();
        host.optimizer_mut().give_arrays(self.arrays(device)?);
        Ok(host.loop_gains()?.iter().filter(|gain| gain.gain > UNSTABLE).find_map(LoopGain::warning))
    }

    fn loops(&self) -> &[LoopState] {
        self.optimizer.controller().state()
    }

    fn arrays(&self, device: &B) -> Result<Vec<TensorState>> {
        device.fetch(self.optimizer.optimizer(), &self.arrays)
    }

    fn restore(&mut self, optimizer: OptimizerState, loops: Vec<LoopState>, model: &Model<B>) -> Result<()> {
        let arrays = model.backend().fetch(self.optimizer.optimizer(), &self.arrays)?;
        self.optimizer.optimizer_mut().give_arrays(arrays); // what the saved ones are compared with
        self.optimizer.restore(optimizer, loops, &weights(model)?)?;
        self.arrays = model.backend().place(self.optimizer.optimizer_mut())?;
        Ok(())
    }
}
