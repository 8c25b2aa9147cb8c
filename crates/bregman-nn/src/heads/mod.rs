//! What turns a network's output into a loss: the cosine classifier with an angular margin, or plain cross-entropy.

use bregman_tensor::{Backend, Conv, Margin, Shape, Start, Storage, Tensor, View};

use crate::model::params::ParamId;
use crate::{Builder, Context, Result, Role};

/// What one batch cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Mean loss.
    pub loss: f32,
    /// Items whose own class scored best (before the margin).
    pub correct: usize,
}

/// Labels and results on the device, grown with the batch.
struct Ledger<B: Backend> {
    labels: B::Buffer,
    outcome: B::Buffer,
    batch: usize,
    staging: Vec<f32>,
}

impl<B: Backend> Ledger<B> {
    fn new(backend: &B) -> Result<Self> {
        let exact = |len| backend.alloc(len, Storage::Exact);
        Ok(Self { labels: exact(0)?, outcome: exact(2)?, batch: 0, staging: Vec::new() })
    }

    fn set(&mut self, backend: &B, labels: &[usize]) -> Result<()> {
        if labels.len() > self.batch {
            self.labels = backend.alloc(labels.len(), Storage::Exact)?;
            self.batch = labels.len();
        }
        self.staging.clear();
        self.staging.extend(labels.iter().map(|&label| label as f32));
        Ok(backend.upload(&self.staging, &mut self.labels)?)
    }

    fn outcome(&self, backend: &B) -> Result<Outcome> {
        let mut values = [0.0; 2];
        backend.download(&self.outcome, &mut values)?;
        Ok(Outcome { loss: values[0], correct: values[1] as usize })
    }
}

/// AAM-softmax (Deng et al., "ArcFace", CVPR 2019): logits s·cos θ between embedding and class weight, with the angle
/// of the true class enlarged by m, then cross-entropy.
///
/// # Shapes
/// embedding `[dim, batch]`, weight `[classes, dim]`, neither normalised.
pub struct MarginClassifier<B: Backend> {
    weight: ParamId,
    classes: usize,
    unit: Tensor<B>,
    scores: Tensor<B>,
    lengths: B::Buffer,
    row_lengths: B::Buffer,
    radial: B::Buffer,
    ledger: Ledger<B>,
}

impl<B: Backend> MarginClassifier<B> {
    /// `projection.weight`, Xavier uniform as WeSpeaker's.
    pub fn new(builder: &mut Builder<B>, dim: usize, classes: usize) -> Result<Self> {
        let bound = (6.0 / (dim + classes) as f32).sqrt();
        let weight =
            builder.weight("projection.weight".to_owned(), Role::Classifier, &[classes, dim], &[dim], bound)?;
        let exact = |len| builder.backend.alloc(len, Storage::Exact);
        Ok(Self {
            weight,
            classes,
            unit: Tensor::empty(builder.backend)?,
            scores: Tensor::empty(builder.backend)?,
            lengths: exact(0)?,
            row_lengths: exact(classes)?,
            radial: exact(classes)?,
            ledger: Ledger::new(builder.backend)?,
        })
    }

    /// The classes of the next batch.
    pub fn set_labels(&mut self, backend: &B, labels: &[usize]) -> Result<()> {
        if labels.len() > self.ledger.batch {
            self.lengths = backend.alloc(labels.len(), Storage::Exact)?;
        }
        self.ledger.set(backend, labels)
    }

    /// Loss against the labels set before, gradient of the weight, and gradient of the embedding into `dx`.
    pub fn backward(&mut self, ctx: &mut Context<B>, x: View<B>, margin: Margin, dx: &mut Tensor<B>) -> Result<()> {
        let backend = &ctx.backend;
        self.unit.resize(backend, x.shape)?;
        self.scores.resize(backend, Shape::vector(self.classes, x.shape.batch))?;
        let parameter = ctx.params.get_mut(self.weight);
        let weight = parameter.weight(0);
        let block = weight.block;

        backend.unit_forward(x, self.unit.view_mut(), &mut self.lengths)?;
        backend.row_lengths(&parameter.value, block, &mut self.row_lengths)?;
        backend.conv_forward(&Conv::POINTWISE, self.unit.view(), weight, Start::Zero, self.scores.view_mut())?;
        let Ledger { labels, outcome, .. } = &mut self.ledger;
        backend.margin_loss(margin, &self.row_lengths, labels, self.scores.view_mut(), &mut self.radial, outcome)?;

        backend.conv_backward_input(&Conv::POINTWISE, weight, self.scores.view(), false, dx.view_mut())?;
        backend.unit_backward(self.unit.view(), &self.lengths, dx.view_mut())?;
        let gradient = &mut parameter.grad;
        backend.conv_backward_weight(&Conv::POINTWISE, self.unit.view(), self.scores.view(), block, gradient)?;
        Ok(backend.remove_radial(&parameter.value, &self.radial, block, gradient)?)
    }

    /// What the last batch cost. Waits for the device, so it is best asked for when all work has been handed to it.
    pub fn outcome(&self, backend: &B) -> Result<Outcome> {
        self.ledger.outcome(backend)
    }
}

/// Softmax cross-entropy on the network's own outputs.
///
/// # Shapes
/// logits `[classes, batch]`.
pub struct CrossEntropy<B: Backend> {
    ledger: Ledger<B>,
}

impl<B: Backend> CrossEntropy<B> {
    /// It has no parameters.
    pub fn new(builder: &Builder<B>) -> Result<Self> {
        Ok(Self { ledger: Ledger::new(builder.backend)? })
    }

    /// As [`MarginClassifier::set_labels`].
    pub fn set_labels(&mut self, backend: &B, labels: &[usize]) -> Result<()> {
        self.ledger.set(backend, labels)
    }

    /// Loss against the labels set before, and the logits' gradient into `dx`.
    pub fn backward(&mut self, ctx: &Context<B>, x: View<B>, dx: &mut Tensor<B>) -> Result<()> {
        ctx.backend.copy(x, dx.view_mut())?;
        let Ledger { labels, outcome, .. } = &mut self.ledger;
        Ok(ctx.backend.cross_entropy(labels, dx.view_mut(), outcome)?)
    }

    /// As [`MarginClassifier::outcome`].
    pub fn outcome(&self, backend: &B) -> Result<Outcome> {
        self.ledger.outcome(backend)
    }
}
