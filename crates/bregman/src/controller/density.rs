//! A controller on the count of live weights: λ ← λ·(a/a*)^κ.
//!
//! The paper's ε is a share of *all* weights, so at a target of 99 % an error of half a point, which its band calls
//! "arrived", is half of the weights that may live. Here the error is a ratio of live weights: as precise at 99 % as at 75 %.
//!
//! How strongly a responds to λ, the elasticity −∂ln a/∂ln λ, depends on the tail of the duals and is not known: κ adapts to
//! it. It is halved when a/a* crosses 1 (the last move went too far) and grows by a quarter, up to its setting, while a
//! stays on one side (the last moves did not go far enough). One update moves λ by a factor of two at most.

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
/// One update multiplies or divides λ by this at most.
const LARGEST_MOVE: f64 = 2.0;

impl ControlLaw for Density {
    fn check(&self) -> Result<()> {
        require(self.kappa > 0.0 && self.kappa <= 1.0, "density.kappa", self.kappa, "a number in (0, 1]")
    }

    fn next(&self, lambda: f64, reading: &Reading<'_>, memory: &mut Memory) -> Result<f64> {
        let ratio = reading.live.max(1) as f64 / reading.target_live().max(1) as f64;
        let before = memory.damping.unwrap_or(1.0);
        let damping = if memory.crossed(ratio.ln()) { (0.5 * before).max(LEAST_DAMPING) } else { (1.25 * before).min(1.0) };
        memory.damping = Some(damping);
        let factor = ratio.powf(self.kappa * damping).clamp(1.0 / LARGEST_MOVE, LARGEST_MOVE);
        Ok((lambda * factor).clamp(LAMBDA_RANGE.0, LAMBDA_RANGE.1))
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
        let mut factor = |live| law.next(1.0, &reading(live), &mut memory).unwrap();
        assert!((factor(1210) - 1.1).abs() < 1e-9);
        assert!((factor(810) - 0.9f64.sqrt()).abs() < 1e-9, "crossed: κ = 1/4");
        assert!((factor(810) - 0.81f64.powf(0.3125)).abs() < 1e-9, "same side: κ = 5/16");
    }

    #[test]
    fn an_empty_or_full_network_moves_lambda_by_two_at_most() {
        assert_eq!(Density::default().next(1.0, &reading(0), &mut Memory::default()).unwrap(), 0.5);
        assert_eq!(Density::default().next(1.0, &reading(100_000), &mut Memory::default()).unwrap(), 2.0);
    }
}
