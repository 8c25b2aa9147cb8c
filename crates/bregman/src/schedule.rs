//! A sparsity that moves: the ramp of a controller's target, and the schedule of gradual pruning.
//!
//! With x from 0 to 1 between `begin` and `end`:
//!
//! | shape | s(x) from s₀ to s* |
//! | --- | --- |
//! | [`Hold`](RampShape::Hold) | s* from the start |
//! | [`Linear`](RampShape::Linear) | s₀ + (s* − s₀)·x |
//! | [`Cubic`](RampShape::Cubic) | s* + (s₀ − s*)·(1 − x)³ (Zhu and Gupta, 2017) |
//! | [`Exponential`](RampShape::Exponential) | 1 − (1 − s₀)^(1−x)·(1 − s*)^x; the paper's, with s₀ = 0 |

use serde::{Deserialize, Serialize};

use crate::error::{Result, require};

/// How the sparsity moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RampShape {
    /// No movement.
    #[default]
    Hold,
    /// In a straight line.
    Linear,
    /// Fast first, then slow.
    Cubic,
    /// A constant share of the non-zero weights is pruned each time.
    Exponential,
}

/// A movement of the sparsity from `from` to the target between two points in time, counted in whatever unit the
/// caller counts (steps, epochs, prunings).
///
/// ```
/// use bregman::{Ramp, RampShape};
/// let ten_epochs = Ramp { shape: RampShape::Exponential, from: 0.0, begin: 0, end: 10 };
/// assert_eq!(ten_epochs.at(5, 0.75), 0.5); // half of the way: half of the weights, then half of those
/// assert_eq!(ten_epochs.at(12, 0.75), 0.75);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ramp {
    /// How it moves.
    pub shape: RampShape,
    /// The sparsity before it moves, in [0, 1).
    #[serde(default)]
    pub from: f64,
    /// When it begins to move.
    #[serde(default)]
    pub begin: u64,
    /// When it arrives, after `begin`.
    pub end: u64,
}

impl Ramp {
    pub(crate) fn check(&self) -> Result<()> {
        require((0.0..1.0).contains(&self.from), "ramp.from", self.from, "a share in [0, 1)")?;
        require(self.end > self.begin, "ramp.end", self.end, "a point in time after ramp.begin")
    }

    /// The sparsity at time `i`.
    pub fn at(&self, i: u64, target: f64) -> f64 {
        let x = (i.saturating_sub(self.begin) as f64 / (self.end - self.begin) as f64).min(1.0);
        if x == 1.0 {
            return target;
        }
        match self.shape {
            RampShape::Hold => target,
            RampShape::Linear => self.from + (target - self.from) * x,
            RampShape::Cubic => target + (self.from - target) * (1.0 - x).powi(3),
            RampShape::Exponential => 1.0 - (1.0 - self.from).powf(1.0 - x) * (1.0 - target).powf(x),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ramp_leaves_its_start_late_arrives_in_time_and_never_turns_back() {
        for shape in [RampShape::Linear, RampShape::Cubic, RampShape::Exponential] {
            for (from, target) in [(0.0, 0.9), (0.99, 0.75)] {
                let ramp = Ramp { shape, from, begin: 3, end: 13 };
                let path: Vec<f64> = (0..20).map(|i| ramp.at(i, target)).collect();
                assert!(path[..=3].iter().all(|s| (s - from).abs() < 1e-12), "{path:?}");
                assert!(path[13..].iter().all(|&s| s == target), "{path:?}");
                let direction = (target - from).signum();
                assert!(path.windows(2).all(|s| (s[1] - s[0]) * direction >= 0.0), "{path:?}");
            }
        }
    }

    #[test]
    fn impossible_ramps_are_refused() {
        assert!(Ramp { shape: RampShape::Linear, from: 1.0, begin: 0, end: 1 }.check().is_err());
        assert!(
            Ramp { shape: RampShape::Linear, from: 0.0, begin: 4, end: 4 }
                .check()
                .unwrap_err()
                .to_string()
                .contains("ramp.end")
        );
    }
}
