//! GraNet (Liu et al., 2021): gradual pruning with regrowth. Every ΔT steps the sparsity follows
//! s_i + (s_f − s_i)·(1 − (1 − t/T)³), then a share f_t = (α/2)·(1 + cos(π·t/T_run)) of each layer's live weights is
//! exchanged as in RigL. As in the authors' code pruning ends at T, regrowth with the run.

use super::exchange::{check_period, check_until, is_due};
use super::{Exchange, MaskChange, MaskPolicy, MaskedLayer, RunClock, Start, check_target};
use crate::error::{Result, require};
use crate::schedule::{Ramp, RampShape};

/// Gradual pruning with regrowth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GraNet {
    /// s_f, the sparsity at the end.
    pub target: f64,
    /// s_i, the sparsity of the start; 0 begins dense.
    pub from: f64,
    /// ΔT, steps between updates.
    pub period: u64,
    /// α, the share that is exchanged at the start.
    pub fraction: f64,
    /// T as a share of the run's steps.
    pub until: f64,
}

impl MaskPolicy for GraNet {
    fn check(&self) -> Result<()> {
        check_target(self.target)?;
        let (from, target) = (self.from, self.target);
        require((0.0..=target).contains(&from), "from", from, "a share from 0 to the target")?;
        check_period(self.period)?;
        check_until(self.until)?;
        self.regrowth().check()
    }

    fn start(&self) -> Start {
        if self.from == 0.0 { Start::Dense } else { Start::Random(self.from) }
    }

    fn sparsity(&self, clock: &RunClock) -> f64 {
        let updates = |steps: u64| steps / self.period;
        // the last update before T arrives at the target, so that every run ends there
        let end = updates(((self.until * clock.total as f64) as u64).min(clock.total.saturating_sub(1))).max(1);
        let ramp = Ramp { shape: RampShape::Cubic, from: self.from, begin: 0, end };
        ramp.at(updates(clock.step), self.target)
    }

    fn change(&self, clock: &RunClock) -> Option<MaskChange> {
        let exchanged = self.regrowth().at(clock).unwrap_or(0.0);
        is_due(self.period, clock).then(|| MaskChange { sparsity: self.sparsity(clock), exchanged })
    }

    fn grow(&self, layer: &MaskedLayer<'_>) -> Option<Vec<f32>> {
        Some(layer.gradients())
    }

    fn needs_gradients(&self) -> bool {
        true
    }
}

impl GraNet {
    fn regrowth(&self) -> Exchange {
        Exchange { period: self.period, fraction: self.fraction, until: 1.0 }
    }
}
