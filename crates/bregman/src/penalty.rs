//! Penalties R: what "sparse" means for a tensor. Value, subgradient and prox of each.
//!
//! | penalty | R(θ) | prox of t·R | zeros come as |
//! | --- | --- | --- | --- |
//! | [`None`](Penalty::None) | 0 | x | – |
//! | [`L1`](Penalty::L1) | Σ\|θᵢ\| | sign(x)·max(\|x\| − t, 0) | single weights |
//! | [`L1NonNegative`](Penalty::L1NonNegative) | Σθᵢ, +∞ if some θᵢ < 0 | max(x − t, 0) | single weights |
//! | [`GroupKernel`](Penalty::GroupKernel) | Σ √n‖θ_g‖₂, g a kernel (out, in) | x_g·max(1 − t√n/‖x_g‖₂, 0) | kernels |
//! | [`GroupRow`](Penalty::GroupRow) | the same, g one output channel | the same | whole channels |
//!
//! A kernel of one element is a group of one, so `GroupKernel` is ℓ1 on linear weights and 1×1 convolutions.

use bregman_base::lanes::sum_of_squares;
use serde::{Deserialize, Serialize};

use crate::param::Param;

/// Which structure of zeros is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Penalty {
    /// No penalty: the tensor is trained dense.
    None,
    /// ℓ1: single weights.
    #[default]
    L1,
    /// ℓ1 with θ ≥ 0.
    L1NonNegative,
    /// Group ℓ2 over one convolution kernel, an (out, in) pair.
    GroupKernel,
    /// Group ℓ2 over rows: output channels or neurons.
    GroupRow,
}

impl Penalty {
    /// The penalty on a tensor of this shape.
    pub fn on(self, param: &Param) -> Shrinkage {
        match self {
            Penalty::None => Shrinkage::Identity,
            Penalty::L1 => Shrinkage::Soft,
            Penalty::L1NonNegative => Shrinkage::SoftNonNegative,
            Penalty::GroupKernel => Shrinkage::groups_of(param.kernel_len()),
            Penalty::GroupRow => Shrinkage::groups_of(param.row_len()),
        }
    }
}

/// A [`Penalty`] applied to one shape: groups are runs of consecutive elements.
///
/// ```
/// use bregman::{Param, Penalty, Role};
/// let conv = Param::new("conv.weight", [1, 2, 3], Role::ConvWeight);
/// let kernels = Penalty::GroupKernel.on(&conv);
/// let mut x = [3.0, 0.0, 4.0, 0.1, 0.1, 0.1];
/// kernels.prox(&mut x, 1.0);                       // threshold 1·√3 on each kernel's norm
/// let keep = 1.0 - 3f32.sqrt() / 5.0;
/// assert!((x[0] - 3.0 * keep).abs() < 1e-6 && x[3..] == [0.0; 3]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shrinkage {
    /// prox = identity.
    Identity,
    /// Soft threshold.
    Soft,
    /// Soft threshold onto θ ≥ 0.
    SoftNonNegative,
    /// Shrinkage of the norm of every run of this many elements, two at least.
    Group(usize),
}

impl Shrinkage {
    fn groups_of(len: usize) -> Self {
        if len == 1 { Shrinkage::Soft } else { Shrinkage::Group(len) }
    }

