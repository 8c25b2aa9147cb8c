//! Masks that move: which weights may be non-zero, and when that changes.
//!
//! A [`MaskPolicy`] says before which steps masks change, to which sparsity, how many of the weights are exchanged, and
//! by which scores weights are kept and grown. A [`Pruning`] says what is compared (weights or channels) and across
//! what (all layers together, or each by its [`Budget`]). A [`Topology`] is both:
//! [`Optimizer::move_masks`](crate::Optimizer::move_masks) asks it before every step.
//!
//! | policy | starts | changes | keeps | grows |
//! | --- | --- | --- | --- | --- |
//! | [`GradualPruning`] | dense | along a ramp of epochs | the largest | nothing |
//! | [`OneShotPruning`] | dense | once | the largest | nothing |
//! | [`StaticMask`] | at random | never | | |
//! | [`Snip`] | by \|θ·g\|, in rounds | never | | |
//! | [`DropGrow`], SET | at random | every ΔT steps | the largest | at random |
//! | [`DropGrow`], RigL | at random | every ΔT steps | the largest | the steepest |
//! | [`GraNet`] | at random | every ΔT steps, ever sparser | the largest | the steepest |
//! | [`Mest`] | at random | every ΔT steps | by \|θ\| + λ·\|g\| | at random |
//! | [`AcDc`] | dense | sparse and dense in turns of epochs | the largest | all |
//!
//! A policy has no state: what is masked is part of the optimizer's state, and random numbers are drawn by the step's
//! number. So a resumed run continues to the same bits.

mod acdc;
mod drop_grow;
mod exchange;
mod gradual;
mod granet;
mod layer;
mod mest;
mod one_shot;
#[cfg(test)]
mod policy_tests;
mod pruning;
mod snip;
mod static_mask;
#[cfg(test)]
mod tests;

pub use acdc::{AcDc, Phases};
pub use drop_grow::{DropGrow, Growth};
pub use exchange::Exchange;
pub use gradual::GradualPruning;
pub use granet::GraNet;
pub use layer::MaskedLayer;
pub use mest::{Mest, MutationStage};
pub use one_shot::OneShotPruning;
pub use pruning::{Pruning, Structure};
pub use snip::Snip;
pub use static_mask::StaticMask;

use std::fmt::Debug;

use crate::budget::Budget;
use crate::error::{Result, require};
use pruning::{Scope, Scores, largest};

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
    /// Of each layer's weights that are not masked afterwards, the share that is grown in exchange for others of that
    /// layer: SET's and RigL's drop fraction.
    pub exchanged: f64,
}

impl MaskChange {
    /// A change that exchanges nothing.
    pub fn to(sparsity: f64) -> Self {
        Self { sparsity, exchanged: 0.0 }
    }
}

/// The masks before the first step.
#[derive(Debug, Clone, PartialEq)]
pub enum Start {
    /// None.
    Dense,
    /// A random mask of this sparsity, shared out between the layers by the budget, or by ERK where all layers are
    /// compared together.
    Random(f64),
    /// Masks by [`MaskPolicy::keep`] in rounds of these sparsities, each with gradients under the masks of the last.
    Scored(Vec<f64>),
}

impl Start {
    /// The sparsity after a round, counted from 0; `None` when there is no such round.
    pub fn round(&self, round: usize) -> Option<f64> {
        match self {
            Start::Dense => None,
            Start::Random(sparsity) => (round == 0).then_some(*sparsity),
            Start::Scored(rounds) => rounds.get(round).copied(),
        }
    }
}

/// When masks change, and which weights they keep and grow.
///
/// One that exchanges a tenth of the weights after every epoch, those with the smallest gradients for random ones:
///
/// ```
/// use bregman::topology::{MaskChange, MaskPolicy, MaskedLayer, RunClock, Start};
///
/// #[derive(Debug)]
/// struct Restless { target: f64 }
///
/// impl MaskPolicy for Restless {
///     fn start(&self) -> Start {
///         Start::Random(self.target)
///     }
///     fn sparsity(&self, _: &RunClock) -> f64 {
///         self.target
///     }
///     fn change(&self, clock: &RunClock) -> Option<MaskChange> {
///         clock.begins_epoch().then_some(MaskChange { sparsity: self.target, exchanged: 0.1 })
///     }
///     fn keep(&self, layer: &MaskedLayer<'_>) -> Vec<f32> {
///         layer.gradients()
///     }
///     fn grow(&self, layer: &MaskedLayer<'_>) -> Option<Vec<f32>> {
///         Some(layer.random())
///     }
///     fn needs_gradients(&self) -> bool {
///         true
///     }
/// }
/// ```
pub trait MaskPolicy: Debug + Send + Sync {
    /// Refuses settings out of range.
    ///
    /// # Errors
    /// The setting.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The masks before the first step.
    fn start(&self) -> Start {
        Start::Dense
    }

