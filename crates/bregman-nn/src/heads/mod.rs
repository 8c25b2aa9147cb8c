//! What turns a network's output into a loss.

pub(crate) mod cross_entropy;
pub(crate) mod distillation;
pub(crate) mod margin;
pub(crate) mod taught;

use bregman_tensor::{Backend, Margin, Storage, Tensor, View};

use crate::{Context, Error, Result};

/// What one batch cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchOutcome {
    /// Mean loss.
    pub loss: f32,
    /// Items whose own class scored best (before the margin).
    pub correct: usize,
}

/// What one batch cost, on its way from the device.
pub enum LateOutcome<B: Backend> {
    /// It is known already.
    Known(BatchOutcome),
    /// Mean loss and number of hits.
    OnItsWay(B::Late),
}

impl<B: Backend> LateOutcome<B> {
    /// Waits for it.
    pub(crate) fn arrived(self, backend: &B) -> Result<BatchOutcome> {
        match self {
            Self::Known(outcome) => Ok(outcome),
            Self::OnItsWay(late) => Ok(outcome_of(&backend.arrived(late)?)),
        }
    }
}

/// From what a device keeps of it.
fn outcome_of(values: &[f32]) -> BatchOutcome {
    BatchOutcome { loss: values[0], correct: values[1] as usize }
}

/// A loss on a network's output.
pub trait Head<B: Backend>: Send {
    /// Labels are below it.
    fn classes(&self) -> usize;
    /// The classes of the next batch.
    fn set_labels(&mut self, backend: &B, labels: &[usize]) -> Result<()>;
    /// What another network makes of the next batch, `[batch, outputs]`, for a loss that follows it.
    ///
    /// # Errors
    /// A loss of labels.
    fn set_targets(&mut self, targets: &[f32]) -> Result<()> {
        let problem = format!("{} values of another network, but the loss is one of labels", targets.len());
        Err(Error::Input { tensor: "targets", problem })
    }
    /// Whether [`Head::backward`] reads results back, so that a step cannot be captured and replayed.
    fn waits_for_device(&self) -> bool {
        false
    }
    /// Loss of the output `x` against the labels set before, gradients of the head's own parameters, and the gradient
    /// of the output into `dx`. A head without a margin ignores it.
    fn backward(&mut self, ctx: &mut Context<B>, x: View<B>, margin: Margin, dx: &mut Tensor<B>) -> Result<()>;
    /// What the last batch cost. Waits for the device, so it is best asked for when all work has been handed to it.
    fn outcome(&self, backend: &B) -> Result<BatchOutcome>;
    /// The same without waiting, where the loss is computed on the device.
    fn outcome_later(&self, backend: &B) -> Result<LateOutcome<B>> {
        self.outcome(backend).map(LateOutcome::Known)
    }
}

/// Labels and results on the device, grown with the batch: what a [`Head`] keeps.
pub struct Labels<B: Backend> {
    /// The class of each item.
    pub classes: B::Buffer,
    /// Mean loss and number of hits.
    pub outcome: B::Buffer,
    batch: usize,
    staging: Vec<f32>,
}

impl<B: Backend> Labels<B> {
    /// For batches of any size.
    pub fn new(backend: &B) -> Result<Self> {
        let exact = |len| backend.alloc(len, Storage::Exact);
        Ok(Self { classes: exact(0)?, outcome: exact(2)?, batch: 0, staging: Vec::new() })
    }

    /// Hands the labels to the device; tells whether there are more than ever before.
    pub fn set(&mut self, backend: &B, labels: &[usize]) -> Result<bool> {
        let more = labels.len() > self.batch;
        if more {
            self.classes = backend.alloc(labels.len(), Storage::Exact)?;
            self.batch = labels.len();
        }
        self.staging.clear();
        self.staging.extend(labels.iter().map(|&label| label as f32));
        backend.upload(&self.staging, &mut self.classes)?;
        Ok(more)
    }

    /// What [`Labels::outcome`] holds. Waits for the device.
    pub fn read(&self, backend: &B) -> Result<BatchOutcome> {
        let mut values = [0.0; 2];
        backend.download(&self.outcome, &mut values)?;
        Ok(outcome_of(&values))
    }

    /// What [`Labels::outcome`] holds after all work so far, without waiting.
    pub fn read_later(&self, backend: &B) -> Result<LateOutcome<B>> {
        Ok(LateOutcome::OnItsWay(backend.read_later(&self.outcome, 2)?))
    }
}