    /// The kinds in the order of their codes, for kernels that are told one by its number.
    pub const KINDS: [&'static str; 4] = ["Identity", "Soft", "SoftNonNegative", "Group"];

    /// The place of this kind in [`Shrinkage::KINDS`].
    pub fn code(self) -> u32 {
        match self {
            Shrinkage::Identity => 0,
            Shrinkage::Soft => 1,
            Shrinkage::SoftNonNegative => 2,
            Shrinkage::Group(_) => 3,
        }
    }

    /// Elements that are zero or non-zero together.
    pub fn group_len(self) -> usize {
        match self {
            Shrinkage::Group(len) => len,
            _ => 1,
        }
    }

    /// √(group size): what λ is multiplied with, so that groups of all sizes are thresholded alike.
    pub fn weight(self) -> f64 {
        (self.group_len() as f64).sqrt()
    }

    /// R(θ).
    pub fn value(self, theta: &[f32]) -> f64 {
        let each = theta.iter().map(|&x| f64::from(x));
        match self {
            Shrinkage::Identity => 0.0,
            Shrinkage::Soft => each.map(f64::abs).sum(),
            Shrinkage::SoftNonNegative => each.map(|x| if x < 0.0 { f64::INFINITY } else { x }).sum(),
            Shrinkage::Group(len) => {
                self.weight()
                    * theta
                        .chunks(len)
                        .map(|g| g.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt())
                        .sum::<f64>()
            }
        }
    }

    /// One element of ∂R(θ), the one of least norm: 0 wherever θ (or its group) is 0.
    pub fn subgradient(self, theta: &[f32]) -> Vec<f32> {
        let sign = |&x: &f32| if x == 0.0 { 0.0 } else { x.signum() };
        match self {
            Shrinkage::Identity => vec![0.0; theta.len()],
            Shrinkage::Soft | Shrinkage::SoftNonNegative => theta.iter().map(sign).collect(),
            Shrinkage::Group(len) => theta
                .chunks(len)
                .flat_map(|group| {
                    let norm = sum_of_squares(group).sqrt();
                    let scale = if norm > 0.0 { self.weight() as f32 / norm } else { 0.0 };
                    group.iter().map(move |&x| x * scale)
                })
                .collect(),
        }
    }

    /// x ← prox_{λR}(x).
    pub fn prox(self, x: &mut [f32], lambda: f64) {
        self.shrink(x, (lambda * self.weight()) as f32, 1.0);
    }

    /// x ← scale·prox(x), `threshold` with the group weight already in it.
    ///
    /// Zero means exactly +0.0, and an element (a group) is zero if and only if its [magnitude](Self::magnitudes) ≤
    /// threshold.
    #[inline(always)]
    pub(crate) fn shrink(self, x: &mut [f32], threshold: f32, scale: f32) {
        match self {
            Shrinkage::Identity => x.iter_mut().for_each(|x| *x *= scale),
            Shrinkage::Soft => x.iter_mut().for_each(|x| *x = soft(*x, threshold) * scale),
            Shrinkage::SoftNonNegative => x.iter_mut().for_each(|x| *x = (*x - x.min(threshold)) * scale),
            Shrinkage::Group(len) => {
                for group in x.chunks_mut(len) {
                    let norm = sum_of_squares(group).sqrt();
                    let keep = if norm > threshold { (norm - threshold) / norm * scale } else { 0.0 };
                    // Adding +0.0 turns the −0.0 of a negative times zero into +0.0.
                    group.iter_mut().for_each(|x| *x = *x * keep + 0.0);
                }
            }
        }
    }

    /// The number each group is compared by: |p|, max(p, 0) or ‖p_g‖₂. A penalty without a threshold has none.
    #[inline(always)]
    pub(crate) fn magnitudes(self, p: &[f32], mut each: impl FnMut(f32)) {
        match self {
            Shrinkage::Identity => {}
            Shrinkage::Soft => p.iter().for_each(|&x| each(x.abs())),
            Shrinkage::SoftNonNegative => p.iter().for_each(|&x| each(x.max(0.0))),
            Shrinkage::Group(len) => p.chunks(len).for_each(|group| each(sum_of_squares(group).sqrt())),
        }
    }
}

/// sign(x)·max(|x| − t, 0) without a branch: x minus x clamped to the band, which inside the band is x − x = +0.0.
#[inline(always)]
pub(crate) fn soft(x: f32, threshold: f32) -> f32 {
    x - x.max(-threshold).min(threshold)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Shrinkage; 5] =
        [Shrinkage::Identity, Shrinkage::Soft, Shrinkage::SoftNonNegative, Shrinkage::Group(3), Shrinkage::Group(6)];

    fn prox(shrinkage: Shrinkage, x: &[f32], lambda: f64) -> Vec<f32> {
        let mut y = x.to_vec();
        shrinkage.prox(&mut y, lambda);
        y
    }

    fn dot(a: impl Iterator<Item = f64>, b: impl Iterator<Item = f64>) -> f64 {
        a.zip(b).map(|(a, b)| a * b).sum()
    }

