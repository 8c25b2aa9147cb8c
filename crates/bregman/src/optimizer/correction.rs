//! What becomes of the duals when λ becomes λ̃.
//!
//! [`Variant::SubgradientCorrection`] is the C(p, θ, λ, λ̃) of the paper's appendix, after which p ∈ ∂(½‖·‖²/δ +
//! λ̃R)(θ) again. Where θ ≠ 0: p ← (λ̃/λ)·p + (1 − λ̃/λ)·θ/δ, which is θ/δ + λ̃·∂R(θ) where p was θ/δ + λ·∂R(θ). Where
//! θ = 0: p is projected onto λ̃∂R(0), a box or a ball. The paper writes C(p⁽ᵏ⁾, …); it has to be the dual after the
//! gradient step, which is what stands in p here.
//!
//! [`Variant::Steady`] acts where λ falls, so that the fall changes the network as little as can be: non-zero weights
//! keep their θ as above, and where λ falls by more than half, zero weights whose p lies between the two λ become
//! non-zero from almost 0, not with all that λ lost. After smaller falls they keep their p, and with it their order.

use bregman_base::lanes::sum_of_squares;

use super::rule::Variant;
use crate::penalty::Shrinkage;

/// How far above λ, as a share of it, the dual of a weight that has just become non-zero lies: more than the rounding
/// of a group's norm, far less than a step.
const AWAKE: f64 = 1.0 / (1 << 16) as f64;

/// A fall of λ below this share of it is large. The laws that move λ step by step never fall so far in one update.
const LARGE_FALL: f64 = 0.5;

/// How the dual of one tensor follows a change of λ, all numbers worked out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Correction {
    /// What becomes zero together.
    pub shrinkage: Shrinkage,
    /// λ̃/λ.
    pub ratio: f32,
    /// δ.
    pub delta: f32,
    /// The size of the box or ball onto which the duals of weights that are 0 are projected: λ̃ with the group weight
    /// in it, or a little more, at which they become non-zero. Infinite: they stay.
    pub bound: f32,
}

impl Correction {
    /// The correction that a variant asks for, if it does; the λ-scale of the tensor is in both `old` and `new`.
    pub(super) fn of(variant: Variant, shrinkage: Shrinkage, delta: f64, old: f64, new: f64) -> Option<Self> {
        let bound = match variant {
            Variant::SubgradientCorrection => new * shrinkage.weight(),
            Variant::Steady if new < LARGE_FALL * old => new * shrinkage.weight() * (1.0 + AWAKE),
            Variant::Steady if new < old => f64::INFINITY,
            _ => return None,
        };
        (shrinkage != Shrinkage::Identity).then_some(Self {
            shrinkage,
            ratio: (new / old) as f32,
            delta: delta as f32,
            bound: bound as f32,
        })
    }

    /// Corrects the dual `p` of the weights `theta`.
    pub fn apply(self, p: &mut [f32], theta: &[f32]) {
        let Self { shrinkage, ratio, delta, bound } = self;
        let length = shrinkage.group_len();
        for (p, theta) in p.chunks_mut(length).zip(theta.chunks(length)) {
            if theta.iter().any(|&x| x != 0.0) {
                p.iter_mut().zip(theta).for_each(|(p, &x)| *p = ratio * *p + (1.0 - ratio) * x / delta);
            } else {
                project(shrinkage, p, bound);
            }
        }
    }
}

