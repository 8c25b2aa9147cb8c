//! Magnitude pruning: a dense optimizer under masks that are chosen before an epoch.
//!
//! Gradual: before every epoch e = 0, 1, … the share s_i = 1 − (1 − s*)^(i / n) with i = e + 1 is pruned, over all n
//! epochs of the ramp. One-shot: the whole share at once, at initialisation or before a later epoch. Weights that are masked
//! stay masked.

use bregman::{Optimizer, Pruning, Ramp, Shape};
use bregman_nn::Model;

use super::weights;
use crate::config::MethodConfig;
use crate::{Device, Result};

/// When how much is pruned.
enum Timing {
    Gradual(Ramp),
    Once(u64),
}

pub(super) struct Pruned {
    pruning: Pruning,
    timing: Timing,
    target: f64,
}

impl Pruned {
    pub(super) fn new(config: &MethodConfig) -> Option<Self> {
        match config {
            MethodConfig::Gradual(config) => {
                let ramp = Ramp { shape: Shape::Exponential, from: 0.0, begin: 0, end: config.epochs };
                let pruning = Pruning { structure: config.structure, layers: config.layers.clone() };
                Some(Self { pruning, timing: Timing::Gradual(ramp), target: config.target })
            }
            MethodConfig::OneShot(config) => {
                let pruning = Pruning { structure: config.structure, layers: config.layers.clone() };
                Some(Self { pruning, timing: Timing::Once(config.at), target: config.target })
            }
            _ => None,
        }
    }

    /// The share that is masked during an epoch.
    pub(super) fn share(&self, epoch: u64) -> f64 {
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

    pub(super) fn begin_epoch<B: Device>(
        &self,
        epoch: u64,
        optimizer: &mut Optimizer<B::Arrays>,
        model: &mut Model<B>,
    ) -> Result<bool> {
        let share = self.share(epoch);
        let before = epoch.checked_sub(1).map_or(0.0, |before| self.share(before));
        if share == before {
            return Ok(false);
        }
        let described = optimizer.groups().params().to_vec();
        let chosen: Vec<usize> = (0..described.len()).filter(|&tensor| described[tensor].role.is_weight()).collect();
        let theta = weights(model)?;
        let layers: Vec<_> = chosen.iter().map(|&tensor| (&described[tensor], &*theta[tensor])).collect();
        let masks = self.pruning.masks(&layers, share)?;
        let params = model.parts_mut().1.all_mut();
        for (tensor, mask) in chosen.into_iter().zip(masks) {
            optimizer.set_mask_on(tensor, &mask, &mut params[tensor].value)?;
        }
        Ok(true)
    }
}
