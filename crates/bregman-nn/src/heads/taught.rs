//! Labels and a teacher at once.

use bregman_tensor::{Backend, Margin, Tensor, View};

use crate::{BatchOutcome, Builder, Context, Distillation, Head, MarginClassifier, Result};

/// The loss of a [`MarginClassifier`] plus `distance` times that of [`Distillation`]. What counts as a hit is the
/// classifier's.
pub struct TaughtClassifier<B: Backend> {
    labels: MarginClassifier<B>,
    teacher: Distillation,
    distance: f32,
}

impl<B: Backend> TaughtClassifier<B> {
    /// For embeddings of `dim` values.
    pub fn new(builder: &mut Builder<B>, dim: usize, classes: usize, distance: f32) -> Result<Self> {
        let labels = MarginClassifier::new(builder, dim, classes)?;
        Ok(Self { labels, teacher: Distillation::new(dim), distance })
    }
}

impl<B: Backend> Head<B> for TaughtClassifier<B> {
    fn classes(&self) -> usize {
        self.labels.classes()
    }

    fn set_labels(&mut self, backend: &B, labels: &[usize]) -> Result<()> {
        self.labels.set_labels(backend, labels)
    }

    fn set_targets(&mut self, targets: &[f32]) -> Result<()> {
        Head::<B>::set_targets(&mut self.teacher, targets)
    }

    fn waits_for_device(&self) -> bool {
        Head::<B>::waits_for_device(&self.teacher)
    }

    fn backward(&mut self, ctx: &mut Context<B>, x: View<B>, margin: Margin, dx: &mut Tensor<B>) -> Result<()> {
        let read = |ctx: &Context<B>, tensor: View<B>| -> Result<Vec<f32>> {
            let mut values = vec![0.0; tensor.shape.len()];
            ctx.backend.read(tensor, &mut values)?;
            Ok(values)
        };
        self.labels.backward(ctx, x, margin, dx)?;
        let mut gradient = read(ctx, dx.view())?;
        self.teacher.backward(ctx, x, margin, dx)?;
        let towards = read(ctx, dx.view())?;
        gradient.iter_mut().zip(towards).for_each(|(gradient, towards)| *gradient += self.distance * towards);
        Ok(ctx.backend.write(&gradient, dx.view_mut())?)
    }

    fn outcome(&self, backend: &B) -> Result<BatchOutcome> {
        let (labels, teacher) = (self.labels.outcome(backend)?, self.teacher.outcome(backend)?);
        Ok(BatchOutcome { loss: labels.loss + self.distance * teacher.loss, ..labels })
    }
}

#[cfg(test)]
mod tests {
    use bregman_network::{Architecture, ResNetConfig};
    use bregman_tensor::Cpu;

    use super::*;
    use crate::{Input, Rng, TrainableModel};

    /// The gradients of one step of a small network on two utterances, and its loss.
    fn step(mut model: TrainableModel<Cpu>, targets: Option<&[f32]>) -> (Vec<f32>, f32) {
        let mut random = Rng::new(5);
        let values: Vec<f32> = (0..2 * 16 * 12).map(|_| random.symmetric(2.0)).collect();
        if let Some(targets) = targets {
            model.set_targets(targets).unwrap();
        }
        let margin = Margin { scale: 8.0, margin: 0.1, easy: false };
        let outcome = model.gradients(Input { values: &values, batch: 2, frames: 12 }, &[0, 2], margin).unwrap();
        let first = &model.params().all()[0];
        (first.grad.to_vec(), outcome.loss)
    }

    #[test]
    fn its_gradients_are_the_sum_of_both() {
        let architecture = Architecture::new(16, ResNetConfig { blocks: [1, 1, 1, 1], channels: 4, embedding: 6 });
        let targets: Vec<f32> = (0..12).map(|i| (i as f32 - 5.0) / 3.0).collect();
        let (by_labels, loss_of_labels) =
            step(TrainableModel::new(Cpu::new(), &architecture, Some(3), 7).unwrap(), None);
        let (to_teacher, distance) =
            step(TrainableModel::student(Cpu::new(), &architecture, 7).unwrap(), Some(&targets));
        let (both, loss) = step(TrainableModel::taught(Cpu::new(), &architecture, 3, 2.5, 7).unwrap(), Some(&targets));
        assert!((loss - (loss_of_labels + 2.5 * distance)).abs() < 1e-5);
        let largest = both.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        for ((both, labels), teacher) in both.iter().zip(by_labels).zip(to_teacher) {
            assert!((both - (labels + 2.5 * teacher)).abs() < 1e-4 * largest, "{both} {labels} {teacher}");
        }
    }
}