    fn difference<'a>(a: &'a [f32], b: &'a [f32]) -> impl Iterator<Item = f64> + Clone + 'a {
        a.iter().zip(b).map(|(&a, &b)| f64::from(a) - f64::from(b))
    }

    fn vectors() -> impl Strategy<Value = Vec<f32>> {
        prop::collection::vec(-3.0f32..3.0, 12)
    }

    #[test]
    fn kernels_are_told_each_kind_by_its_name() {
        for shrinkage in ALL {
            let name = format!("{shrinkage:?}");
            assert_eq!(name.split('(').next(), Some(Shrinkage::KINDS[shrinkage.code() as usize]));
        }
    }

    proptest! {
        #[test]
        fn prox_is_firmly_non_expansive(x in vectors(), y in vectors(), lambda in 0.01f64..2.0) {
            for shrinkage in ALL {
                let (px, py) = (prox(shrinkage, &x, lambda), prox(shrinkage, &y, lambda));
                let moved = dot(difference(&px, &py), difference(&px, &py));
                let along = dot(difference(&px, &py), difference(&x, &y));
                prop_assert!(moved <= along + 1e-4, "{shrinkage:?}: {moved} > {along}");
            }
        }

        #[test]
        fn prox_minimises_its_objective(x in vectors(), y in vectors(), lambda in 0.01f64..2.0) {
            for shrinkage in ALL {
                let distance = |u: &[f32]| 0.5 * dot(difference(u, &x), difference(u, &x));
                let objective = |u: &[f32]| distance(u) + lambda * shrinkage.value(u);
                prop_assert!(objective(&prox(shrinkage, &x, lambda)) <= objective(&y) + 1e-4, "{shrinkage:?}");
            }
        }

        #[test]
        fn prox_of_groups_keeps_the_direction(x in vectors(), lambda in 0.01f64..2.0, len in 2usize..7) {
            let y = prox(Shrinkage::Group(len), &x, lambda);
            for (x, y) in x.chunks(len).zip(y.chunks(len)) {
                let norm = |v: &[f32]| v.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>().sqrt();
                let cosine = dot(x.iter().map(|&x| x.into()), y.iter().map(|&y| y.into()));
                prop_assert!((cosine - norm(x) * norm(y)).abs() < 1e-4);
                prop_assert!(y.iter().all(|y| *y == 0.0) == y.contains(&0.0) || x.contains(&0.0));
            }
        }

        #[test]
        fn a_group_is_zero_exactly_when_its_magnitude_is_within_the_threshold(
            x in vectors(), threshold in 0.01f32..2.0,
        ) {
            for shrinkage in ALL.into_iter().skip(1) {
                let mut y = x.clone();
                shrinkage.shrink(&mut y, threshold, 1.0);
                let mut non_zero = vec![];
                shrinkage.magnitudes(&x, |m| non_zero.push(m > threshold));
                for (group, non_zero) in y.chunks(shrinkage.group_len()).zip(non_zero) {
                    prop_assert_eq!(group.iter().any(|&y| y != 0.0), non_zero);
                    prop_assert!(non_zero || group.iter().all(|y| y.to_bits() == 0), "zero is +0.0");
                }
            }
        }

        #[test]
        fn sparsity_grows_with_lambda(x in vectors(), low in 0.0f64..1.0, more in 0.0f64..1.0) {
            for shrinkage in ALL {
                let zeros = |lambda| prox(shrinkage, &x, lambda).iter().filter(|x| **x == 0.0).count();
                prop_assert!(zeros(low) <= zeros(low + more));
            }
        }

        #[test]
        fn the_subgradient_supports_the_penalty_from_below(x in vectors(), y in vectors(), lambda in 0.3f64..2.0) {
            for shrinkage in ALL {
                // points of the domain, with zeros in them
                let (x, y) = (prox(shrinkage, &x, lambda), prox(shrinkage, &y, 0.0));
                let g = shrinkage.subgradient(&x);
                let linear = shrinkage.value(&x) + dot(g.iter().map(|&g| g.into()), difference(&y, &x));
                prop_assert!(shrinkage.value(&y) >= linear - 1e-4, "{shrinkage:?}");
            }
        }
    }
}
