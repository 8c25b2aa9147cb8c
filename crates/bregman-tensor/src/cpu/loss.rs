//! Losses over a `classes × batch` matrix, fused with their gradients, and the unit vectors of the cosine classifier.

use bregman_base::math::exp;
use rayon::prelude::*;

use super::math::{simd, sum};
use super::{Buffer, Cpu};
use crate::{Block, Loss, Margin, Result, View, ViewMut};

/// Lengths below this are treated as this, as PyTorch's `F.normalize` does.
const SHORTEST: f32 = 1e-12;

impl Loss for Cpu {
    fn unit_forward(&self, x: View<Self>, unit: ViewMut<Self>, lengths: &mut Buffer) -> Result<()> {
        let batch = x.shape.batch;
        let (x, unit) = (x.slice(), unit.slice());
        for (item, length) in lengths.iter_mut().enumerate().take(batch) {
            let squares: f64 = x.iter().skip(item).step_by(batch).map(|&v| f64::from(v) * f64::from(v)).sum();
            *length = (squares.sqrt() as f32).max(SHORTEST);
        }
        for (unit, x) in unit.chunks_exact_mut(batch).zip(x.chunks_exact(batch)) {
            unit.iter_mut().zip(x).zip(lengths.iter()).for_each(|((unit, x), length)| *unit = x / length);
        }
        Ok(())
    }

    /// d ← (d − (d·u) u) / ‖x‖
    fn unit_backward(&self, unit: View<Self>, lengths: &Buffer, d: ViewMut<Self>) -> Result<()> {
        let (batch, unit, d) = (unit.shape.batch, unit.slice(), d.slice());
        for (item, &length) in lengths.iter().enumerate().take(batch) {
            let along: f64 =
                unit.iter().zip(&*d).skip(item).step_by(batch).map(|(&u, &d)| f64::from(u) * f64::from(d)).sum();
            let along = along as f32;
            d.iter_mut().zip(unit).skip(item).step_by(batch).for_each(|(d, &u)| *d = (*d - along * u) / length);
        }
        Ok(())
    }

    /// `lengths[r] = ‖w[r, :]‖`, and 1 for a row of zeros: its cosines are 0, and a gradient divided by a tiny
    /// length would throw it far out at the first step.
    fn row_lengths(&self, w: &Buffer, block: Block, lengths: &mut Buffer) -> Result<()> {
        lengths.par_iter_mut().zip(w.par_chunks(block.stride)).with_min_len(64).for_each(|(length, row)| {
            let norm = simd!(sum(row, |w| w * w)).sqrt();
            *length = if norm == 0.0 { 1.0 } else { norm.max(SHORTEST) };
        });
        Ok(())
    }

    /// AAM-softmax with cross-entropy. `d`: w · unit in, its gradient out. Accuracy is counted without the margin, a
    /// training device.
    ///
    /// With cos = d/‖w‖ and g the gradient to the cosine: the gradient to d is g/‖w‖, and `radial = Σ g·cos / ‖w‖²`.
    fn margin_loss(
        &self,
        margin: Margin,
        row_lengths: &Buffer,
        labels: &Buffer,
        d: ViewMut<Self>,
        radial: &mut Buffer,
        outcome: &mut Buffer,
    ) -> Result<()> {
        let (labels, d) = (&labels[..d.shape.batch], d.slice());
        let divide = |d: &mut [f32]| {
            let rows = d.chunks_exact_mut(labels.len()).zip(row_lengths.iter());
            rows.for_each(|(row, length)| row.iter_mut().for_each(|value| *value /= length));
        };
        divide(d);
        let result = softmax(
            margin.scale,
            labels,
            d,
            |cosine| with_margin(margin, cosine),
            |class, along| radial[class] = along / (row_lengths[class] * row_lengths[class]),
        );
        divide(d);
        outcome[..2].copy_from_slice(&result);
        Ok(())
    }

