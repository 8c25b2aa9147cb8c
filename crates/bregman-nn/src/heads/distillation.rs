//! A loss without labels: a student follows the embeddings of a teacher.

use bregman_tensor::{Backend, Margin, Tensor, View};

use crate::{BatchOutcome, Context, Error, Head, Result};

/// `mean over i of 1 − cos(sᵢ, tᵢ)` plus `mean over pairs of (cos(sᵢ, sⱼ) − cos(tᵢ, tⱼ))²`: each embedding points where
/// the teacher's does, and embeddings lie to each other as the teacher's do (relational distillation: Park et al., CVPR
/// 2019).
///
/// A batch has few embeddings of few values, so this is computed on the host, whatever the device.
///
/// # Shapes
/// student and teacher `[dim, batch]`, neither normalised.
pub struct Distillation {
    dim: usize,
    /// Unit vectors, one item after the other.
    teacher: Vec<f32>,
    outcome: BatchOutcome,
}

impl Distillation {
    /// For embeddings of so many values.
    pub fn new(dim: usize) -> Self {
        Self { dim, teacher: Vec::new(), outcome: BatchOutcome { loss: f32::NAN, correct: 0 } }
    }

    /// Loss and hits of the student's embeddings, which become the loss's gradient to them.
    fn follow(&self, student: &mut [f32]) -> BatchOutcome {
        let (dim, items) = (self.dim, student.len() / self.dim);
        let lengths = to_unit(student, dim);
        let of = |vectors: &[f32], i: usize| vectors[i * dim..][..dim].to_vec();
        let pairs = (items * items.saturating_sub(1)).max(1) as f64;
        let (mut loss, mut correct, mut gradient) = (0.0, 0, vec![0.0; student.len()]);
        for i in 0..items {
            let (s, t) = (of(student, i), of(&self.teacher, i));
            let own = dot(&s, &t);
            loss += (1.0 - own) / items as f64;
            let mut slope: Vec<f64> = t.iter().map(|&t| -f64::from(t) / items as f64).collect();
            let mut nearest = true;
            for j in (0..items).filter(|&j| j != i) {
                let (other, theirs) = (&student[j * dim..][..dim], &self.teacher[j * dim..][..dim]);
                let apart = dot(&s, other) - dot(&t, theirs);
                loss += apart * apart / pairs;
                // a pair is met from both of its ends
                slope.iter_mut().zip(other).for_each(|(slope, &s)| *slope += 4.0 * apart * f64::from(s) / pairs);
                nearest &= own >= dot(&s, theirs);
            }
            correct += usize::from(nearest);
            // lengths do not matter
            let along: f64 = slope.iter().zip(&s).map(|(slope, &s)| slope * f64::from(s)).sum();
            let target = &mut gradient[i * dim..][..dim];
            for ((target, slope), &s) in target.iter_mut().zip(slope).zip(&s) {
                *target = ((slope - along * f64::from(s)) / lengths[i]) as f32;
            }
        }
        student.copy_from_slice(&gradient);
        BatchOutcome { loss: loss as f32, correct }
    }
}

impl<B: Backend> Head<B> for Distillation {
    fn classes(&self) -> usize {
        usize::MAX
    }

    fn set_labels(&mut self, _: &B, _: &[usize]) -> Result<()> {
        Ok(())
    }

    fn set_targets(&mut self, targets: &[f32]) -> Result<()> {
        self.teacher.clear();
        self.teacher.extend_from_slice(targets);
        to_unit(&mut self.teacher, self.dim);
        Ok(())
    }

    fn waits_for_device(&self) -> bool {
        true
    }

    fn backward(&mut self, ctx: &mut Context<B>, x: View<B>, _: Margin, dx: &mut Tensor<B>) -> Result<()> {
        let mut values = vec![0.0; x.shape.len()];
        if values.len() != self.teacher.len() {
            let problem = format!("{} values of the teacher for {} of the student", self.teacher.len(), values.len());
            return Err(Error::Input { tensor: "targets", problem });
        }
        ctx.backend.read(x, &mut values)?;
        self.outcome = self.follow(&mut values);
        Ok(ctx.backend.write(&values, dx.view_mut())?)
    }

    fn outcome(&self, _: &B) -> Result<BatchOutcome> {
        Ok(self.outcome)
    }
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

/// Scales vectors of `dim` values to length 1; the lengths they had, at least a little.
fn to_unit(vectors: &mut [f32], dim: usize) -> Vec<f64> {
    let each = |vector: &mut [f32]| {
        let length = dot(vector, vector).sqrt().max(1e-12);
        vector.iter_mut().for_each(|value| *value = (f64::from(*value) / length) as f32);
        length
    };
    vectors.chunks_exact_mut(dim).map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use bregman_tensor::Cpu;

    const DIM: usize = 5;

    fn random(items: usize, seed: u64) -> Vec<f32> {
        let mut rng = Rng::new(seed);
        (0..items * DIM).map(|_| rng.symmetric(2.0)).collect()
    }

    fn head(teacher: &[f32]) -> Distillation {
        let mut head = Distillation::new(DIM);
        Head::<Cpu>::set_targets(&mut head, teacher).unwrap();
        head
    }

    #[test]
    fn the_gradient_is_that_of_finite_differences() {
        let (student, head) = (random(4, 1), head(&random(4, 2)));
        let mut gradient = student.clone();
        let outcome = head.follow(&mut gradient);
        assert!(outcome.loss > 0.1, "{}", outcome.loss);
        let loss = |i: usize, step: f32| {
            let mut moved = student.clone();
            moved[i] += step;
            f64::from(head.follow(&mut moved).loss)
        };
        for (i, &gradient) in gradient.iter().enumerate() {
            let difference = (loss(i, 1e-2) - loss(i, -1e-2)) / 2e-2;
            assert!((difference - f64::from(gradient)).abs() < 2e-4, "{i}: {difference} against {gradient}");
        }
    }

    #[test]
    fn a_student_that_equals_its_teacher_up_to_length_has_no_loss_and_finds_itself() {
        let teacher = random(6, 3);
        let mut student: Vec<f32> = teacher.iter().map(|value| 3.0 * value).collect();
        let outcome = head(&teacher).follow(&mut student);
        assert!(outcome.loss.abs() < 1e-6 && outcome.correct == 6, "{outcome:?}");
        assert!(student.iter().all(|gradient| gradient.abs() < 1e-6), "{student:?}");
        // in another order nobody is where the teacher is
        let mut shifted = [&teacher[DIM..], &teacher[..DIM]].concat();
        assert!(head(&teacher).follow(&mut shifted).correct < 6);
    }
}
