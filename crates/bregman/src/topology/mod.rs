//! Masks that move: which weights may be non-zero, and when that changes.
//!
//! A [`MaskPolicy`] says before which steps masks change, to which sparsity, how many of the weights are exchanged, and
//! by which scores weights are kept and grown. A [`Pruning`] says what is compared (weights or channels) and across
//! what (all layers together, or each by its [`Budget`](crate::Budget)). A [`Topology`] is both:
//! [`Optimizer::move_masks`](crate::Optimizer::move_masks) asks it before every step.
//!
//! | policy | changes | keeps | grows |
//! | --- | --- | --- | --- |
//! | [`GradualPruning`] | along a ramp of epochs | the largest | nothing |
//! | [`OneShotPruning`] | once | the largest | nothing |
//! | [`StaticMask`] | before the first step | at random | nothing |
//!
//! A policy has no state: what is masked is part of the optimizer's state, and random numbers are drawn by the step's
//! number. So a resumed run continues to the same bits.

mod gradual;
mod layer;
mod one_shot;
mod pruning;
mod static_mask;
#[cfg(test)]
mod tests;

pub use gradual::GradualPruning;
pub use layer::MaskedLayer;
pub use one_shot::OneShotPruning;
pub use pruning::{Pruning, Structure};
pub use static_mask::StaticMask;

use std::fmt::Debug;

use crate::error::{Error, Result, require};
use pruning::{Scores, largest};

/// Where a run stands: what a policy decides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunClock {
    /// Steps taken so far.
    pub step: u64,
    /// Steps of the whole run.
    pub total: u64,
    /// The present epoch, from 0.
    pub epoch: u64,
    /// Steps taken in it.
    pub batch: u64,
}

impl RunClock {
    /// Whether the next step is the first of an epoch.
    pub fn begins_epoch(&self) -> bool {
        self.batch == 0
    }
}

/// What happens to the masks before a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MaskChange {
    /// The share of weights that is masked afterwards; 0 lifts all masks.
    pub sparsity: f64,
    /// Of the weights that are not masked afterwards, the share that is grown in exchange for others: SET's and RigL's
    /// drop fraction.
    pub exchanged: f64,
}

impl MaskChange {
    /// A change that exchanges nothing.
    pub fn to(sparsity: f64) -> Self {
        Self { sparsity, exchanged: 0.0 }
    }
}

/// When masks change, and which weights they keep and grow.
///
/// SET (Mocanu et al., 2018), which drops the smallest weights and grows as many at random, would be:
///
/// ```
/// use bregman::topology::{MaskChange, MaskPolicy, MaskedLayer, RunClock};
///
/// #[derive(Debug)]
/// struct Set { target: f64, fraction: f64, every: u64 }
///
/// impl MaskPolicy for Set {
///     fn sparsity(&self, _: &RunClock) -> f64 {
///         self.target
///     }
///     fn change(&self, clock: &RunClock) -> Option<MaskChange> {
///         let fading = 0.5 * (1.0 + (std::f64::consts::PI * clock.step as f64 / clock.total as f64).cos());
///         let change = MaskChange { sparsity: self.target, exchanged: self.fraction * fading };
///         clock.step.is_multiple_of(self.every).then_some(change)
///     }
///     fn grow(&self, layer: &MaskedLayer<'_>) -> Option<Vec<f32>> {
///         Some(layer.random()) // RigL: layer.gradients(), and `needs_gradients`
///     }
/// }
/// ```
pub trait MaskPolicy: Debug + Send {
    /// Refuses settings out of range.
    ///
    /// # Errors
    /// The setting.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The share of weights that is masked during the next step.
    fn sparsity(&self, clock: &RunClock) -> f64;

    /// What happens to the masks before the next step; `None` leaves them as they are.
    fn change(&self, clock: &RunClock) -> Option<MaskChange>;

    /// A score ≥ 0 for every weight: among the weights that are not masked yet, those with the largest are kept.
    fn keep(&self, layer: &MaskedLayer<'_>) -> Vec<f32> {
        layer.magnitudes()
    }

