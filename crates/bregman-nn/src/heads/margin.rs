//! The cosine classifier with an angular margin.

use bregman::{Param, Role};
use bregman_tensor::{Backend, Conv, Margin, OutputStart, Shape, Storage, Tensor, View};

use crate::{BatchOutcome, Builder, Context, Head, Labels, LateOutcome, ParamId, Result};

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
    labels: Labels<B>,
}

impl<B: Backend> MarginClassifier<B> {
    /// `projection.weight`, Xavier uniform as WeSpeaker's.
    pub fn new(builder: &mut Builder<B>, dim: usize, classes: usize) -> Result<Self> {
        let bound = (6.0 / (dim + classes) as f32).sqrt();
        let weight =
            builder.weight(Param::new("projection.weight", [classes, dim], Role::Classifier), &[dim], 1, bound)?;
        let exact = |len| builder.backend.alloc(len, Storage::Exact);
        Ok(Self {
            weight,
            classes,
            unit: Tensor::empty(builder.backend)?,
            scores: Tensor::empty(builder.backend)?,
            lengths: exact(0)?,
            row_lengths: exact(classes)?,
            radial: exact(classes)?,
            labels: Labels::new(builder.backend)?,
        })
    }
}

impl<B: Backend> Head<B> for MarginClassifier<B> {
    fn classes(&self) -> usize {
        self.classes
    }

    fn set_labels(&mut self, backend: &B, labels: &[usize]) -> Result<()> {
        if self.labels.set(backend, labels)? {
            self.lengths = backend.alloc(labels.len(), Storage::Exact)?;
        }
        Ok(())
    }

    fn backward(&mut self, ctx: &mut Context<B>, x: View<B>, margin: Margin, dx: &mut Tensor<B>) -> Result<()> {
        let backend = &ctx.backend;
        self.unit.resize(backend, x.shape)?;
        self.scores.resize(backend, Shape::vector(self.classes, x.shape.batch))?;
        let parameter = ctx.params.get_mut(self.weight);
        let weight = parameter.weight(0);
        let block = weight.block;

        backend.unit_forward(x, self.unit.view_mut(), &mut self.lengths)?;
        backend.row_lengths(&parameter.value, block, &mut self.row_lengths)?;
        backend.conv_forward(&Conv::POINTWISE, self.unit.view(), weight, OutputStart::Zero, self.scores.view_mut())?;
        let Labels { classes, outcome, .. } = &mut self.labels;
        backend.margin_loss(margin, &self.row_lengths, classes, self.scores.view_mut(), &mut self.radial, outcome)?;

        backend.conv_backward_input(&Conv::POINTWISE, weight, self.scores.view(), false, dx.view_mut())?;
        backend.unit_backward(self.unit.view(), &self.lengths, dx.view_mut())?;
        parameter.backward(backend, ctx.extent, &Conv::POINTWISE, 0, self.unit.view(), self.scores.view())?;
        backend.remove_radial(&parameter.value, &self.radial, block, &mut parameter.grad)?;
        ctx.wrote(self.weight)
    }

    fn outcome(&self, backend: &B) -> Result<BatchOutcome> {
        self.labels.read(backend)
    }

    fn outcome_later(&self, backend: &B) -> Result<LateOutcome<B>> {
        self.labels.read_later(backend)
    }
}
