//! How a sparsity is shared out between layers: every layer its own target, together the one asked for.
//!
//! Layer l with n_l weights gets the density d_l = clamp(c·w_l, 1 − ceiling_l, 1 − floor_l), and c is chosen such that
//! Σ n_l·d_l = (1 − s*)·Σ n_l. Uniform: w_l = 1. Erdős–Rényi-kernel: w_l = (Σ of the dimensions) / (Π of the
//! dimensions), so that large layers become sparser than small ones (Mocanu et al., 2018; Evci et al., 2020). The clamp
//! is what keeps an early layer from being driven to 100 % zeros at a target of 99 %: the paper's open problem.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, require};
use crate::param::Param;
use crate::pattern::Pattern;

/// How densities relate to each other where no limit interferes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// The same sparsity everywhere.
    #[default]
    Uniform,
    /// Erdős–Rényi-kernel: density falls with the size of the layer.
    Erk,
}

/// Limits on the sparsity of the layers whose names match.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerLimit {
    /// Glob, or regular expression after `re:`; the first limit that matches a layer counts.
    pub pattern: String,
    /// Lowest sparsity allowed.
    #[serde(default)]
    pub floor: f64,
    /// Highest sparsity allowed.
    #[serde(default = "one")]
    pub ceiling: f64,
}

fn one() -> f64 {
    1.0
}

/// A sharing with limits.
///
/// ```
/// use bregman::{Budget, LayerLimit, Param, Role, Sharing};
/// let first = Param::new("first", [64, 80, 5], Role::ConvWeight);
/// let layers = [first, Param::new("big", [1024, 1024], Role::LinearWeight)];
/// let limits = vec![LayerLimit { pattern: "first".into(), floor: 0.0, ceiling: 0.9 }];
/// let targets = Budget { sharing: Sharing::Uniform, limits }.targets(&layers.iter().collect::<Vec<_>>(), 0.99)?;
/// assert!((targets[0] - 0.9).abs() < 1e-9 && targets[1] > 0.99); // the big layer pays for the small one
/// # Ok::<(), bregman::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Budget {
    /// How densities relate.
    pub sharing: Sharing,
    /// Floors and ceilings.
    pub limits: Vec<LayerLimit>,
}

impl Budget {
    /// Erdős–Rényi-kernel without limits.
    pub fn erk() -> Self {
        Self { sharing: Sharing::Erk, limits: vec![] }
    }

    /// The target sparsity of each layer.
    ///
    /// # Errors
    /// A limit outside [0, 1], with its floor above its ceiling, or for no layer at all; and limits that leave no way
    /// to meet the target.
    pub fn targets(&self, layers: &[&Param], target: f64) -> Result<Vec<f64>> {
        let limits = self.limits_of(layers)?;
        let lens: Vec<f64> = layers.iter().map(|layer| layer.len() as f64).collect();
        let total: f64 = lens.iter().sum();
        let live = (1.0 - target) * total;

        let sparsity_if = |of: fn(&(f64, f64)) -> f64| {
            limits.iter().zip(&lens).map(|(limit, len)| of(limit) * len).sum::<f64>() / total
        };
        let (lowest, highest) = (sparsity_if(|limit| limit.0), sparsity_if(|limit| limit.1));
        if target < lowest - 1e-12 || target > highest + 1e-12 {
            return Err(Error::Budget { target, lowest, highest });
        }

        let weights: Vec<f64> = layers.iter().map(|layer| self.weight(layer)).collect();
        let densities = |c: f64| {
            let density =
                |(weight, &(floor, ceiling)): (&f64, &(f64, f64))| (c * weight).clamp(1.0 - ceiling, 1.0 - floor);
            weights.iter().zip(&limits).map(density).collect::<Vec<_>>()
        };
        let live_at = |c: f64| densities(c).iter().zip(&lens).map(|(density, len)| density * len).sum::<f64>();

        // live_at is monotone in c: double to find a c that is too large, then halve the bracket to the last bit.
        let (mut low, mut high) = (0.0, 1.0);
        while live_at(high) < live && high < 1e300 {
            high *= 2.0;
        }
        for _ in 0..200 {
            let middle = 0.5 * (low + high);
            *(if live_at(middle) < live { &mut low } else { &mut high }) = middle;
        }
        Ok(densities(high).into_iter().map(|density| 1.0 - density).collect())
    }

