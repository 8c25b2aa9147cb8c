//! Magnitude pruning, the baseline: masks that let the largest weights live.
//!
//! A mask is chosen by three independent answers: how much dies (a share, moved by a [`Ramp`] in gradual
//! pruning), what is compared ([`Structure`]: weights or whole output channels), and across what (all layers together,
//! or each by its [`Budget`]). One-shot pruning is a single mask; gradual pruning asks for a new one as the ramp rises.
//! Hand masks to [`Optimizer::set_mask`](crate::Optimizer::set_mask).

use bregman_base::lanes::sum_of_squares;
use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::error::{Error, Result, require};
use crate::param::Param;
use crate::schedule::Ramp;
use crate::select::smallest_threshold;

/// What dies together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Structure {
    /// Single weights, by |θ|.
    #[default]
    Weights,
    /// Output channels or neurons, by the root mean square of their weights.
    Channels,
}

/// How masks are chosen.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pruning {
    /// What dies together.
    pub structure: Structure,
    /// `None` compares all layers together; a budget gives each layer its own share.
    pub layers: Option<Budget>,
}

impl Pruning {
    /// Masks (`true` lives) such that a share `sparsity` of the weights dies, smallest first.
    ///
    /// Of weights exactly round(s·n) die, ties by position. Of channels as many die as are needed to reach the share.
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
        require((0.0..1.0).contains(&sparsity), "sparsity", sparsity, "a share in [0, 1)")?;
        if layers.is_empty() {
            return Err(Error::NothingControlled);
        }
        for (param, theta) in layers {
            param.check_len("weight", theta.len())?;
            param.check_finite("weight", theta)?;
        }
        let scores: Vec<Scores> = layers.iter().map(|(param, theta)| self.scores(param, theta)).collect();
        let lives = match &self.layers {
            None => living(&scores.iter().collect::<Vec<_>>(), sparsity),
            Some(budget) => {
                let targets = budget.targets(&layers.iter().map(|(param, _)| *param).collect::<Vec<_>>(), sparsity)?;
                scores.iter().zip(targets).flat_map(|(scores, target)| living(&[scores], target)).collect()
            }
        };
        let spread = |(scores, lives): (&Scores, Vec<bool>)| {
            lives.into_iter().flat_map(|l| std::iter::repeat_n(l, scores.size)).collect()
        };
        Ok(scores.iter().zip(lives).map(spread).collect())
    }

    fn scores(&self, param: &Param, theta: &[f32]) -> Scores {
        match self.structure {
            Structure::Weights => Scores { size: 1, keys: theta.iter().map(|x| x.abs()).collect() },
            Structure::Channels => {
                let size = param.row_len();
                let rms = |row: &[f32]| (sum_of_squares(row) / size as f32).sqrt();
                Scores { size, keys: theta.chunks(size).map(rms).collect() }
            }
        }
    }
}

/// Pruning along a ramp: the paper's baseline is exponential over ten epochs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GradualPruning {
    /// Final sparsity.
    pub target: f64,
    /// The way there. The paper prunes at the start of every epoch e = 0, 1, … to the ramp's value at i = e + 1.
    pub ramp: Ramp,
    /// How masks are chosen.
    #[serde(default)]
    pub pruning: Pruning,
}

impl GradualPruning {
    /// Masks for time `i` of the ramp. Weights that died have magnitude 0 and die first again, so masks only shrink.
    ///
    /// # Errors
    /// See [`Pruning::masks`]; also a target outside (0, 1) or an impossible ramp.
    pub fn masks_at(&self, i: u64, layers: &[(&Param, &[f32])]) -> Result<Vec<Vec<bool>>> {
        require(self.target > 0.0 && self.target < 1.0, "target", self.target, "a share in (0, 1), such as 0.95")?;
        self.ramp.check()?;
        self.pruning.masks(layers, self.ramp.at(i, self.target))
    }
}

/// What is compared in one layer: a key for every run of `size` weights.
struct Scores {
    size: usize,
    keys: Vec<f32>,
}

