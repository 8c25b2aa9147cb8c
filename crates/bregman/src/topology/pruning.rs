//! What masks compare, and across what: the selection that every policy shares.

use std::ops::Range;

use bregman_base::lanes::sum_of_squares;
use serde::{Deserialize, Serialize};

use super::{MaskChange, MaskedLayer, OneShotPruning, Topology};
use crate::budget::Budget;
use crate::error::{Error, Result, require};
use crate::param::Param;
use crate::select::smallest_threshold;

/// What is masked together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Structure {
    /// Single weights, each by its score.
    #[default]
    Weights,
    /// Output channels or neurons, by the root mean square of their weights' scores.
    Channels,
}

/// How the weights that are masked are chosen.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pruning {
    /// What is masked together.
    pub structure: Structure,
    /// `None` compares all layers together; a budget gives each layer its own share.
    pub layers: Option<Budget>,
}

impl Pruning {
    /// Masks (`true` stays) under which a share `sparsity` of the weights is pruned, the smallest first.
    ///
    /// Exactly round(s·n) single weights are pruned, ties by position; of channels, as many as are needed to reach the
    /// share.
    ///
    /// ```
    /// use bregman::{Param, Pruning, Role};
    /// let layer = Param::new("w", [2, 3], Role::LinearWeight);
    /// let masks = Pruning::default().masks(&[(&layer, &[0.1, -2.0, 0.3, 1.0, 0.0, -0.2][..])], 0.5)?;
    /// assert_eq!(masks, [vec![false, true, true, true, false, false]]);
    /// # Ok::<(), bregman::Error>(())
    /// ```
    ///
    /// # Errors
    /// A share outside [0, 1), weights that do not fit their shape or are not finite, a budget that cannot be met.
    pub fn masks(&self, layers: &[(&Param, &[f32])], sparsity: f64) -> Result<Vec<Vec<bool>>> {
        let policy = OneShotPruning { target: sparsity, epoch: 0 };
        let seen: Vec<MaskedLayer<'_>> =
            layers.iter().map(|(param, theta)| MaskedLayer::new(param, theta, &[], &[], 0, 0)).collect();
        let once = Topology { policy: Box::new(policy), pruning: self.clone(), seed: 0 };
        let masks = once.masks(MaskChange::to(sparsity), &seen)?;
        let all = |(mask, (param, _)): (Vec<bool>, &(&Param, &[f32]))| {
            if mask.is_empty() { vec![true; param.len()] } else { mask }
        };
        Ok(masks.into_iter().zip(layers).map(all).collect())
    }

    /// The layers in scopes at this sparsity; `None` where all weights stay.
    pub(super) fn scopes(&self, layers: &[MaskedLayer<'_>], sparsity: f64) -> Result<Option<Vec<Scope>>> {
        require((0.0..1.0).contains(&sparsity), "sparsity", sparsity, "a share in [0, 1)")?;
        if layers.is_empty() {
            return Err(Error::NothingControlled);
        }
        layers.iter().try_for_each(MaskedLayer::check)?;
        if sparsity == 0.0 {
            return Ok(None);
        }
        let layers: Vec<&Param> = layers.iter().map(|layer| layer.param).collect();
        let stay = |layers: &[&Param], sparsity: f64| {
            let total: u64 = layers.iter().map(|layer| layer.len() as u64).sum();
            total - (sparsity * total as f64).round_ties_even() as u64
        };
        let Some(budget) = &self.layers else {
            return Ok(Some(vec![Scope { layers: 0..layers.len(), most: stay(&layers, sparsity) }]));
        };
        let targets = budget.targets(&layers, sparsity)?;
        let scope = |(layer, target)| Scope { layers: layer..layer + 1, most: stay(&layers[layer..=layer], target) };
        Ok(Some(targets.into_iter().enumerate().map(scope).collect()))
    }
}

/// Layers that are compared with each other.
pub(super) struct Scope {
    pub(super) layers: Range<usize>,
    /// How many of their weights stay.
    pub(super) most: u64,
}

/// What is compared in one layer: a key for every run of `size` weights, −1 where the run is no candidate.
pub(super) struct Scores {
    size: usize,
    keys: Vec<f32>,
}

impl Scores {
    pub(super) fn new(
        structure: Structure,
        param: &Param,
        mut scores: Vec<f32>,
        candidate: &dyn Fn(usize) -> bool,
    ) -> Self {
        assert_eq!(scores.len(), param.len(), "one score per weight of {}", param.name);
        let size = match structure {
            Structure::Weights => 1,
            Structure::Channels => {
                let size = param.row_len();
                scores = scores.chunks(size).map(|row| (sum_of_squares(row) / size as f32).sqrt()).collect();
                size
            }
        };
        for (run, key) in scores.iter_mut().enumerate() {
            if !(run * size..(run + 1) * size).any(candidate) {
                *key = -1.0;
            }
        }
        Self { size, keys: scores }
    }
}

/// Marks the weights of the candidates with the largest keys, `most` weights of all these layers together; ties by
/// position.
pub(super) fn largest(layers: &[Scores], most: u64) -> Vec<Vec<bool>> {
    let threshold = smallest_threshold(most, |digit, bins| {
        for layer in layers {
            layer.keys.iter().filter_map(|&key| digit.bin(key)).for_each(|bin| bins[bin] += layer.size as u64);
        }
    });
    let above: u64 = layers
        .iter()
        .map(|layer| (layer.size * layer.keys.iter().filter(|&&key| key > threshold).count()) as u64)
        .sum();
    let mut room = most - above; // for ties at the threshold
    let mut chosen = |key: f32, size: u64| {
        let tie = key == threshold && size <= room;
        room -= if tie { size } else { 0 };
        key > threshold || tie
    };
    layers
        .iter()
        .map(|layer| {
            let runs: Vec<bool> = layer.keys.iter().map(|&key| chosen(key, layer.size as u64)).collect();
            runs.into_iter().flat_map(|chosen| std::iter::repeat_n(chosen, layer.size)).collect()
        })
        .collect()
}
