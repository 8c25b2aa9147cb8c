//! Losses over scores of `classes × batch`.

use bregman_tensor::{Block, Loss, Margin, Result, View, ViewMut};

use super::{Read, Reference, Write};

/// Lengths below this are treated as this, as PyTorch's `F.normalize` does.
const SHORTEST: f64 = 1e-12;

/// The margin's φ(cos θ) and its derivative in cos θ.
fn with_margin(margin: Margin, cosine: f64) -> (f64, f64) {
    let m = f64::from(margin.margin);
    let sine = (1.0 - cosine * cosine).max(0.0).sqrt();
    let threshold = (std::f64::consts::PI - m).cos();
    if m == 0.0 || (margin.easy && cosine <= 0.0) {
        (cosine, 1.0)
    } else if margin.easy || cosine > threshold {
        (cosine * m.cos() - sine * m.sin(), m.cos() + m.sin() * cosine / sine.max(1e-6))
    } else {
        (cosine - 1.0 - threshold, 1.0)
    }
}

/// Softmax cross-entropy of `scale · logit`, where `target` makes logit and slope of the target's score.
fn softmax(
    scale: f64,
    labels: &[f64],
    d: &mut ViewMut<Reference>,
    target: impl Fn(f64) -> (f64, f64),
    outcome: &mut [f64],
) {
    let (batch, classes) = (d.shape.batch, d.shape.channels);
    outcome[..2].fill(0.0);
    for (b, &label) in labels[..batch].iter().enumerate() {
        let label = label as usize;
        let scores: Vec<f64> = (0..classes).map(|c| d.get(b, c, 0)).collect();
        let (logit, slope) = target(scores[label]);
        let logits: Vec<f64> = (0..classes).map(|c| scale * if c == label { logit } else { scores[c] }).collect();
        let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = logits.iter().map(|logit| (logit - largest).exp()).sum();
        outcome[0] += (largest + total.ln() - logits[label]) / batch as f64;
        outcome[1] += f64::from(u8::from(scores.iter().all(|&score| scores[label] >= score)));
        for (c, logit) in logits.iter().enumerate() {
            let probability = (logit - largest).exp() / total;
            let gradient = if c == label { (probability - 1.0) * slope } else { probability };
            d.set(b, c, 0, scale * gradient / batch as f64);
        }
    }
}

impl Loss for Reference {
    fn unit_forward(&self, x: View<Self>, mut unit: ViewMut<Self>, lengths: &mut Vec<f64>) -> Result<()> {
        for (b, length) in lengths.iter_mut().enumerate().take(x.shape.batch) {
            let squares: f64 = (0..x.shape.channels).map(|c| x.get(b, c, 0).powi(2)).sum();
            *length = squares.sqrt().max(SHORTEST);
        }
        unit.fill(|b, c, _, _| x.get(b, c, 0) / lengths[b]);
        Ok(())
    }

    fn unit_backward(&self, unit: View<Self>, lengths: &Vec<f64>, mut d: ViewMut<Self>) -> Result<()> {
        let along = |b: usize| (0..unit.shape.channels).map(|c| unit.get(b, c, 0) * d.get(b, c, 0)).sum::<f64>();
        let along: Vec<f64> = (0..unit.shape.batch).map(along).collect();
        d.fill(|b, c, _, d| (d - along[b] * unit.get(b, c, 0)) / lengths[b]);
        Ok(())
    }

    fn row_lengths(&self, w: &Vec<f64>, block: Block, lengths: &mut Vec<f64>) -> Result<()> {
        for (length, row) in lengths.iter_mut().zip(w.chunks(block.stride)) {
            let norm = row.iter().map(|w| w * w).sum::<f64>().sqrt();
            *length = if norm == 0.0 { 1.0 } else { norm.max(SHORTEST) };
        }
        Ok(())
    }

    fn margin_loss(
        &self,
        margin: Margin,
        row_lengths: &Vec<f64>,
        labels: &Vec<f64>,
        mut d: ViewMut<Self>,
        radial: &mut Vec<f64>,
        outcome: &mut Vec<f64>,
    ) -> Result<()> {
        d.fill(|_, c, _, score| score / row_lengths[c]);
        let cosines: Vec<Vec<f64>> =
            (0..d.shape.channels).map(|c| (0..d.shape.batch).map(|b| d.get(b, c, 0)).collect()).collect();
        softmax(f64::from(margin.scale), labels, &mut d, |cosine| with_margin(margin, cosine), outcome);
        for (c, cosines) in cosines.iter().enumerate() {
            let along: f64 = cosines.iter().enumerate().map(|(b, cosine)| d.get(b, c, 0) * cosine).sum();
            radial[c] = along / row_lengths[c].powi(2);
        }
        d.fill(|_, c, _, gradient| gradient / row_lengths[c]);
        Ok(())
    }

    fn remove_radial(&self, w: &Vec<f64>, radial: &Vec<f64>, block: Block, dw: &mut Vec<f64>) -> Result<()> {
        for (at, dw) in dw.iter_mut().enumerate() {
            *dw -= radial[at / block.stride] * w[at];
        }
        Ok(())
    }

    fn cross_entropy(&self, labels: &Vec<f64>, mut d: ViewMut<Self>, outcome: &mut Vec<f64>) -> Result<()> {
        softmax(1.0, labels, &mut d, |logit| (logit, 1.0), outcome);
        Ok(())
    }
}
