//! One step in two halves. The first gives all work to the device, the second reads what it came to: loss, gradient
//! norm, counts. On a CPU one follows the other. A GPU has the next pass to work on when the second half asks, so that
//! it does not wait for the host; what is wrong with a step is then found one step late, but before anything is saved.
//! Under masks, with a teacher and with several ranks the halves follow each other there, too.
//!
//! λ and masks follow from the counts of a step, on every device alike: a step after which they move is settled in its
//! first half, once in `method.period` steps.

use std::time::Instant;

use bregman::topology::RunClock;
use bregman_nn::{BatchOutcome, LateOutcome};
use bregman_speaker::Batch;
use bregman_tensor::Margin;

use super::{Trainer, input};
use crate::method::MethodStep;
use crate::run::{CheckpointFolder, StepRecord};
use crate::{Device, Error, Result};

/// A step that the device was given, whose numbers have not been read.
pub(super) struct BegunStep<B: Device> {
    clock: RunClock,
    batch: Batch,
    labels: Vec<usize>,
    margin: Margin,
    lr: f64,
    began: Instant,
    outcome: LateOutcome<B>,
    gradient_norm: B::Late,
    /// Where it is known already.
    step: Option<MethodStep>,
}

impl<B: Device> Trainer<'_, B> {
    /// Whether the numbers of a step are read while the device works on the next one. Masks, ranks and a teacher need
    /// them at once.
    pub(super) fn runs_ahead(&self) -> bool {
        self.model.backend().runs_ahead() && self.ranks.is_alone() && self.teacher.is_none() && !self.method.has_masks()
    }

    /// Takes the step from the gradients of this batch, on which work began then. Also says whether any rank was asked
    /// to stop, where this one was or was not.
    pub(super) fn begin_step(
        &mut self,
        batch: Batch,
        labels: Vec<usize>,
        margin: Margin,
        began: Instant,
        stop: bool,
    ) -> Result<(BegunStep<B>, bool)> {
        let (clock, total) = (self.clock(), self.total_steps());
        let late = self.model.outcome_later()?;
        let (outcome, stopping) = if self.runs_ahead() {
            (late, stop)
        } else {
            let own = self.model.arrived(late)?;
            let (outcome, stopping) = self.joint(own, &batch, stop)?;
            self.check_loss(outcome, &clock, &batch, &labels, margin)?;
            (LateOutcome::Known(outcome), stopping)
        };
        let extent = self.method.extent(&clock);
        let gradient_norm = self.model.clip_later(self.experiment.train.clip.unwrap_or(f32::INFINITY))?;
        let lr = self.state.lr.at(clock.step, total, self.data.train.batches_per_epoch());
        self.method.launch(&mut self.model, lr)?;
        let settled = !self.runs_ahead() || self.method.is_due();
        let step = if settled { Some(self.settle_step(&clock)?) } else { None };
        self.model.refresh_after(self.method.moved(extent))?;
        self.state.step += 1;
        Ok((BegunStep { clock, batch, labels, margin, lr, began, outcome, gradient_norm, step }, stopping))
    }

    /// Reads what a step came to, and records it. The batch may be used again.
    pub(super) fn end_step(&mut self, begun: BegunStep<B>) -> Result<(StepRecord, Batch)> {
        let BegunStep { clock, batch, labels, margin, lr, began, outcome, gradient_norm, step } = begun;
        let outcome = match outcome {
            LateOutcome::Known(outcome) => outcome,
            late => {
                let outcome = self.model.arrived(late)?;
                self.check_loss(outcome, &clock, &batch, &labels, margin)?;
                outcome
            }
        };
        let MethodStep { lambda, sparsity, target, survival } = match step {
            Some(step) => step,
            None => self.settle_step(&clock)?,
        };
        let gradient_norm = self.model.backend().arrived(gradient_norm)?[0];
        let cuts = batch.whole;
        self.state.sparsity = sparsity;
        self.state.survival.add(survival);
        self.state.sums.add(outcome, cuts);
        // a step that began while the one before was under way has only the time since that one
        let seconds = began.max(std::mem::replace(&mut self.ended, Instant::now())).elapsed().as_secs_f64();
        let record = StepRecord {
            step: clock.step + 1,
            epoch: batch.position.epoch + 1,
            loss: f64::from(outcome.loss),
            accuracy: outcome.correct as f64 / cuts as f64,
            lambda,
            sparsity,
            target,
            epsilon: target.map(|target| target - sparsity),
            survived: survival.share(),
            lr,
            margin: f64::from(margin.margin),
            gradient_norm: f64::from(gradient_norm),
            utterances_per_second: cuts as f64 / seconds.max(1e-9),
        };
        self.observer.step(&record);
        if (record.step.is_multiple_of(self.experiment.train.log_every) || record.survived.is_some())
            && let Some(books) = &mut self.books
        {
            books.log.step(&record)?;
        }
        Ok((record, batch))
    }

    fn settle_step(&mut self, clock: &RunClock) -> Result<MethodStep> {
        match self.method.settle(clock, &mut self.model) {
            Err(Error::Method(error @ bregman::Error::NonFinite { .. })) => {
                Err(self.not_finite(clock, error.to_string()))
            }
            result => result,
        }
    }

    /// A loss that is not finite ends the run. The pass is repeated to find where that comes from.
    fn check_loss(
        &mut self,
        outcome: BatchOutcome,
        clock: &RunClock,
        batch: &Batch,
        labels: &[usize],
        margin: Margin,
    ) -> Result<()> {
        if outcome.loss.is_finite() {
            return Ok(());
        }
        self.model.check_finite(true);
        let what = match self.model.gradients(input(batch), labels, margin) {
            Err(error) => error.to_string(),
            Ok(_) => format!("the loss is {}", outcome.loss),
        };
        Err(self.not_finite(clock, what))
    }

    /// What was not finite in the step at `clock`.
    pub(super) fn not_finite(&self, clock: &RunClock, what: String) -> Error {
        Error::NotFinite {
            step: clock.step + 1,
            epoch: clock.epoch + 1,
            what,
            last: self.run.last().whole().as_ref().map(CheckpointFolder::path).map(Into::into),
        }
    }
}
