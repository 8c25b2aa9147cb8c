//! A controller on the count of non-zero weights: λ ← λ·(a/a*)^κ.
//!
//! The paper's ε is a share of *all* weights, so at a target of 99 % an error of half a point, which its band calls
//! "arrived", is half of the weights that may be non-zero. Here the error is a ratio of counts: as precise at 99 % as
//! at 75 %.
//!
//! Two things about a network are not known, and adapt:
//!
//! - How strongly a responds to λ, the elasticity −∂ln a/∂ln λ. So κ is halved when a/a* crosses 1 (the last move went
//!   too far) and grows by a quarter, up to its setting, while a stays on one side (the last moves did not go far
//!   enough).
//! - How fast training spreads the duals. λ has to grow with them to stay where it is, and a law that only reacts stays
//!   behind by that much. So a drift d of ln λ per update is learnt from the error that remains: ln λ ← ln λ + κ·e + d,
//!   d ← d + κ·e/8, with e = ln(a/a*), while the error is small.
//!
//! One update moves λ by a factor of two at most.

use serde::{Deserialize, Serialize};

use super::law::{ControlLaw, LAMBDA_RANGE, Memory, Reading};
use crate::error::{Result, require};

/// Settings of the density controller.
///
/// | setting | default | purpose | range |
/// | --- | --- | --- | --- |
/// | `kappa` | 0.5 | largest exponent κ | (0, 1] |
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Density {
    /// Largest exponent κ.
    pub kappa: f64,
}

impl Default for Density {
    fn default() -> Self {
        Self { kappa: 0.5 }
    }
}

/// κ never falls below this share of its setting, so that it can follow a drift again.
const LEAST_DAMPING: f64 = 1.0 / 64.0;
/// ln λ moves by this at most in one update: a factor of two.
const LARGEST_MOVE: f64 = std::f64::consts::LN_2;
/// Share of the reaction that goes into the drift.
const LEARNING: f64 = 1.0 / 8.0;
/// The drift is learnt while the error is smaller than this: on the way to the target it would learn the way.
const NEAR: f64 = 0.5;

impl ControlLaw for Density {
    fn check(&self) -> Result<()> {
        require(self.kappa > 0.0 && self.kappa <= 1.0, "density.kappa", self.kappa, "a number in (0, 1]")
    }

    fn next(&self, lambda: f64, reading: &Reading<'_>, memory: &mut Memory) -> Result<f64> {
        let error = (reading.live.max(1) as f64 / reading.target_live().max(1) as f64).ln();
        let before = memory.damping.unwrap_or(1.0);
        let damping = if memory.crossed(error) { (0.5 * before).max(LEAST_DAMPING) } else { (1.25 * before).min(1.0) };
        memory.damping = Some(damping);
        let reaction = self.kappa * damping * error;
        if error.abs() < NEAR {
            memory.drift += LEARNING * reaction;
        }
        let moved = lambda * (reaction + memory.drift).clamp(-LARGEST_MOVE, LARGEST_MOVE).exp();
        Ok(moved.clamp(LAMBDA_RANGE.0, LAMBDA_RANGE.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(live: u64) -> Reading<'static> {
        Reading { tick: 1, target: 0.99, len: 100_000, live, tensors: &[], duals: None }
    }

    #[test]
    fn the_exponent_halves_at_a_crossing_and_recovers_on_one_side() {
        let (law, mut memory) = (Density { kappa: 0.5 }, Memory::default());
        let mut kappa = |live: u64| {
            memory.drift = 0.0;
            let moved = law.next(1.0, &reading(live), &mut memory).unwrap().ln();
            moved / (live as f64 / 1000.0).ln() / (1.0 + LEARNING)
        };
        assert!((kappa(1210) - 0.5).abs() < 1e-9);
        assert!((kappa(810) - 0.25).abs() < 1e-9, "crossed: κ = 1/4");
        assert!((kappa(810) - 0.3125).abs() < 1e-9, "same side: κ = 5/16");
    }

    #[test]
    fn a_steady_spread_of_the_duals_is_learnt_and_leaves_no_error() {
        // ln a = −4·(ln λ − 0.01·t): the duals spread by 1 % per update, elasticity 4
        let (law, mut memory, mut ln_lambda) = (Density::default(), Memory::default(), 0.0f64);
        let mut error = 0.0;
        for t in 0..300 {
            error = -4.0 * (ln_lambda - 0.01 * f64::from(t));
            let live = (1000.0 * f64::exp(error)).round() as u64;
            ln_lambda = law.next(ln_lambda.exp(), &reading(live), &mut memory).unwrap().ln();
        }
        assert!(error.abs() < 0.01, "{error}");
    }

    #[test]
    fn an_empty_or_full_network_moves_lambda_by_two_at_most() {
        assert_eq!(Density::default().next(1.0, &reading(0), &mut Memory::default()).unwrap(), 0.5);
        assert_eq!(Density::default().next(1.0, &reading(100_000), &mut Memory::default()).unwrap(), 2.0);
    }
}