    fn remove_radial(&self, w: &Buffer, radial: &Buffer, block: Block, dw: &mut Buffer) -> Result<()> {
        dw.par_chunks_mut(block.stride)
            .zip(w.par_chunks(block.stride))
            .zip(radial.par_iter())
            .with_min_len(64)
            .for_each(|((dw, w), &radial)| {
                simd!(dw.iter_mut().zip(w).for_each(|(dw, &w)| *dw -= radial * w));
            });
        Ok(())
    }

    fn cross_entropy(&self, labels: &Buffer, d: ViewMut<Self>, outcome: &mut Buffer) -> Result<()> {
        let (labels, d) = (&labels[..d.shape.batch], d.slice());
        outcome[..2].copy_from_slice(&softmax(1.0, labels, d, |logit| (logit, 1.0), |_, _| ()));
        Ok(())
    }
}

/// The target's margin: φ(cos θ) = cos(θ + m), continued beyond θ = π − m, and its derivative in cos θ.
fn with_margin(margin: Margin, cosine: f32) -> (f32, f32) {
    let (cosine, m) = (f64::from(cosine), f64::from(margin.margin));
    if m == 0.0 {
        return (cosine as f32, 1.0);
    }
    let sine = (1.0 - cosine * cosine).max(0.0).sqrt();
    let (phi, slope) = (cosine * m.cos() - sine * m.sin(), m.cos() + m.sin() * cosine / sine.max(1e-6));
    let threshold = (std::f64::consts::PI - m).cos();
    let (phi, slope) = match margin.easy {
        true if cosine > 0.0 => (phi, slope),
        true => (cosine, 1.0),
        false if cosine > threshold => (phi, slope),
        // continuous at the threshold (WeSpeaker's form)
        false => (cosine - 1.0 - threshold, 1.0),
    };
    (phi as f32, slope as f32)
}

/// One batch item on its way through a softmax over the classes.
#[derive(Clone, Copy)]
struct Item {
    label: usize,
    /// The target's logit, its margin applied.
    target: f32,
    /// Derivative of that logit in the target's score.
    slope: f32,
    largest: f32,
    total: f32,
}

/// Softmax cross-entropy of `scale · scores`, averaged over the batch. `target(score) = (logit / scale, slope)` treats
/// the target class. `scores` (classes × batch) become the gradient, and `along(class, …)` receives Σ gradient · score.
/// Returns the mean loss and how many targets had the best score.
fn softmax(
    scale: f32,
    labels: &[f32],
    scores: &mut [f32],
    target: impl Fn(f32) -> (f32, f32),
    mut along: impl FnMut(usize, f32),
) -> [f32; 2] {
    let batch = labels.len();
    let mut correct = 0.0;
    let mut items: Vec<Item> = (labels.iter().enumerate())
        .map(|(item, &label)| {
            let label = label as usize;
            let score = scores[label * batch + item];
            let best = scores.iter().skip(item).step_by(batch).fold(f32::NEG_INFINITY, |best, &score| best.max(score));
            correct += f32::from(u8::from(score >= best));
            let (logit, slope) = target(score);
            Item { label, target: scale * logit, slope, largest: scale * best.max(logit), total: 0.0 }
        })
        .collect();
    let logit = |item: &Item, class: usize, score: f32| if class == item.label { item.target } else { scale * score };
    for (class, row) in scores.chunks_exact(batch).enumerate() {
        items
            .iter_mut()
            .zip(row)
            .for_each(|(item, &score)| item.total += exp(logit(item, class, score) - item.largest));
    }
    let share = scale / batch as f32;
    for (class, row) in scores.chunks_exact_mut(batch).enumerate() {
        let mut sum = 0.0;
        for (item, score) in items.iter().zip(row) {
            let probability = exp(logit(item, class, *score) - item.largest) / item.total;
            let gradient = share * if class == item.label { (probability - 1.0) * item.slope } else { probability };
            sum += gradient * *score;
            *score = gradient;
        }
        along(class, sum);
    }
    let loss: f64 = items.iter().map(|item| f64::from(item.largest - item.target) + f64::from(item.total).ln()).sum();
    [(loss / batch as f64) as f32, correct]
}
