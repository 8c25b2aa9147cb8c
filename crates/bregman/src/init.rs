//! Sparse initialisation: a Bernoulli mask over the dense initial weights.
//!
//! Bregman training starts almost empty (99 % zeros by default) and lets the data switch weights on.

use bregman_base::RandomStream;
use serde::{Deserialize, Serialize};

use crate::error::{Result, require};
use crate::groups::Groups;

/// What happens to the weights that survive the mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Survivors {
    /// They stay as they are.
    #[default]
    Keep,
    /// They are divided by √(1 − s), which keeps the variance of a layer's output.
    Rescale,
}

/// What the initial mask draws at random where a penalty has groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaskUnit {
    /// Single weights, as the published code does: more channels start with an input. A group with one non-zero weight
    /// is non-zero, so the first steps fill it.
    #[default]
    Element,
    /// Whole groups, so that the start is sparse in the penalty's structure. Of 1024 channels with 80 inputs each, 457
    /// start without any at 99 % zeros.
    Group,
}

/// How weights become sparse at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InitialMask {
    /// What is drawn.
    pub unit: MaskUnit,
    /// What happens to the weights that are left.
    pub survivors: Survivors,
}

/// Masks every penalised tensor with the initial sparsity of its group. The same seed gives the same mask, tensor by
/// tensor, whatever else is in the network.
///
/// ```
/// use bregman::{Groups, InitialMask, Param, Role, sparse_init};
/// let groups = Groups::resolve(vec![Param::new("w", [100, 100], Role::LinearWeight)], vec![])?;
/// let mut weights = vec![vec![1.0f32; 10_000]];
/// sparse_init(&groups, &mut weights, InitialMask::default(), 7)?;
/// let zeros = weights[0].iter().filter(|w| **w == 0.0).count();
/// assert!((9_850..9_950).contains(&zeros)); // 99 %, give or take
/// # Ok::<(), bregman::Error>(())
/// ```
///
/// # Errors
/// Weights that do not fit their shapes.
pub fn sparse_init(groups: &Groups, theta: &mut [impl AsMut<[f32]>], mask: InitialMask, seed: u64) -> Result<()> {
    require(theta.len() == groups.params().len(), "weights", theta.len(), "one slice per parameter")?;
    for (param, theta) in groups.params().iter().zip(theta.iter_mut()) {
        param.check_len("weight", theta.as_mut().len())?;
    }
    for tensor in groups.controlled() {
        let (param, sparsity) = (&groups.params()[tensor], groups.initial_sparsity(tensor));
        let scale = if mask.survivors == Survivors::Rescale { (1.0 / (1.0 - sparsity).sqrt()) as f32 } else { 1.0 };
        let unit = match mask.unit {
            MaskUnit::Element => 1,
            MaskUnit::Group => groups.shrinkage(tensor).group_len(),
        };
        draw(theta[tensor].as_mut(), unit, sparsity, scale, RandomStream::new(seed, &param.name));
    }
    Ok(())
}

fn draw(theta: &mut [f32], unit: usize, sparsity: f64, scale: f32, stream: RandomStream) {
    for (group, index) in theta.chunks_mut(unit).zip(0..) {
        let factor = if stream.uniform(index) < sparsity { None } else { Some(scale) };
        group.iter_mut().for_each(|x| *x = factor.map_or(0.0, |factor| *x * factor));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::GroupRule;
    use crate::param::{Param, Role};
    use crate::penalty::Penalty;

    fn groups(penalty: Penalty) -> Groups {
        let params = vec![Param::new("conv", [50, 40, 5], Role::ConvWeight), Param::new("bias", [50], Role::Bias)];
        Groups::resolve(params, vec![GroupRule { penalty, initial_sparsity: Some(0.9), ..GroupRule::default() }])
            .unwrap()
    }

    fn start(penalty: Penalty, mask: InitialMask, seed: u64) -> Vec<Vec<f32>> {
        let mut theta = vec![vec![1.0; 10_000], vec![1.0; 50]];
        sparse_init(&groups(penalty), &mut theta, mask, seed).unwrap();
        theta
    }

    const ELEMENTS: InitialMask = InitialMask { unit: MaskUnit::Element, survivors: Survivors::Keep };
    const WHOLE_GROUPS: InitialMask = InitialMask { unit: MaskUnit::Group, survivors: Survivors::Keep };

    #[test]
    fn the_mask_is_seeded_has_the_asked_sparsity_and_spares_biases() {
        let theta = start(Penalty::L1, ELEMENTS, 1);
        let zeros = theta[0].iter().filter(|x| **x == 0.0).count();
        assert!((8_900..9_100).contains(&zeros), "{zeros}");
        assert_eq!(theta[1], [1.0; 50]);
        assert_eq!(theta, start(Penalty::L1, ELEMENTS, 1));
        assert_ne!(theta, start(Penalty::L1, ELEMENTS, 2));
    }

    #[test]
    fn the_default_masks_single_weights_also_where_the_penalty_has_groups() {
        assert_eq!(InitialMask::default(), ELEMENTS);
        assert_eq!(start(Penalty::GroupKernel, ELEMENTS, 1), start(Penalty::L1, ELEMENTS, 1));
    }

    #[test]
    fn whole_groups_are_masked_as_one() {
        let theta = start(Penalty::GroupKernel, WHOLE_GROUPS, 1);
        assert!(theta[0].chunks(5).all(|kernel| kernel.iter().all(|x| *x == kernel[0])));
        let zeros = theta[0].iter().filter(|x| **x == 0.0).count();
        assert!((8_700..9_300).contains(&zeros), "{zeros}");
    }

    #[test]
    fn rescaling_keeps_the_variance() {
        let theta = start(Penalty::L1, InitialMask { survivors: Survivors::Rescale, ..ELEMENTS }, 1);
        let energy: f32 = theta[0].iter().map(|x| x * x).sum();
        assert!((energy / 10_000.0 - 1.0).abs() < 0.1, "{energy}");
    }
}
