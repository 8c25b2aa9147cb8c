//! The paper's method: a Bregman optimizer with a λ controller.

use bregman::controller::LoopState;
use bregman::{AdaptiveOptimizer, Optimizer, OptimizerState};
use bregman_nn::Params;
use bregman_tensor::Cpu;

use super::{Method, MethodStep, describe, start_sparse, weights};
use crate::Result;
use crate::config::{self, AdaptiveConfig};

/// A loop swings if the sparsity crosses its target more often than once in so many updates.
const SWINGING: u64 = 8;

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

    fn unrest(&self) -> Option<String> {
        let updates = self.0.optimizer().state().step / self.0.controller().config().period;
        let crossings = self.loops().iter().map(|state| u64::from(state.memory.crossings)).max().unwrap_or(0);
        let advice = "start from a smaller λ (method.lambda), lower the gain (method.law.alpha), or take the quantile law";
        (SWINGING * crossings > updates).then(|| {
            format!("λ swings: the sparsity crossed its target {crossings} times in {updates} updates without coming to rest; {advice}")
        })
    }

    fn loops(&self) -> &[LoopState] {
        self.0.controller().state()
    }

    fn restore(&mut self, optimizer: OptimizerState, loops: Vec<LoopState>, params: &Params<Cpu>) -> Result<()> {
        Ok(self.0.restore(optimizer, loops, &weights(params))?)
    }
}
