//! Sparse initialisation: a Bernoulli mask over the dense initial weights.
//!
//! Bregman training starts almost empty (99 % zeros by default) and lets the data switch weights on. Whole groups are
//! masked where the penalty has groups, so that the start is sparse in the same structure.

use bregman_base::RandomStream;
use serde::{Deserialize, Serialize};

use crate::error::{Result, require};
use crate::groups::Groups;
use crate::penalty::Shrinkage;

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

/// Masks every penalised tensor with the initial sparsity of its group. The same seed gives the same mask, tensor by
/// tensor, whatever else is in the network.
///
/// ```
/// use bregman::{Groups, Param, Role, Survivors, sparse_init};
/// let groups = Groups::resolve(vec![Param::new("w", [100, 100], Role::LinearWeight)], vec![])?;
/// let mut weights = vec![vec![1.0f32; 10_000]];
/// sparse_init(&groups, &mut weights, Survivors::Keep, 7)?;
/// let zeros = weights[0].iter().filter(|w| **w == 0.0).count();
/// assert!((9_850..9_950).contains(&zeros)); // 99 %, give or take
/// # Ok::<(), bregman::Error>(())
/// ```
///
/// # Errors
/// Weights that do not fit their shapes.
pub fn sparse_init(groups: &Groups, theta: &mut [impl AsMut<[f32]>], survivors: Survivors, seed: u64) -> Result<()> {
    require(theta.len() == groups.params().len(), "weights", theta.len(), "one slice per parameter")?;
    for (param, theta) in groups.params().iter().zip(theta.iter_mut()) {
        param.check_len("weight", theta.as_mut().len())?;
    }
    for tensor in groups.controlled() {
        let (param, sparsity) = (&groups.params()[tensor], groups.initial_sparsity(tensor));
        let scale = if survivors == Survivors::Rescale { (1.0 / (1.0 - sparsity).sqrt()) as f32 } else { 1.0 };
        mask(theta[tensor].as_mut(), groups.shrinkage(tensor), sparsity, scale, RandomStream::new(seed, &param.name));
    }
    Ok(())
}

fn mask(theta: &mut [f32], shrinkage: Shrinkage, sparsity: f64, scale: f32, stream: RandomStream) {
    for (group, index) in theta.chunks_mut(shrinkage.group_len()).zip(0..) {
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

    fn start(penalty: Penalty, survivors: Survivors, seed: u64) -> Vec<Vec<f32>> {
        let mut theta = vec![vec![1.0; 10_000], vec![1.0; 50]];
        sparse_init(&groups(penalty), &mut theta, survivors, seed).unwrap();
        theta
    }

    #[test]
    fn the_mask_is_seeded_has_the_asked_sparsity_and_spares_biases() {
        let theta = start(Penalty::L1, Survivors::Keep, 1);
        let zeros = theta[0].iter().filter(|x| **x == 0.0).count();
        assert!((8_900..9_100).contains(&zeros), "{zeros}");
        assert_eq!(theta[1], [1.0; 50]);
        assert_eq!(theta, start(Penalty::L1, Survivors::Keep, 1));
        assert_ne!(theta, start(Penalty::L1, Survivors::Keep, 2));
    }

    #[test]
    fn groups_live_or_die_as_one() {
        let theta = start(Penalty::GroupKernel, Survivors::Keep, 1);
        assert!(theta[0].chunks(5).all(|kernel| kernel.iter().all(|x| *x == kernel[0])));
        let zeros = theta[0].iter().filter(|x| **x == 0.0).count();
        assert!((8_700..9_300).contains(&zeros), "{zeros}");
    }

    #[test]
    fn rescaling_keeps_the_variance() {
        let theta = start(Penalty::L1, Survivors::Rescale, 1);
        let energy: f32 = theta[0].iter().map(|x| x * x).sum();
        assert!((energy / 10_000.0 - 1.0).abs() < 0.1, "{energy}");
    }
}
