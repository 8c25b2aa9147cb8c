//! When weights are exchanged, and how many: the schedule that SET and RigL share.

use super::RunClock;
use crate::error::{Result, require};

/// Every ΔT steps the share f_t = (α/2)·(1 + cos(π·t/T_end)) of the live weights is exchanged, until T_end (Evci et
/// al., 2020). Nothing is exchanged before the first step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exchange {
    /// ΔT, steps between exchanges.
    pub period: u64,
    /// α, the share at the start.
    pub fraction: f64,
    /// T_end as a share of the run's steps.
    pub until: f64,
}

impl Exchange {
    pub(super) fn check(&self) -> Result<()> {
        check_period(self.period)?;
        require((0.0..=1.0).contains(&self.fraction), "fraction", self.fraction, "a share in [0, 1], such as 0.3")?;
        check_until(self.until)
    }

    /// f_t before the next step; `None` where nothing is exchanged.
    pub(super) fn at(&self, clock: &RunClock) -> Option<f64> {
        let progress = clock.step as f64 / (self.until * clock.total as f64);
        let fading = 0.5 * (1.0 + (std::f64::consts::PI * progress).cos());
        (is_due(self.period, clock) && progress < 1.0).then_some(self.fraction * fading)
    }
}

/// Whether a period has passed; none has before the first step.
pub(super) fn is_due(period: u64, clock: &RunClock) -> bool {
    clock.step > 0 && clock.step.is_multiple_of(period)
}

pub(super) fn check_period(period: u64) -> Result<()> {
    require(period >= 1, "period", period, "1 or more steps")
}

pub(super) fn check_until(until: f64) -> Result<()> {
    require(until > 0.0 && until <= 1.0, "until", until, "a share of the run in (0, 1], such as 0.75")
}
