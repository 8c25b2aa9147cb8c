//! Kernels that reduce over time, or spread one value per channel and item over it: one (channel, item) row per task
//! group.

use bregman_base::lanes::largest;
use bregman_base::math::{exp, tanh};
use rayon::prelude::*;

use super::Cpu;
use super::math::{SERIAL, each, simd, sum, sum_over, sum2};
use super::matmul::Target;
use crate::{Pooling, Result, Shape, Spread, View, ViewMut};

impl Pooling for Cpu {
    fn mean_forward(&self, x: View<Self>, mean: ViewMut<Self>) -> Result<()> {
        let (x, mean) = (x.slice(), mean.slice());
        let n = x.len() / mean.len();
        let rows = rows_per_task(n);
        mean.par_chunks_mut(rows).zip(x.par_chunks(rows * n)).for_each(|(means, x)| {
            means.iter_mut().zip(x.chunks_exact(n)).for_each(|(mean, x)| *mean = simd!(sum(x, |x| x)) / n as f32);
        });
        Ok(())
    }

    fn gate_forward(&self, x: View<Self>, gate: View<Self>, residual: View<Self>, y: ViewMut<Self>) -> Result<()> {
        let (x, gate, residual, y) = (x.slice(), gate.slice(), residual.slice(), y.slice());
        let n = x.len() / gate.len();
        y.par_chunks_mut(n)
            .zip(x.par_chunks(n))
            .zip(residual.par_chunks(n))
            .zip(gate)
            .with_min_len(rows_per_task(n))
            .for_each(|(((y, x), r), &gate)| {
                simd!(y.iter_mut().zip(x).zip(r).for_each(|((y, &x), &r)| *y = r + gate * x))
            });
        Ok(())
    }

    fn gate_backward_gate(&self, x: View<Self>, dy: View<Self>, dgate: ViewMut<Self>) -> Result<()> {
        let (x, dy, dgate) = (x.slice(), dy.slice(), dgate.slice());
        let n = x.len() / dgate.len();
        let rows = dgate.par_iter_mut().zip(x.par_chunks(n)).zip(dy.par_chunks(n));
        rows.with_min_len(rows_per_task(n))
            .for_each(|((dgate, x), dy)| *dgate = simd!(sum_over(x, dy, |x, dy| x * dy)));
        Ok(())
    }

    fn gate_backward_input(
        &self,
        gate: View<Self>,
        dmean: View<Self>,
        dy: View<Self>,
        dx: ViewMut<Self>,
    ) -> Result<()> {
        let (gate, dmean, dy, dx) = (gate.slice(), dmean.slice(), dy.slice(), dx.slice());
        let n = dx.len() / gate.len();
        let rows = dx.par_chunks_mut(n).zip(dy.par_chunks(n)).zip(gate).zip(dmean);
        rows.with_min_len(rows_per_task(n)).for_each(|(((dx, dy), &gate), &dmean)| {
            let share = dmean / n as f32;
            simd!(dx.iter_mut().zip(dy).for_each(|(dx, &dy)| *dx = gate * dy + share));
        });
        Ok(())
    }

    fn moments_forward(&self, x: View<Self>, spread: Spread, stats: ViewMut<Self>) -> Result<()> {
        let (shape, x, stats) = (x.shape, x.slice(), stats.slice());
        let (n, rows) = (shape.width, x.len() / shape.width);
        assert_eq!(stats.len(), 2 * rows, "moments");
        let stats = Target::rows(stats, 1);
        each(rows, x.len(), |row| {
            let x = &x[row * n..][..n];
            let (mean, deviation) = simd!({
                let mean = sum(x, |x| x) / n as f32;
                let squares = sum(x, |x| (x - mean) * (x - mean));
                let variance = match spread {
                    // one frame has no variance; PyTorch gives NaN there, we give none
                    Spread::Raised(epsilon) => squares / (n.max(2) - 1) as f32 + epsilon,
                    Spread::Floored(floor) => at_least(squares / n as f32, floor),
                };
                (mean, variance.sqrt())
            });
            let slot = slot(shape, row);
            // SAFETY: each task has its own two slots.
            unsafe {
                stats.set(slot, mean);
                stats.set(rows + slot, deviation);
            }
        });
        Ok(())
    }