/// The nearest point of the box, half line or ball.
fn project(shrinkage: Shrinkage, p: &mut [f32], bound: f32) {
    match shrinkage {
        Shrinkage::Identity => {}
        Shrinkage::Soft => p.iter_mut().for_each(|p| *p = p.clamp(-bound, bound)),
        Shrinkage::SoftNonNegative => p.iter_mut().for_each(|p| *p = p.min(bound)),
        Shrinkage::Group(_) => {
            let norm = sum_of_squares(p).sqrt();
            let keep = if norm > bound { bound / norm } else { 1.0 };
            p.iter_mut().for_each(|p| *p *= keep);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Shrinkage; 5] =
        [Shrinkage::Identity, Shrinkage::Soft, Shrinkage::SoftNonNegative, Shrinkage::Group(3), Shrinkage::Group(6)];

    fn vectors() -> impl Strategy<Value = Vec<f32>> {
        prop::collection::vec(-3.0f32..3.0, 12)
    }

    /// θ = δ·prox(p), which is the same relation as p ∈ θ/δ + λ∂R(θ).
    fn prox(shrinkage: Shrinkage, p: &[f32], lambda: f64, delta: f64) -> Vec<f32> {
        let mut theta = p.to_vec();
        shrinkage.shrink(&mut theta, (lambda * shrinkage.weight()) as f32, delta as f32);
        theta
    }

    fn correct(
        variant: Variant,
        shrinkage: Shrinkage,
        p: &[f32],
        theta: &[f32],
        delta: f64,
        lambda: [f64; 2],
    ) -> Vec<f32> {
        let mut p = p.to_vec();
        if let Some(correction) = Correction::of(variant, shrinkage, delta, lambda[0], lambda[1]) {
            correction.apply(&mut p, theta);
        }
        p
    }

    proptest! {
        #[test]
        fn a_steady_fall_of_lambda_keeps_non_zero_weights_and_wakes_others_from_almost_zero(
            x in vectors(), old in 0.5f64..2.0, fall in 0.05f64..1.0,
        ) {
            for shrinkage in ALL {
                let (theta, new) = (prox(shrinkage, &x, old, 1.0), old * fall);
                let p = correct(Variant::Steady, shrinkage, &x, &theta, 1.0, [old, new]);
                let (again, awake) = (prox(shrinkage, &p, new, 1.0), prox(shrinkage, &x, new, 1.0));
                for group in (0..x.len()).step_by(shrinkage.group_len()).map(|i| i..i + shrinkage.group_len()) {
                    let non_zero = |theta: &[f32]| theta[group.clone()].iter().any(|&x| x != 0.0);
                    prop_assert_eq!(non_zero(&again), non_zero(&awake), "the same weights as without the correction");
                    if non_zero(&theta) {
                        for (now, before) in again[group.clone()].iter().zip(&theta[group.clone()]) {
                            prop_assert!((now - before).abs() < 1e-4, "{shrinkage:?}: {before} became {now}");
                        }
                    } else if non_zero(&awake) && fall < LARGE_FALL {
                        let again = &again[group.clone()];
                        prop_assert!(again.iter().all(|x| x.abs() < 1e-3), "{shrinkage:?} {again:?}");
                    } else {
                        prop_assert_eq!(&p[group.clone()], &x[group.clone()]);
                    }
                }
            }
        }

        #[test]
        fn a_steady_rise_of_lambda_changes_nothing(x in vectors(), old in 0.5f64..2.0, rise in 1.0f64..3.0) {
            for shrinkage in ALL {
                let theta = prox(shrinkage, &x, old, 1.0);
                prop_assert_eq!(correct(Variant::Steady, shrinkage, &x, &theta, 1.0, [old, old * rise]), x.clone());
            }
        }

        #[test]
        fn correction_restores_the_subgradient_relation(
            p in vectors(), old in 0.1f64..1.0, new in 0.1f64..1.0, delta in 0.5f64..2.0,
        ) {
            for shrinkage in ALL {
                let theta = prox(shrinkage, &p, old, delta);
                let corrected = correct(Variant::SubgradientCorrection, shrinkage, &p, &theta, delta, [old, new]);
                for (a, b) in prox(shrinkage, &corrected, new, delta).iter().zip(&theta) {
                    prop_assert!((a - b).abs() < 1e-4, "{shrinkage:?}: {b} became {a}");
                }
            }
        }
    }
}
