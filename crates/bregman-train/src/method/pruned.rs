//! Magnitude pruning: a dense optimizer under masks that are chosen before an epoch.
//!
//! Gradual: before every epoch e = 0, 1, … the share s_i = 1 − (1 − s*)^(i / n) with i = e + 1 is pruned, over all n
//! epochs of the ramp. One-shot: the whole share at once, at initialisation or before a later epoch. Weights that died
//! stay dead.

use std::borrow::Cow;

use bregman::controller::LoopState;
use bregman::optimizer::TensorState;
use bregman::{GroupRule, Groups, Optimizer, OptimizerState, Pruning, Ramp, Rule, Shape};
use bregman_nn::Model;

use super::{Method, MethodStep, Placed, set_weights, weights};
use crate::config::{GradualConfig, OneShotConfig};
use crate::{Device, Result};

/// When how much is pruned.
enum Timing {
    Gradual(Ramp),
    Once(u64),
}

pub(super) struct Pruned<B: Device> {
    placed: Placed<B>,
    pruning: Pruning,
    timing: Timing,
    target: f64,
}

impl<B: Device> Pruned<B> {
    pub(super) fn gradual(config: &GradualConfig, model: &mut Model<B>) -> Result<Self> {
        let ramp = Ramp { shape: Shape::Exponential, from: 0.0, begin: 0, end: config.epochs };
        let pruning = Pruning { structure: config.structure, layers: config.layers.clone() };
        Self::new(config.optimizer, pruning, Timing::Gradual(ramp), config.target, model)
    }

    pub(super) fn one_shot(config: &OneShotConfig, model: &mut Model<B>) -> Result<Self> {
        let pruning = Pruning { structure: config.structure, layers: config.layers.clone() };
        Self::new(config.optimizer, pruning, Timing::Once(config.at), config.target, model)
    }

    fn new(rule: Rule, pruning: Pruning, timing: Timing, target: f64, model: &mut Model<B>) -> Result<Self> {
        let groups = Groups::resolve(model.params().described(), vec![GroupRule::dense()])?;
        let optimizer = Optimizer::new(rule, groups, 1.0, &weights(model)?)?;
        Ok(Self { placed: Placed::new(optimizer, model.backend())?, pruning, timing, target })
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

impl<B: Device> Method<B> for Pruned<B> {
    fn begin_epoch(&mut self, epoch: u64, model: &mut Model<B>) -> Result<bool> {
        let share = self.share(epoch);
        let before = epoch.checked_sub(1).map_or(0.0, |before| self.share(before));
        if share == before {
            return Ok(false);
        }
        let described = self.placed.optimizer.groups().params().to_vec();
        let chosen: Vec<usize> = (0..described.len()).filter(|&tensor| described[tensor].role.is_weight()).collect();
        let mut theta = weights(model)?;
        let layers: Vec<_> = chosen.iter().map(|&tensor| (&described[tensor], &*theta[tensor])).collect();
        let masks = self.pruning.masks(&layers, share)?;
        for (&tensor, mask) in chosen.iter().zip(&masks) {
            theta[tensor].iter_mut().zip(mask).filter(|(_, lives)| !**lives).for_each(|(weight, _)| *weight = 0.0);
        }
        set_weights(model, &theta)?;
        self.placed.on_host(model.backend(), |optimizer| {
            chosen.into_iter().zip(masks).try_for_each(|(tensor, mask)| Ok(optimizer.set_mask(tensor, mask)?))
        })?;
        Ok(true)
    }

    fn step(&mut self, epoch: u64, model: &mut Model<B>, lr: f64) -> Result<MethodStep> {
        self.placed.step(model, lr)?;
        Ok(MethodStep { lambda: None, sparsity: self.sparsity(), target: Some(self.share(epoch)) })
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
