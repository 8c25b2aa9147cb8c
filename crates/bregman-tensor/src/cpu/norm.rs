//! Batch norm fused with ReLU, one channel per task.
//!
//! Training: x̂ = (u − μ) / √(σ² + ε), y = γ·x̂ + β, with u = relu(x) where the ReLU comes first; relu(y + residual)
//! where it comes last. Backward: dx = γ/√(σ²+ε) · (g − mean(g) − x̂ · mean(g·x̂)), dγ = Σ g·x̂, dβ = Σ g, with g
//! masked by the last ReLU, dx by the first.

use super::math::{each, simd, sum, sum2};
use super::matmul::Target;
use super::{Buffer, Cpu};
use crate::constants::{NORM_EPSILON, NORM_MOMENTUM};
use crate::{BatchNorm, ConvolutionNorm, NormGradients, NormParams, NormStatistics, Relu, Result, View, ViewMut};

/// Values of a channel that are treated at a time.
const PIECE: usize = 2048;

/// relu that keeps NaN.
#[inline(always)]
fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

impl ConvolutionNorm for Cpu {}

impl BatchNorm for Cpu {
    fn norm_train(
        &self,
        x: View<Self>,
        norm: NormParams<Self>,
        statistics: NormStatistics<Self>,
        residual: Option<View<Self>>,
        y: ViewMut<Self>,
    ) -> Result<()> {
        let (shape, n) = (x.shape, x.shape.plane());
        let (x, residual, y) = (x.slice(), residual.map(|r| r.slice()), Target::rows(y.slice(), n));
        let [mean, inverse_std, running_mean, running_variance] =
            [statistics.mean, statistics.inverse_std, statistics.running_mean, statistics.running_variance]
                .map(|b| Target::rows(b, 1));
        let own = |channel: usize| {
            let x = &x[channel * n..][..n];
            simd!(if norm.relu == Relu::Before { moments(x, relu) } else { moments(x, |x| x) })
        };
        let joint = self.joint_moments(shape, own)?;
        let count = joint.as_ref().map_or(n, |joint| joint.count);
        each(shape.channels, shape.len(), |channel| {
            let x = &x[channel * n..][..n];
            let (average, variance) = joint.as_ref().map_or_else(|| own(channel), |joint| joint.moments[channel]);
            let inverse = 1.0 / (variance + NORM_EPSILON).sqrt();
            // SAFETY: each task has its own channel of every array.
            let (y, [m, s, rm, rv]) = unsafe {
                (
                    y.row(channel, n),
                    [mean, inverse_std, running_mean, running_variance].map(|target| &mut target.row(channel, 1)[0]),
                )
            };
            (*m, *s) = (average, inverse);
            let unbiased = variance * count as f32 / (count.max(2) - 1) as f32;
            *rm += NORM_MOMENTUM * (average - *rm);
            *rv += NORM_MOMENTUM * (unbiased - *rv);
            let scale = norm.scale[channel] * inverse;
            let shift = (-scale).mul_add(average, norm.shift[channel]);
            apply(x, scale, shift, norm.relu, residual.map(|r| &r[channel * n..][..n]), y);
        });
        Ok(())
    }

