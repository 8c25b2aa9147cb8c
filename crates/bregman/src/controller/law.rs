//! What all control laws share: what they see, what they remember, and the choice between them.

use serde::{Deserialize, Serialize};

use super::density::Density;
use super::multiplicative::Multiplicative;
use super::quantile::Quantile;
use crate::error::Result;
use crate::optimizer::Duals;

/// λ never leaves this range by the paper's laws.
pub(super) const LAMBDA_RANGE: (f64, f64) = (1e-6, 1e3);

/// What a control law sees when it is asked for the next λ.
#[derive(Clone, Copy)]
pub struct Reading<'a> {
    /// Updates due so far: step / f.
    pub tick: u64,
    /// Target sparsity s* at this time.
    pub target: f64,
    /// Weights under this law's control.
    pub len: u64,
    /// Those of them that are not zero.
    pub live: u64,
    /// The tensors under control.
    pub tensors: &'a [usize],
    /// Counting access to their duals, where the optimizer keeps any.
    pub duals: Option<&'a dyn Duals>,
}

impl Reading<'_> {
    /// ε = s* − s(θ).
    pub fn epsilon(&self) -> f64 {
        self.target - (self.len - self.live) as f64 / self.len as f64
    }

    /// a* = (1 − s*)·n to the nearest weight: how many may be non-zero.
    pub fn target_live(&self) -> u64 {
        ((1.0 - self.target) * self.len as f64).round() as u64
    }
}

/// What a law remembers from update to update. Each uses what it needs.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Memory {
    /// Sign of the error at the last update, 0 before the first.
    pub side: i8,
    /// How often the error changed its sign.
    pub crossings: u32,
    /// Present damping, 1 at the start.
    pub damping: Option<f64>,
    /// What ln λ has to move by per update for the error to stay where it is.
    pub drift: f64,
}

impl Memory {
    /// Notes the sign of an error; tells whether it changed.
    pub(super) fn crossed(&mut self, error: f64) -> bool {
        let side = if error == 0.0 { 0 } else { error.signum() as i8 };
        let crossed = side * self.side < 0;
        self.crossings += u32::from(crossed);
        if side != 0 {
            self.side = side;
        }
        crossed
    }
}

/// A rule for the next λ.
pub(super) trait ControlLaw {
    /// Refuses settings out of range.
    fn check(&self) -> Result<()>;
    /// The next λ; called every f steps.
    fn next(&self, lambda: f64, reading: &Reading<'_>, memory: &mut Memory) -> Result<f64>;
}

/// The choice of a control law, with its settings.
///
/// The quantile is the default: with [`Variant::Steady`](crate::Variant::Steady) it has the sparsity asked for exactly,
/// from any λ₀, without a gain to choose. `docs/results.md` compares it with the paper's law.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Law {
    /// λ stays: the non-adaptive baseline.
    Fixed,
    /// The paper's: λ ← λ·(1 + α|ε|)^sgn(ε).
    Multiplicative(Multiplicative),
    /// Ours: λ ← λ·(a/a*)^κ.
    Density(Density),
    /// λ becomes the exact order statistic of the duals.
    Quantile(Quantile),
}

impl Default for Law {
    fn default() -> Self {
        Law::Quantile(Quantile {})
    }
}

impl Law {
    pub(super) fn check(&self) -> Result<()> {
        match self {
            Law::Fixed => Ok(()),
            Law::Multiplicative(law) => law.check(),
            Law::Density(law) => law.check(),
            Law::Quantile(law) => law.check(),
        }
    }

    pub(super) fn next(&self, lambda: f64, reading: &Reading<'_>, memory: &mut Memory) -> Result<f64> {
        match self {
            Law::Fixed => Ok(lambda),
            Law::Multiplicative(law) => law.next(lambda, reading, memory),
            Law::Density(law) => law.next(lambda, reading, memory),
            Law::Quantile(law) => law.next(lambda, reading, memory),
        }
    }

    /// Its name in settings.
    pub fn name(&self) -> &'static str {
        match self {
            Law::Fixed => "fixed",
            Law::Multiplicative(_) => "multiplicative",
            Law::Density(_) => "density",
            Law::Quantile(_) => "quantile",
        }
    }

    /// Whether the law computes λ from the present duals.
    pub fn needs_duals(&self) -> bool {
        matches!(self, Law::Quantile(_))
    }
}