/// Which runs of these layers, compared with each other, live at this sparsity.
fn living(layers: &[&Scores], sparsity: f64) -> Vec<Vec<bool>> {
    let total: u64 = layers.iter().map(|layer| (layer.size * layer.keys.len()) as u64).sum();
    let keep = total - (sparsity * total as f64).round_ties_even() as u64;
    let threshold = smallest_threshold(keep, |digit, bins| {
        for layer in layers {
            layer.keys.iter().filter_map(|&key| digit.bin(key)).for_each(|bin| bins[bin] += layer.size as u64);
        }
    });
    let above: u64 = layers
        .iter()
        .map(|layer| (layer.size * layer.keys.iter().filter(|&&key| key > threshold).count()) as u64)
        .sum();
    let mut room = keep - above; // for ties at the threshold
    let mut lives = |key: f32, size: u64| {
        let tie = key == threshold && size <= room;
        room -= if tie { size } else { 0 };
        key > threshold || tie
    };
    layers.iter().map(|layer| layer.keys.iter().map(|&key| lives(key, layer.size as u64)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::budget::Sharing;
    use crate::param::Role;
    use crate::schedule::Shape;

    proptest! {
        #[test]
        fn exactly_the_asked_count_dies_and_no_survivor_is_smaller(
            theta in prop::collection::vec(prop_oneof![-1.0f32..1.0, Just(0.0f32), Just(0.25f32)], 60), sparsity in 0.0f64..0.999,
        ) {
            let (a, b) = (Param::new("a", [4, 5], Role::LinearWeight), Param::new("b", [8, 5], Role::LinearWeight));
            let layers = [(&a, &theta[..20]), (&b, &theta[20..])];
            let lives = Pruning::default().masks(&layers, sparsity).unwrap().concat();
            let largest_dead = theta.iter().zip(&lives).filter(|(_, lives)| !**lives).map(|(x, _)| x.abs()).fold(0.0, f32::max);
            prop_assert_eq!(lives.iter().filter(|l| !**l).count(), (sparsity * 60.0).round_ties_even() as usize);
            prop_assert!(theta.iter().zip(&lives).all(|(x, &lives)| !lives || x.abs() >= largest_dead));
        }
    }

    #[test]
    fn channels_die_whole_and_weakest_first() {
        let layer = Param::new("w", [4, 3], Role::LinearWeight);
        let theta = [1.0, 1.0, 1.0, 0.1, 0.1, 0.1, 0.0, 0.9, 0.0, 2.0, 0.0, 0.0];
        let pruning = Pruning { structure: Structure::Channels, layers: None };
        let masks = pruning.masks(&[(&layer, &theta)], 0.5).unwrap();
        let rows: Vec<bool> = masks[0].chunks(3).map(|row| row[0]).collect();
        assert_eq!(rows, [true, false, false, true]);
        assert!(masks[0].chunks(3).all(|row| row.iter().all(|l| *l == row[0])));
    }

    #[test]
    fn a_budget_prunes_each_layer_by_its_own_share() {
        let (a, b) = (Param::new("a", [10, 10], Role::LinearWeight), Param::new("b", [10, 10], Role::LinearWeight));
        let small: Vec<f32> = (1..=100).map(|i| i as f32 * 1e-3).collect();
        let large: Vec<f32> = (1..=100).map(|i| i as f32).collect();
        let dead = |layers| {
            let pruning = Pruning { layers, ..Pruning::default() };
            pruning.masks(&[(&a, &small), (&b, &large)], 0.5).unwrap().map_dead()
        };
        assert_eq!(dead(None), [100, 0]);
        assert_eq!(dead(Some(Budget { sharing: Sharing::Uniform, limits: vec![] })), [50, 50]);
    }

    trait MapDead {
        fn map_dead(self) -> Vec<usize>;
    }
    impl MapDead for Vec<Vec<bool>> {
        fn map_dead(self) -> Vec<usize> {
            self.iter().map(|mask| mask.iter().filter(|l| !**l).count()).collect()
        }
    }

    #[test]
    fn gradual_masks_only_shrink_and_end_at_the_target() {
        let layer = Param::new("w", [20, 20], Role::LinearWeight);
        let mut theta: Vec<f32> = (0..400).map(|i| ((i * 37 % 400) as f32 * 0.1).sin() + 0.01).collect();
        let ramp = Ramp { shape: Shape::Exponential, from: 0.0, begin: 0, end: 10 };
        let gradual = GradualPruning { target: 0.95, ramp, pruning: Pruning::default() };
        let mut before = vec![true; 400];
        for i in 1..=10 {
            let mask = gradual.masks_at(i, &[(&layer, &theta)]).unwrap().remove(0);
            assert!(mask.iter().zip(&before).all(|(now, before)| *before || !now), "nothing comes back");
            theta.iter_mut().zip(&mask).for_each(|(x, &lives)| *x = if lives { *x * 1.1 } else { 0.0 });
            before = mask;
        }
        assert_eq!(before.iter().filter(|l| **l).count(), 20);
    }

    #[test]
    fn bad_input_is_named() {
        let layer = Param::new("w", [2, 2], Role::LinearWeight);
        let error = |theta: &[f32], s| Pruning::default().masks(&[(&layer, theta)], s).unwrap_err().to_string();
        assert!(error(&[1.0; 4], 1.0).contains("[0, 1)"));
        assert!(error(&[1.0; 3], 0.5).contains("parameter `w`: the weight has 3 values, its shape asks for 4"));
        assert!(error(&[1.0, f32::NAN, 0.0, 0.0], 0.5).contains("weight[1] is NaN"));
    }
}