    fn weight(&self, layer: &Param) -> f64 {
        match self.sharing {
            Sharing::Uniform => 1.0,
            Sharing::Erk => layer.shape.iter().sum::<usize>() as f64 / layer.len() as f64,
        }
    }

    /// Floor and ceiling of every layer.
    fn limits_of(&self, layers: &[&Param]) -> Result<Vec<(f64, f64)>> {
        let mut limits = vec![None; layers.len()];
        for LayerLimit { pattern, floor, ceiling } in &self.limits {
            let field = format!("limit `{pattern}`");
            require(
                *floor >= 0.0 && floor <= ceiling && *ceiling <= 1.0,
                &field,
                format!("{floor} to {ceiling}"),
                "0 ≤ floor ≤ ceiling ≤ 1",
            )?;
            let matcher = Pattern::parse(pattern)?;
            let matching: Vec<usize> =
                (0..layers.len()).filter(|&layer| matcher.matches(&layers[layer].name)).collect();
            if matching.is_empty() {
                let near = matcher.near_misses(layers.iter().map(|layer| layer.name.as_str()));
                return Err(Error::EmptyGroup {
                    group: pattern.clone(),
                    reason: "no controlled layer matches this limit".into(),
                    near,
                });
            }
            for layer in matching {
                limits[layer].get_or_insert((*floor, *ceiling));
            }
        }
        Ok(limits.into_iter().map(|limit| limit.unwrap_or((0.0, 1.0))).collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::param::Role;

    fn layers() -> Vec<Param> {
        vec![
            Param::new("conv1", [64, 80, 5], Role::ConvWeight),
            Param::new("conv2", [128, 64, 3], Role::ConvWeight),
            Param::new("small", [16, 8], Role::LinearWeight),
            Param::new("head", [500, 192], Role::Classifier),
        ]
    }

    proptest! {
        #[test]
        fn the_layers_targets_add_up_to_the_target(
            target in 0.01f64..0.999, erk in any::<bool>(), ceiling in 0.9f64..1.0,
        ) {
            let (sharing, owned) = (if erk { Sharing::Erk } else { Sharing::Uniform }, layers());
            let limits = vec![LayerLimit { pattern: "conv*".into(), floor: 0.0, ceiling }];
            let layers: Vec<&Param> = owned.iter().collect();
            match (Budget { sharing, limits }).targets(&layers, target) {
                Ok(targets) => {
                    let total: f64 = layers.iter().map(|l| l.len() as f64).sum();
                    let zeros = layers.iter().zip(&targets).map(|(l, s)| l.len() as f64 * s);
                    let reached = zeros.sum::<f64>() / total;
                    prop_assert!((reached - target).abs() < 1e-9, "{reached} {target}");
                    prop_assert!(targets.iter().all(|s| (0.0..=1.0).contains(s)));
                    prop_assert!(targets[..2].iter().all(|&s| s <= ceiling + 1e-12));
                }
                Err(error) => prop_assert!(matches!(error, Error::Budget { .. }), "{error}"),
            }
        }
    }

    #[test]
    fn erk_prunes_large_layers_harder_and_spares_small_ones() {
        let owned = layers();
        let targets =
            Budget { sharing: Sharing::Erk, limits: vec![] }.targets(&owned.iter().collect::<Vec<_>>(), 0.9).unwrap();
        assert!(targets[3] > targets[1] && targets[2] == 0.0, "{targets:?}");
        // by hand: density ratio of two unclamped layers is the ratio of Σdims/Πdims
        let (conv1, head) = ((64.0 + 80.0 + 5.0) / 25_600.0, (500.0 + 192.0) / 96_000.0);
        assert!(((1.0 - targets[0]) / (1.0 - targets[3]) - conv1 / head).abs() < 1e-9);
    }

    #[test]
    fn limits_that_leave_no_way_say_what_is_possible() {
        let owned = layers();
        let limit = |pattern: &str, floor, ceiling| vec![LayerLimit { pattern: pattern.into(), floor, ceiling }];
        let error = |limits| {
            Budget { limits, ..Budget::default() }
                .targets(&owned.iter().collect::<Vec<_>>(), 0.95)
                .unwrap_err()
                .to_string()
        };
        assert!(error(limit("*", 0.0, 0.5)).contains("allow 0 to 0.5"));
        assert!(error(limit("convv*", 0.0, 0.5)).contains("did you mean conv"));
        assert!(error(limit("*", 0.9, 0.5)).contains("floor ≤ ceiling"));
    }
}