    /// dx = dμ/n + dσ · (x − μ) / ((n − 1) · σ), or n in place of n − 1
    fn moments_backward(
        &self,
        x: View<Self>,
        stats: View<Self>,
        dstats: View<Self>,
        spread: Spread,
        add: bool,
        dx: ViewMut<Self>,
    ) -> Result<()> {
        let shape = x.shape;
        let (x, stats, dstats, dx) = (x.slice(), stats.slice(), dstats.slice(), dx.slice());
        let (n, rows) = (shape.width, x.len() / shape.width);
        let (least, divisor) = match spread {
            Spread::Raised(_) => (0.0, (n.max(2) - 1) as f32),
            Spread::Floored(floor) => (floor.sqrt(), n as f32),
        };
        let work = |(row, (dx, x)): (usize, (&mut [f32], &[f32]))| {
            let slot = slot(shape, row);
            let (mean, deviation) = (stats[slot], stats[rows + slot]);
            let share = dstats[slot] / n as f32;
            let slope = if deviation > least { dstats[rows + slot] / (divisor * deviation) } else { 0.0 };
            let pairs = dx.iter_mut().zip(x);
            simd!({
                if add {
                    pairs.for_each(|(dx, &x)| *dx += share + slope * (x - mean));
                } else {
                    pairs.for_each(|(dx, &x)| *dx = share + slope * (x - mean));
                }
            });
        };
        dx.par_chunks_mut(n).zip(x.par_chunks(n)).enumerate().with_min_len(rows_per_task(n)).for_each(work);
        Ok(())
    }

    fn context_add(&self, context: View<Self>, h: ViewMut<Self>) -> Result<()> {
        let (n, context, h) = (h.shape.positions(), context.slice(), h.slice());
        h.par_chunks_mut(n).zip(context).with_min_len(rows_per_task(n)).for_each(|(h, &context)| {
            simd!(h.iter_mut().for_each(|h| *h += context));
        });
        Ok(())
    }

    fn context_add_backward(&self, dh: View<Self>, dcontext: ViewMut<Self>) -> Result<()> {
        let (n, dh, dcontext) = (dh.shape.positions(), dh.slice(), dcontext.slice());
        dcontext.par_iter_mut().zip(dh.par_chunks(n)).with_min_len(rows_per_task(n)).for_each(|(dcontext, dh)| {
            *dcontext = simd!(sum(dh, |d| d));
        });
        Ok(())
    }

    fn context_tanh(&self, context: Option<View<Self>>, h: ViewMut<Self>) -> Result<()> {
        let (n, context, h) = (h.shape.positions(), context.map(|context| context.slice()), h.slice());
        h.par_chunks_mut(n).enumerate().with_min_len(rows_per_task(n)).for_each(|(row, h)| {
            let context = context.map_or(0.0, |context| context[row]);
            simd!(h.iter_mut().for_each(|h| *h = tanh(*h + context)));
        });
        Ok(())
    }

    fn context_tanh_backward(&self, a: View<Self>, d: ViewMut<Self>, dcontext: Option<ViewMut<Self>>) -> Result<()> {
        let (n, a, d) = (a.shape.positions(), a.slice(), d.slice());
        let dcontext = dcontext.map(|d| Target::rows(d.slice(), 1));
        d.par_chunks_mut(n).zip(a.par_chunks(n)).enumerate().with_min_len(rows_per_task(n)).for_each(
            |(row, (d, a))| {
                simd!(d.iter_mut().zip(a).for_each(|(d, &a)| *d *= 1.0 - a * a));
                if let Some(dcontext) = dcontext {
                    // SAFETY: each task has its own element.
                    unsafe { dcontext.set(row, simd!(sum(d, |d| d))) };
                }
            },
        );
        Ok(())
    }

