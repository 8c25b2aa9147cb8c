//! An optimizer that nothing steers: dense training, and Bregman training with a fixed λ.

use bregman::controller::LoopState;
use bregman::{GroupRule, Groups, Optimizer, OptimizerState};
use bregman_nn::Params;
use bregman_tensor::Cpu;

use super::{Method, MethodStep, describe, start_sparse, weights};
use crate::Result;
use crate::config::{self, DenseConfig, FixedConfig};

/// λ of optimizers that have none.
const UNUSED: f64 = 1.0;

pub(super) struct Plain {
    optimizer: Optimizer,
    lambda: Option<f64>,
    target: Option<f64>,
}

impl Plain {
    pub(super) fn fixed(config: &FixedConfig, params: &mut Params<Cpu>, seed: u64) -> Result<Self> {
        let groups = config::groups(describe(params), &config.groups, config.general_rule())?;
        start_sparse(&groups, config.survivors, params, seed)?;
        let lambda = config.lambda.or(config.optimizer.default_lambda());
        let optimizer = Optimizer::new(config.optimizer, groups, lambda.unwrap_or(UNUSED), &weights(params))?;
        Ok(Self { optimizer, lambda, target: config.target })
    }

    pub(super) fn dense(config: &DenseConfig, params: &mut Params<Cpu>) -> Result<Self> {
        let groups = Groups::resolve(describe(params), vec![GroupRule::dense()])?;
        let optimizer = Optimizer::new(config.optimizer, groups, UNUSED, &weights(params))?;
        Ok(Self { optimizer, lambda: None, target: None })
    }
}

impl Method for Plain {
    fn begin_epoch(&mut self, _: u64, _: &mut Params<Cpu>) -> Result<bool> {
        Ok(false)
    }

    fn step(&mut self, _: u64, params: &mut Params<Cpu>, lr: f64) -> Result<MethodStep> {
        let (mut values, gradients) = params.values_and_gradients();
        self.optimizer.step(&mut values, &gradients, lr)?;
        Ok(MethodStep { lambda: self.lambda, sparsity: self.sparsity(), target: self.target })
    }

    fn optimizer(&self) -> &Optimizer {
        &self.optimizer
    }

    fn restore(&mut self, optimizer: OptimizerState, _: Vec<LoopState>, params: &Params<Cpu>) -> Result<()> {
        Ok(self.optimizer.restore(optimizer, &weights(params))?)
    }
}
