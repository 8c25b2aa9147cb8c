//! An optimizer that nothing steers: dense training, and Bregman training with a fixed λ.

use bregman::controller::LoopState;
use bregman::optimizer::{Engine, TensorState};
use bregman::{GroupRule, Groups, Optimizer, OptimizerState};
use bregman_nn::Model;

use super::{Method, MethodStep, describe, start_sparse, weights};
use crate::config::{self, DenseConfig, FixedConfig};
use crate::{Device, Result};

/// λ of optimizers that have none.
const UNUSED: f64 = 1.0;

pub(super) struct Plain<B: Device> {
    optimizer: Optimizer,
    arrays: B::Arrays,
    lambda: Option<f64>,
    target: Option<f64>,
}

impl<B: Device> Plain<B> {
    pub(super) fn fixed(config: &FixedConfig, model: &mut Model<B>, seed: u64) -> Result<Self> {
        let groups = config::groups(describe(model.params()), &config.groups, config.general_rule())?;
        let weights = start_sparse(&groups, config.survivors, model, seed)?;
        let lambda = config.lambda.or(config.optimizer.default_lambda());
        let mut optimizer = Optimizer::new(config.optimizer, groups, lambda.unwrap_or(UNUSED), &weights)?;
        let arrays = model.backend().place(&mut optimizer)?;
        Ok(Self { optimizer, arrays, lambda, target: config.target })
    }

    pub(super) fn dense(config: &DenseConfig, model: &mut Model<B>) -> Result<Self> {
        let groups = Groups::resolve(describe(model.params()), vec![GroupRule::dense()])?;
        let mut optimizer = Optimizer::new(config.optimizer, groups, UNUSED, &weights(model)?)?;
        let arrays = model.backend().place(&mut optimizer)?;
        Ok(Self { optimizer, arrays, lambda: None, target: None })
    }
}

impl<B: Device> Method<B> for Plain<B> {
    fn begin_epoch(&mut self, _: u64, _: &mut Model<B>) -> Result<bool> {
        Ok(false)
    }

    fn step(&mut self, _: u64, model: &mut Model<B>, lr: f64) -> Result<MethodStep> {
        let (device, params) = model.parts_mut();
        device.engine(params, &mut self.arrays).step(&mut self.optimizer, lr)?;
        Ok(MethodStep { lambda: self.lambda, sparsity: self.sparsity(), target: self.target })
    }

    fn optimizer(&self) -> &Optimizer {
        &self.optimizer
    }

    fn arrays(&self, device: &B) -> Result<Vec<TensorState>> {
        device.fetch(&self.optimizer, &self.arrays)
    }

    fn restore(&mut self, optimizer: OptimizerState, _: Vec<LoopState>, model: &Model<B>) -> Result<()> {
        let arrays = model.backend().fetch(&self.optimizer, &self.arrays)?;
        self.optimizer.give_arrays(arrays); // what the saved ones are compared with
        self.optimizer.restore(optimizer, &weights(model)?)?;
        self.arrays = model.backend().place(&mut self.optimizer)?;
        Ok(())
    }
}