    /// The share of weights that is masked during the next step.
    fn sparsity(&self, clock: &RunClock) -> f64;

    /// What happens to the masks before the next step; `None` leaves them as they are. It depends on the clock alone:
    /// whoever computes gradients asks beforehand whether this step needs those of masked weights.
    fn change(&self, clock: &RunClock) -> Option<MaskChange>;

    /// A score ≥ 0 for every weight: among the weights that are not masked yet, those with the largest are kept.
    fn keep(&self, layer: &MaskedLayer<'_>) -> Vec<f32> {
        layer.magnitudes()
    }

    /// A score ≥ 0 for every weight: among the weights that are not kept, those with the largest are grown; one that
    /// was dropped for it just now keeps its value. `None` grows nothing, so that fewer and fewer weights are non-zero.
    fn grow(&self, _: &MaskedLayer<'_>) -> Option<Vec<f32>> {
        None
    }

    /// Whether scores look at gradients. Masks then change after the step that the gradients were for, which is taken
    /// with the masks as they were: a grown weight has the steepest gradient of all, and would begin with a jump.
    /// Otherwise they change before the forward pass.
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
    /// Where all layers are compared together, that decides how many weights each layer has; the exchange stays inside
    /// of each.
    ///
    /// # Errors
    /// A share outside [0, 1), weights that do not fit their shape or are not finite, a budget that cannot be met.
    pub fn masks(&self, change: MaskChange, layers: &[MaskedLayer<'_>]) -> Result<Vec<Vec<bool>>> {
        let MaskChange { sparsity, exchanged } = change;
        require((0.0..=1.0).contains(&exchanged), "exchanged", exchanged, "a share in [0, 1]")?;
        let Some(scopes) = self.pruning.scopes(layers, sparsity)? else { return Ok(vec![vec![]; layers.len()]) };
        let grown = |most: u64| (exchanged * most as f64).round() as u64;
        let mut masks = Vec::with_capacity(layers.len());
        for Scope { layers: scope, most } in scopes {
            let layers = &layers[scope];
            if layers.len() == 1 || exchanged == 0.0 {
                masks.extend(self.masks_of(layers, most, grown(most)));
                continue;
            }
            for (layer, mask) in layers.iter().zip(self.masks_of(layers, most, 0)) {
                let most = mask.iter().filter(|kept| **kept).count() as u64;
                masks.extend(self.masks_of(std::slice::from_ref(layer), most, grown(most)));
            }
        }
        Ok(masks)
    }

    /// The masks of a round of the policy's [start](MaskPolicy::start) that has this sparsity, drawn or scored.
    ///
    /// # Errors
    /// As [`Topology::masks`].
    pub fn start_masks(&self, sparsity: f64, layers: &[MaskedLayer<'_>]) -> Result<Vec<Vec<bool>>> {
        if !matches!(self.policy.start(), Start::Random(_)) {
            return self.masks(MaskChange::to(sparsity), layers);
        }
        let budget = self.pruning.layers.clone().unwrap_or_else(Budget::erk);
        let pruning = Pruning { layers: Some(budget), structure: self.pruning.structure };
        let Some(scopes) = pruning.scopes(layers, sparsity)? else { return Ok(vec![vec![]; layers.len()]) };
        let draw = |Scope { layers: scope, most }: Scope| {
            let scores = |layer: &MaskedLayer<'_>| {
                Scores::new(pruning.structure, layer.param, layer.random(), &|i| layer.allows(i))
            };
            largest(&layers[scope].iter().map(scores).collect::<Vec<_>>(), most)
        };
        Ok(scopes.into_iter().flat_map(draw).collect())
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
