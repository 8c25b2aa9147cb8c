//! The paper's controller, eq. (8): λ ← λ·(1 + α|ε|)^sgn(ε) every f steps, clamped to [1e-6, 1e3].
//!
//! Near the target it is damped, in one of three ways; see [`Damping`]. Which α oscillate, and what bounds the error
//! that remains, is in [the chapter on stability](crate::book::stability).

use serde::{Deserialize, Serialize};

use super::law::{ControlLaw, LAMBDA_RANGE, Memory, Reading};
use crate::error::{Result, require};

/// Settings of the multiplicative controller.
///
/// | setting | default | purpose | range |
/// | --- | --- | --- | --- |
/// | `alpha` | 1 (the paper takes 0.25 for AdaBreg on ResNet34) | gain α | > 0 |
/// | `damping` | band | what happens near the target | |
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Multiplicative {
    /// Gain α.
    pub alpha: f64,
    /// Damping near the target.
    pub damping: Damping,
}

impl Default for Multiplicative {
    fn default() -> Self {
        Self { alpha: 1.0, damping: Damping::default() }
    }
}

/// How the controller is calmed near its target.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Damping {
    /// Not at all.
    Off,
    /// While |ε| ≤ ζ_d, period γ_f·f and gain α/γ_α; outside f and α again. Nothing compounds: our reading of the
    /// paper's Algorithm 1.
    Band {
        /// ζ_d, half width of the band.
        #[serde(default = "zeta_d")]
        zeta: f64,
        /// γ_f, factor on the period.
        #[serde(default = "gamma_f")]
        gamma_f: u64,
        /// γ_α, divisor of the gain.
        #[serde(default = "gamma_alpha")]
        gamma_alpha: f64,
    },
    /// α·γ^(C−1) after C ≥ 1 changes of the sign of ε: what the authors' later code does.
    Crossings {
        /// γ.
        #[serde(default = "gamma")]
        gamma: f64,
    },
}

fn zeta_d() -> f64 {
    0.005
}
fn gamma_f() -> u64 {
    2
}
fn gamma_alpha() -> f64 {
    10.0
}
fn gamma() -> f64 {
    0.95
}

impl Default for Damping {
    fn default() -> Self {
        Damping::Band { zeta: zeta_d(), gamma_f: gamma_f(), gamma_alpha: gamma_alpha() }
    }
}

impl ControlLaw for Multiplicative {
    fn check(&self) -> Result<()> {
        require(self.alpha > 0.0 && self.alpha.is_finite(), "multiplicative.alpha", self.alpha, "a number > 0")?;
        match self.damping {
            Damping::Off => Ok(()),
            Damping::Band { zeta, gamma_f, gamma_alpha } => {
                require((0.0..1.0).contains(&zeta), "damping.zeta", zeta, "a share in [0, 1)")?;
                require(gamma_f >= 1, "damping.gamma_f", gamma_f, "a whole number ≥ 1")?;
                require(
                    gamma_alpha >= 1.0 && gamma_alpha.is_finite(),
                    "damping.gamma_alpha",
                    gamma_alpha,
                    "a number ≥ 1",
                )
            }
            Damping::Crossings { gamma } => {
                require(gamma > 0.0 && gamma <= 1.0, "damping.gamma", gamma, "a number in (0, 1]")
            }
        }
    }

    fn next(&self, lambda: f64, reading: &Reading<'_>, memory: &mut Memory) -> Result<f64> {
        let epsilon = reading.epsilon();
        memory.crossed(epsilon);
        let alpha = match self.damping {
            Damping::Band { zeta, gamma_f, .. } if epsilon.abs() <= zeta && !reading.tick.is_multiple_of(gamma_f) => {
                return Ok(lambda);
            }
            Damping::Band { zeta, gamma_alpha, .. } if epsilon.abs() <= zeta => self.alpha / gamma_alpha,
            Damping::Off | Damping::Band { .. } => self.alpha,
            Damping::Crossings { gamma } => self.alpha * gamma.powf(f64::from(memory.crossings.saturating_sub(1))),
        };
        let factor = 1.0 + alpha * epsilon.abs();
        let moved = if epsilon > 0.0 { lambda * factor } else { lambda / factor };
        Ok(moved.clamp(LAMBDA_RANGE.0, LAMBDA_RANGE.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(tick: u64, target: f64, live: u64) -> Reading<'static> {
        Reading { tick, target, len: 1000, live, tensors: &[], duals: None }
    }

    fn lambdas(damping: Damping, readings: &[Reading<'_>]) -> Vec<f64> {
        let (law, mut memory, mut lambda) = (Multiplicative { alpha: 1.0, damping }, Memory::default(), 1.0);
        let mut step = |reading: &Reading<'_>| {
            lambda = law.next(lambda, reading, &mut memory).unwrap();
            lambda
        };
        readings.iter().map(&mut step).collect()
    }

    #[test]
    fn inside_the_band_it_acts_half_as_often_and_a_tenth_as_strongly() {
        // ε = 0.004 at ticks 1 to 4, then 0.1
        let near: Vec<_> = (1..=4).map(|tick| reading(tick, 0.904, 100)).collect();
        let path = lambdas(Damping::default(), &near);
        assert_eq!(path[0], 1.0);
        assert!((path[1] - 1.0004).abs() < 1e-12 && path[2] == path[1] && (path[3] - 1.0004f64.powi(2)).abs() < 1e-12);
        assert!(
            (lambdas(Damping::default(), &[reading(1, 0.99, 110)])[0] - 1.1).abs() < 1e-12,
            "outside at once and in full"
        );
    }

    #[test]
    fn each_crossing_after_the_first_takes_the_gain_back_by_gamma() {
        let path = lambdas(
            Damping::Crossings { gamma: 0.5 },
            &[reading(1, 0.9, 200), reading(2, 0.9, 50), reading(3, 0.9, 200)],
        );
        assert!((path[0] - 1.1).abs() < 1e-12, "no crossing yet");
        assert!((path[1] - 1.1 / 1.05).abs() < 1e-12, "the first is the arrival");
        assert!((path[2] / path[1] - 1.05).abs() < 1e-12, "the second halves the gain");
    }

    #[test]
    fn an_error_of_zero_leaves_lambda_alone() {
        assert_eq!(lambdas(Damping::Off, &[reading(1, 0.75, 250)]), [1.0]);
    }
}