    fn norm_eval(
        &self,
        x: View<Self>,
        norm: NormParams<Self>,
        running_mean: &Buffer,
        running_variance: &Buffer,
        residual: Option<View<Self>>,
        y: ViewMut<Self>,
    ) -> Result<()> {
        let (shape, n) = (x.shape, x.shape.plane());
        let (x, residual, y) = (x.slice(), residual.map(|r| r.slice()), Target::rows(y.slice(), n));
        each(shape.channels, shape.len(), |channel| {
            let scale = norm.scale[channel] / (running_variance[channel] + NORM_EPSILON).sqrt();
            let shift = (-scale).mul_add(running_mean[channel], norm.shift[channel]);
            // SAFETY: each task has its own channel.
            let y = unsafe { y.row(channel, n) };
            apply(&x[channel * n..][..n], scale, shift, norm.relu, residual.map(|r| &r[channel * n..][..n]), y);
        });
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn norm_backward(
        &self,
        x: View<Self>,
        y: View<Self>,
        norm: NormParams<Self>,
        mean: &Buffer,
        inverse_std: &Buffer,
        d: ViewMut<Self>,
        dresidual: Option<ViewMut<Self>>,
        gradients: NormGradients<Self>,
    ) -> Result<()> {
        let (shape, n) = (x.shape, x.shape.plane());
        let (x, y, d) = (x.slice(), y.slice(), Target::rows(d.slice(), n));
        let dresidual = dresidual.map(|d| Target::rows(d.slice(), n));
        let (dscale, dshift) = (Target::rows(gradients.scale, 1), Target::rows(gradients.shift, 1));
        let dbias = gradients.bias.map(|bias| Target::rows(bias, 1));
        let before = norm.relu == Relu::Before;
        // Σ g and Σ g·(u − μ), after the last ReLU's mask, which the residual's gradient takes along
        let sums = |channel: usize| {
            let (x, y, mean) = (&x[channel * n..][..n], &y[channel * n..][..n], mean[channel]);
            // SAFETY: each task has its own channel of every array.
            let d = unsafe { d.row(channel, n) };
            // SAFETY: as above.
            let mut dresidual = dresidual.map(|target| unsafe { target.row(channel, n) });
            simd!({
                let (mut sum_d, mut sum_dx) = (0.0f64, 0.0f64);
                // in pieces that stay in the first-level cache: a channel of three arrays would not fit the second
                for from in (0..n).step_by(PIECE) {
                    let piece = from..n.min(from + PIECE);
                    let (x, y, d) = (&x[piece.clone()], &y[piece.clone()], &mut d[piece.clone()]);
                    if norm.relu == Relu::After {
                        d.iter_mut().zip(y).for_each(|(d, &y)| *d = if y > 0.0 { *d } else { 0.0 });
                    }
                    if let Some(dresidual) = &mut dresidual {
                        dresidual[piece].copy_from_slice(d);
                    }
                    let (d_part, dx_part) = if before {
                        sum2(d, x, |d, x| (d, d * (relu(x) - mean)))
                    } else {
                        sum2(d, x, |d, x| (d, d * (x - mean)))
                    };
                    (sum_d, sum_dx) = (sum_d + f64::from(d_part), sum_dx + f64::from(dx_part));
                }
                [sum_d as f32, sum_dx as f32]
            })
        };
        let joint = if norm.fixed { None } else { self.joint_sums(shape, sums)? };
        // constants are those of infinitely many values: what one of them is does not move them
        let count = if norm.fixed { f32::INFINITY } else { joint.as_ref().map_or(n, |joint| joint.count) as f32 };
        each(shape.channels, shape.len(), |channel| {
            let own = joint.as_ref().map_or_else(|| sums(channel), |joint| joint.own[channel]);
            let [sum_d, sum_dx] = joint.as_ref().map_or(own, |joint| joint.all[channel]);
            let (x, mean, inverse) = (&x[channel * n..][..n], mean[channel], inverse_std[channel]);
            // SAFETY: each task has its own channel of every array.
            let (d, dscale, dshift) = unsafe { (d.row(channel, n), dscale.row(channel, 1), dshift.row(channel, 1)) };
            dscale[0] = own[1] * inverse;
            dshift[0] = own[0];
            // dx = a·g + b·u + c
            let a = norm.scale[channel] * inverse;
            let b = -a * inverse * inverse * sum_dx / count;
            let c = -a * sum_d / count - b * mean;
            simd!({
                if before {
                    d.iter_mut().zip(x).for_each(|(d, &x)| {
                        // of masked values too: d would be gathered value by value if it were read under the mask
                        let dx = a * *d + b * x + c;
                        *d = if x > 0.0 { dx } else { 0.0 };
                    });
                } else {
                    d.iter_mut().zip(x).for_each(|(d, &x)| *d = a * *d + b * x + c);
                }
            });
            if let Some(dbias) = dbias {
                // SAFETY: as above.
                unsafe { dbias.set(channel, simd!(sum(d, |d| d))) };
            }
        });
        Ok(())
    }
}

/// Mean and biased variance of f(x). Both of one piece after another, which stays in the cache meanwhile, the variance
/// about the piece's own mean: no cancellation, and memory is read once. Pieces are joined as in Chan, Golub & LeVeque,
/// "Updating formulae", 1979.
#[inline(always)]
fn moments(x: &[f32], f: impl Fn(f32) -> f32) -> (f32, f32) {
    let (mut mean, mut squares) = (0.0, 0.0);
    for (from, piece) in (0..).step_by(PIECE).zip(x.chunks(PIECE)) {
        let count = piece.len();
        let centre = sum(piece, &f) / count as f32;
        let spread = sum(piece, |x| (f(x) - centre) * (f(x) - centre));
        let (distance, share) = (f64::from(centre) - mean, count as f64 / (from + count) as f64);
        mean += distance * share;
        squares += f64::from(spread) + distance * distance * share * from as f64;
    }
    (mean as f32, (squares / x.len() as f64) as f32)
}

fn apply(x: &[f32], scale: f32, shift: f32, order: Relu, residual: Option<&[f32]>, y: &mut [f32]) {
    let pairs = y.iter_mut().zip(x);
    simd!(match (order, residual) {
        (Relu::Absent, _) => pairs.for_each(|(y, &x)| *y = x.mul_add(scale, shift)),
        (Relu::Before, _) => pairs.for_each(|(y, &x)| *y = relu(x).mul_add(scale, shift)),
        (Relu::After, None) => pairs.for_each(|(y, &x)| *y = relu(x.mul_add(scale, shift))),
        (Relu::After, Some(r)) => pairs.zip(r).for_each(|((y, &x), &r)| *y = relu(x.mul_add(scale, shift) + r)),
    });
}
