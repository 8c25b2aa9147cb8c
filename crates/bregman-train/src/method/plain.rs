//! An optimizer that nothing steers: dense training, and Bregman training with a fixed λ.

use std::borrow::Cow;

use bregman::controller::LoopState;
use bregman::optimizer::TensorState;
use bregman::{GroupRule, Groups, Optimizer, OptimizerState};
use bregman_nn::Model;

use super::{Method, MethodStep, Placed, start_sparse, weights};
use crate::config::{self, DenseConfig, FixedConfig};
use crate::{Device, Result};

/// λ of optimizers that have none.
const UNUSED: f64 = 1.0;

pub(super) struct Plain<B: Device> {
    placed: Placed<B>,
    lambda: Option<f64>,
    target: Option<f64>,
}

impl<B: Device> Plain<B> {
    pub(super) fn fixed(config: &FixedConfig, model: &mut Model<B>, seed: u64) -> Result<Self> {
        let groups = config::groups(model.params().described(), &config.groups, config.general_rule())?;
        let weights = start_sparse(&groups, config.survivors, model, seed)?;
        let lambda = config.lambda.or(config.optimizer.default_lambda());
        let optimizer = Optimizer::new(config.optimizer, groups, lambda.unwrap_or(UNUSED), &weights)?;
        Ok(Self { placed: Placed::new(optimizer, model.backend())?, lambda, target: config.target })
    }

    pub(super) fn dense(config: &DenseConfig, model: &mut Model<B>) -> Result<Self> {
        let groups = Groups::resolve(model.params().described(), vec![GroupRule::dense()])?;
        let optimizer = Optimizer::new(config.optimizer, groups, UNUSED, &weights(model)?)?;
        Ok(Self { placed: Placed::new(optimizer, model.backend())?, lambda: None, target: None })
    }
}

impl<B: Device> Method<B> for Plain<B> {
    fn begin_epoch(&mut self, _: u64, _: &mut Model<B>) -> Result<bool> {
        Ok(false)
    }

    fn step(&mut self, _: u64, model: &mut Model<B>, lr: f64) -> Result<MethodStep> {
        self.placed.step(model, lr)?;
        Ok(MethodStep { lambda: self.lambda, sparsity: self.sparsity(), target: self.target })
    }

    fn optimizer(&self) -> &Optimizer {
        &self.placed.optimizer
    }

    fn arrays(&self, device: &B) -> Result<Cow<'_, [TensorState]>> {
        self.placed.arrays(device)
    }

    fn restore(&mut self, optimizer: OptimizerState, _: Vec<LoopState>, model: &Model<B>) -> Result<()> {
        self.placed.restore(optimizer, model)
    }
}
