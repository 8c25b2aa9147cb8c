//! Magnitude pruning: a dense optimizer under masks that are chosen before an epoch.
//!
//! Gradual: before every epoch e = 0, 1, … the share s_i = 1 − (1 − s*)^(i / n) with i = e + 1 is pruned, over all n epochs of the ramp.
//! One-shot: the whole share at once, at initialisation or before a later epoch. Weights that died stay dead.

use bregman::controller::LoopState;
use bregman::{GroupRule, Groups, Optimizer, OptimizerState, Pruning, Ramp, Rule, Shape};
use bregman_nn::Params;
use bregman_tensor::Cpu;

use super::{Method, MethodStep, describe, weights};
use crate::Result;
use crate::config::{GradualConfig, OneShotConfig};

/// When how much is pruned.
enum Timing {
    Gradual(Ramp),
    Once(u64),
}

pub(super) struct Pruned {
    optimizer: Optimizer,
    pruning: Pruning,
    timing: Timing,
    target: f64,
}

impl Pruned {
    pub(super) fn gradual(config: &GradualConfig, params: &mut Params<Cpu>) -> Result<Self> {
        let ramp = Ramp { shape: Shape::Exponential, from: 0.0, begin: 0, end: config.epochs };
        let pruning = Pruning { structure: config.structure, layers: config.layers.clone() };
        Self::new(config.optimizer, pruning, Timing::Gradual(ramp), config.target, params)
    }

    pub(super) fn one_shot(config: &OneShotConfig, params: &mut Params<Cpu>) -> Result<Self> {
        let pruning = Pruning { structure: config.structure, layers: config.layers.clone() };
        Self::new(config.optimizer, pruning, Timing::Once(config.at), config.target, params)
    }

    fn new(rule: Rule, pruning: Pruning, timing: Timing, target: f64, params: &mut Params<Cpu>) -> Result<Self> {
        let groups = Groups::resolve(describe(params), vec![GroupRule::dense()])?;
        let optimizer = Optimizer::new(rule, groups, 1.0, &weights(params))?;
        Ok(Self { optimizer, pruning, timing, target })
    }

    /// The share that is dead during an epoch.
    fn share(&self, epoch: u64) -> f64 {
        match self.timing {
            Timing::Gradual(ramp) => ramp.at(epoch + 1, self.target),
            Timing::Once(at) => {
                if epoch >= at {
                    self.target
                } else {
                    0.0
                }
            }
        }
    }
}

impl Method for Pruned {
    fn begin_epoch(&mut self, epoch: u64, params: &mut Params<Cpu>) -> Result<bool> {
        let share = self.share(epoch);
        let before = epoch.checked_sub(1).map_or(0.0, |before| self.share(before));
        if share == before {
            return Ok(false);
        }
        let described = self.optimizer.groups().params().to_vec();
        let chosen: Vec<usize> = (0..described.len()).filter(|&tensor| described[tensor].role.is_weight()).collect();
        let theta = weights(params);
        let layers: Vec<_> = chosen.iter().map(|&tensor| (&described[tensor], theta[tensor])).collect();
        let masks = self.pruning.masks(&layers, share)?;
        for (tensor, mask) in chosen.into_iter().zip(masks) {
            let value = &mut params.all_mut()[tensor].value;
            value.iter_mut().zip(&mask).filter(|(_, lives)| !**lives).for_each(|(weight, _)| *weight = 0.0);
            self.optimizer.set_mask(tensor, mask)?;
        }
        Ok(true)
    }

    fn step(&mut self, epoch: u64, params: &mut Params<Cpu>, lr: f64) -> Result<MethodStep> {
        let (mut values, gradients) = params.values_and_gradients();
        self.optimizer.step(&mut values, &gradients, lr)?;
        Ok(MethodStep { lambda: None, sparsity: self.sparsity(), target: Some(self.share(epoch)) })
    }

    fn optimizer(&self) -> &Optimizer {
        &self.optimizer
    }

    fn restore(&mut self, optimizer: OptimizerState, _: Vec<LoopState>, params: &Params<Cpu>) -> Result<()> {
        Ok(self.optimizer.restore(optimizer, &weights(params))?)
    }
}