    /// A score ≥ 0 for every weight: among the weights that are not kept, those with the largest are grown. `None`
    /// grows nothing, so that fewer and fewer weights are non-zero.
    fn grow(&self, _: &MaskedLayer<'_>) -> Option<Vec<f32>> {
        None
    }

    /// Whether scores look at gradients. Masks then change between the gradients of a step and the step itself,
    /// otherwise before the forward pass.
    fn needs_gradients(&self) -> bool {
        false
    }
}

fn check_target(target: f64) -> Result<()> {
    require(target > 0.0 && target < 1.0, "target", target, "a share in (0, 1), such as 0.95")
}

/// A mask policy and what it compares.
#[derive(Debug)]
pub struct Topology {
    policy: Box<dyn MaskPolicy>,
    pruning: Pruning,
    seed: u64,
}

impl Topology {
    /// Masks by `policy`; `seed` is for those that draw random numbers.
    ///
    /// # Errors
    /// A setting of the policy that is out of range.
    pub fn new(policy: impl MaskPolicy + 'static, pruning: Pruning, seed: u64) -> Result<Self> {
        policy.check()?;
        Ok(Self { policy: Box::new(policy), pruning, seed })
    }

    /// The policy.
    pub fn policy(&self) -> &dyn MaskPolicy {
        &*self.policy
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// The masks after a change, `true` where a weight may be non-zero; empty where all may. Exactly round(s·n) single
    /// weights are masked, ties by position; of channels, as many as are needed to reach the share.
    ///
    /// # Errors
    /// A share outside [0, 1), weights that do not fit their shape or are not finite, a budget that cannot be met.
    pub fn masks(&self, change: MaskChange, layers: &[MaskedLayer<'_>]) -> Result<Vec<Vec<bool>>> {
        let MaskChange { sparsity, exchanged } = change;
        require((0.0..1.0).contains(&sparsity), "sparsity", sparsity, "a share in [0, 1)")?;
        require((0.0..=1.0).contains(&exchanged), "exchanged", exchanged, "a share in [0, 1]")?;
        if layers.is_empty() {
            return Err(Error::NothingControlled);
        }
        layers.iter().try_for_each(MaskedLayer::check)?;
        if sparsity == 0.0 {
            return Ok(vec![vec![]; layers.len()]);
        }
        let mut masks = Vec::with_capacity(layers.len());
        let params: Vec<_> = layers.iter().map(|layer| layer.param).collect();
        for (scope, most) in self.pruning.scopes(&params, sparsity)? {
            masks.extend(self.masks_of(&layers[scope], most, (exchanged * most as f64).round() as u64));
        }
        Ok(masks)
    }

    /// The masks of layers that are compared with each other and keep `most` weights, `grown` of them new ones.
    fn masks_of(&self, layers: &[MaskedLayer<'_>], most: u64, grown: u64) -> Vec<Vec<bool>> {
        let scores = |layer: &MaskedLayer<'_>, values, candidate: &dyn Fn(usize) -> bool| {
            Scores::new(self.pruning.structure, layer.param, values, candidate)
        };
        let grow: Option<Vec<Vec<f32>>> = layers.iter().map(|layer| self.policy.grow(layer)).collect();
        let most_kept = if grow.is_some() { most - grown } else { most };
        let by_keep: Vec<Scores> =
            layers.iter().map(|layer| scores(layer, self.policy.keep(layer), &|i| layer.allows(i))).collect();
        let mut masks = largest(&by_keep, most_kept);
        if let Some(grow) = grow {
            let kept = masks.iter().flatten().filter(|kept| **kept).count() as u64;
            let by_grow: Vec<Scores> = (layers.iter().zip(grow).zip(&masks))
                .map(|((layer, values), kept)| scores(layer, values, &|i| !kept[i]))
                .collect();
            for (mask, grown) in masks.iter_mut().zip(largest(&by_grow, most - kept)) {
                mask.iter_mut().zip(grown).for_each(|(kept, grown)| *kept |= grown);
            }
        }
        masks
    }
}
