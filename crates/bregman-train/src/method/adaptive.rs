//! The paper's method: a Bregman optimizer with a λ controller.

use bregman::controller::{LoopGain, LoopState, UNSTABLE};
use bregman::{AdaptiveOptimizer, Optimizer, OptimizerState};
use bregman_nn::Params;
use bregman_tensor::Cpu;

use super::{Method, MethodStep, describe, start_sparse, weights};
use crate::Result;
use crate::config::{self, AdaptiveConfig};

pub(super) struct Adaptive(AdaptiveOptimizer);

impl Adaptive {
    pub(super) fn new(config: &AdaptiveConfig, params: &mut Params<Cpu>, total: u64, lr: f64, seed: u64) -> Result<Self> {
        let groups = config::groups(describe(params), &config.groups, config.general_rule())?;
        start_sparse(&groups, config.survivors, params, seed)?;
        Ok(Self(AdaptiveOptimizer::new(config.optimizer, groups, config.controller(total, lr), &weights(params))?))
    }
}

impl Method for Adaptive {
    fn begin_epoch(&mut self, _: u64, _: &mut Params<Cpu>) -> Result<bool> {
        Ok(false)
    }

    fn step(&mut self, _: u64, params: &mut Params<Cpu>, lr: f64) -> Result<MethodStep> {
        let (mut values, gradients) = params.values_and_gradients();
        let report = self.0.step(&mut values, &gradients, lr)?;
        Ok(MethodStep { lambda: Some(report.lambda), sparsity: report.sparsity, target: Some(report.target) })
    }

    fn optimizer(&self) -> &Optimizer {
        self.0.optimizer()
    }

    fn unrest(&self) -> Result<Option<String>> {
        Ok(self.0.loop_gains()?.iter().filter(|gain| gain.gain > UNSTABLE).find_map(LoopGain::warning))
    }

    fn loops(&self) -> &[LoopState] {
        self.0.controller().state()
    }

    fn restore(&mut self, optimizer: OptimizerState, loops: Vec<LoopState>, params: &Params<Cpu>) -> Result<()> {
        Ok(self.0.restore(optimizer, loops, &weights(params))?)
    }
}