    /// α = softmax(logits) over each row in place; with u = x − x₀, where x₀ is the first frame so that a constant has
    /// no variance, μ = x₀ + Σ αu, σ = √max(Σ αu² − (Σ αu)², ε), into `[means; stds]`.
    fn attentive_forward(
        &self,
        x: View<Self>,
        attention: ViewMut<Self>,
        floor: f32,
        stats: ViewMut<Self>,
    ) -> Result<()> {
        let (x, attention, stats) = (x.slice(), attention.slice(), stats.slice());
        let (means, deviations) = stats.split_at_mut(stats.len() / 2);
        let n = x.len() / means.len();
        let rows = attention.par_chunks_mut(n).zip(x.par_chunks(n)).zip(means).zip(deviations);
        rows.with_min_len(rows_per_task(n)).for_each(|(((attention, x), mean), deviation)| {
            simd!({
                let largest = largest(attention);
                attention.iter_mut().for_each(|a| *a = exp(*a - largest));
                let total = sum(attention, |a| a);
                attention.iter_mut().for_each(|a| *a /= total);
                let origin = x[0];
                let (first, second) = sum2(attention, x, |a, x| (a * (x - origin), a * (x - origin) * (x - origin)));
                *mean = origin + first;
                *deviation = at_least(second - first * first, floor).sqrt();
            });
        });
        Ok(())
    }

    /// With v = dσ/2σ (0 where σ is at its floor) and z = x − μ: dlogits = α(dμ·z + v(z² − σ²)), dx = α(dμ + 2v·z).
    fn attentive_backward(
        &self,
        x: View<Self>,
        attention: View<Self>,
        stats: View<Self>,
        dstats: View<Self>,
        floor: f32,
        dlogits: ViewMut<Self>,
        dx: ViewMut<Self>,
    ) -> Result<()> {
        let (x, attention, stats, dstats, dlogits, dx) =
            (x.slice(), attention.slice(), stats.slice(), dstats.slice(), dlogits.slice(), dx.slice());
        let rows = stats.len() / 2;
        let n = x.len() / rows;
        let floor = floor.sqrt();
        let each_row = dlogits
            .par_chunks_mut(n)
            .zip(dx.par_chunks_mut(n))
            .zip(x.par_chunks(n))
            .zip(attention.par_chunks(n))
            .enumerate();
        each_row.with_min_len(rows_per_task(n)).for_each(|(row, (((dlogits, dx), x), attention))| {
            let (mean, deviation) = (stats[row], stats[rows + row]);
            let v = if deviation > floor { dstats[rows + row] / (2.0 * deviation) } else { 0.0 };
            let (dmean, variance) = (dstats[row], deviation * deviation);
            simd!({
                for (((dlogit, dx), &x), &a) in dlogits.iter_mut().zip(dx).zip(x).zip(attention) {
                    let z = x - mean;
                    *dlogit = a * (dmean * z + v * (z * z - variance));
                    *dx = a * (dmean + 2.0 * v * z);
                }
            });
        });
        Ok(())
    }
}

/// Not `max`: NaN must stay visible.
#[inline(always)]
fn at_least(variance: f32, floor: f32) -> f32 {
    if variance < floor { floor } else { variance }
}

/// Rows of length n per task.
fn rows_per_task(n: usize) -> usize {
    (SERIAL / n).max(1)
}

/// Where row (channel, item, height) of an activation puts its mean in a `[channels · height, batch]` vector.
fn slot(shape: Shape, row: usize) -> usize {
    let (height, item, channel) =
        (row % shape.height, row / shape.height % shape.batch, row / (shape.height * shape.batch));
    (channel * shape.height + height) * shape.batch + item
}
