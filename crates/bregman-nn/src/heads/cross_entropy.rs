//! Plain cross-entropy.

use bregman_tensor::{Backend, Margin, Tensor, View};

use crate::{BatchOutcome, Builder, Context, Head, Labels, LateOutcome, Result};

/// Softmax cross-entropy on the network's own outputs.
///
/// # Shapes
/// logits `[classes, batch]`.
pub struct CrossEntropy<B: Backend> {
    classes: usize,
    labels: Labels<B>,
}

impl<B: Backend> CrossEntropy<B> {
    /// For a network with so many outputs. It has no parameters.
    pub fn new(builder: &Builder<B>, classes: usize) -> Result<Self> {
        Ok(Self { classes, labels: Labels::new(builder.backend)? })
    }
}

impl<B: Backend> Head<B> for CrossEntropy<B> {
    fn classes(&self) -> usize {
        self.classes
    }

    fn set_labels(&mut self, backend: &B, labels: &[usize]) -> Result<()> {
        self.labels.set(backend, labels).map(|_| ())
    }

    fn backward(&mut self, ctx: &mut Context<B>, x: View<B>, _: Margin, dx: &mut Tensor<B>) -> Result<()> {
        ctx.backend.copy(x, dx.view_mut())?;
        let Labels { classes, outcome, .. } = &mut self.labels;
        Ok(ctx.backend.cross_entropy(classes, dx.view_mut(), outcome)?)
    }

    fn outcome(&self, backend: &B) -> Result<BatchOutcome> {
        self.labels.read(backend)
    }

    fn outcome_later(&self, backend: &B) -> Result<LateOutcome<B>> {
        self.labels.read_later(backend)
    }
}
