//! AC/DC (Peste et al., 2021): the network trains dense and under a mask of its largest weights in turns, and ends
//! under a mask. A new mask is taken at the beginning of every sparse phase.
//!
//! In the authors' 100 epochs on ImageNet: dense until 10, then 5 sparse and 5 dense in turns until 75, dense until 85,
//! sparse to the end. So a sparse phase that would run into the last one is left out, to give the weights time to come
//! back. They also clear the momentum of all weights where a dense phase begins, we that of the weights that come back.

use super::{MaskChange, MaskPolicy, RunClock, check_target};
use crate::error::{Result, require};

/// Sparse and dense phases in turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phases {
    /// Epochs of the run.
    pub epochs: u64,
    /// Dense epochs at the start.
    pub dense_epochs: u64,
    /// Epochs of each phase after that.
    pub phase_epochs: u64,
    /// Sparse epochs at the end.
    pub last_epochs: u64,
}

impl Phases {
    /// The published ones in a run of so many epochs: a tenth, a twentieth and three twentieths of it.
    pub fn published(epochs: u64) -> Self {
        let share = |twentieths: u64| (epochs * twentieths).div_ceil(20).max(1);
        Self { epochs, dense_epochs: share(2), phase_epochs: share(1), last_epochs: share(3) }
    }

    /// Whether masks are on in an epoch, counted from 0.
    pub fn are_sparse(&self, epoch: u64) -> bool {
        let end = self.epochs.saturating_sub(self.last_epochs);
        let turn = |epoch: u64| (epoch / self.phase_epochs).is_multiple_of(2);
        let ends_before = |epoch: u64| self.dense_epochs + (epoch / self.phase_epochs + 1) * self.phase_epochs < end;
        epoch >= end || epoch.checked_sub(self.dense_epochs).is_some_and(|epoch| turn(epoch) && ends_before(epoch))
    }
}

/// Alternating compressed and decompressed training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AcDc {
    /// Sparsity of the sparse phases.
    pub target: f64,
    /// When which phase is.
    pub phases: Phases,
}

impl MaskPolicy for AcDc {
    fn check(&self) -> Result<()> {
        let Phases { phase_epochs, last_epochs, .. } = self.phases;
        require(phase_epochs >= 1, "phase_epochs", phase_epochs, "1 or more")?;
        require(last_epochs >= 1, "last_epochs", last_epochs, "1 or more, so that the end is sparse")?;
        check_target(self.target)
    }

    fn sparsity(&self, clock: &RunClock) -> f64 {
        if self.phases.are_sparse(clock.epoch) { self.target } else { 0.0 }
    }

    fn change(&self, clock: &RunClock) -> Option<MaskChange> {
        let before = clock.epoch.checked_sub(1).is_some_and(|epoch| self.phases.are_sparse(epoch));
        let turns = clock.begins_epoch() && self.phases.are_sparse(clock.epoch) != before;
        turns.then(|| MaskChange::to(self.sparsity(clock)))
    }
}
