//! Kernels over values one by one: copies, sums, activations, clipping.

use bregman_base::lanes;
use bregman_base::math::sigmoid;
use rayon::prelude::*;

use super::math::{SERIAL, simd, sum};
use super::{Buffer, Cpu};
use crate::{Activation, Gradients, PointwiseOps, Result, View, ViewMut};

/// Values per task.
const CHUNK: usize = SERIAL;

/// `f(a, &mut b)` for all pairs.
fn zip(a: &[f32], b: &mut [f32], f: impl Fn(f32, &mut f32) + Sync + Send) {
    assert_eq!(a.len(), b.len(), "pointwise operands");
    let work = |(a, b): (&[f32], &mut [f32])| simd!(a.iter().zip(b).for_each(|(&a, b)| f(a, b)));
    if a.len() <= CHUNK { work((a, b)) } else { a.par_chunks(CHUNK).zip(b.par_chunks_mut(CHUNK)).for_each(work) }
}

/// `f(a, b, &mut c)` for all triples.
fn zip2(a: &[f32], b: &[f32], c: &mut [f32], f: impl Fn(f32, f32, &mut f32) + Sync + Send) {
    assert!(a.len() == b.len() && b.len() == c.len(), "pointwise operands");
    let work = |((a, b), c): ((&[f32], &[f32]), &mut [f32])| {
        simd!(a.iter().zip(b).zip(c).for_each(|((&a, &b), c)| f(a, b, c)))
    };
    if a.len() <= CHUNK {
        work(((a, b), c));
    } else {
        a.par_chunks(CHUNK).zip(b.par_chunks(CHUNK)).zip(c.par_chunks_mut(CHUNK)).for_each(work);
    }
}

fn map(x: &mut [f32], f: impl Fn(f32) -> f32 + Sync + Send) {
    let work = |x: &mut [f32]| simd!(x.iter_mut().for_each(|x| *x = f(*x)));
    if x.len() <= CHUNK { work(x) } else { x.par_chunks_mut(CHUNK).for_each(work) }
}

impl PointwiseOps for Cpu {
    fn copy(&self, from: View<Self>, to: ViewMut<Self>) -> Result<()> {
        zip(from.slice(), to.slice(), |from, to| *to = from);
        Ok(())
    }

    fn add(&self, a: View<Self>, b: View<Self>, sum: ViewMut<Self>) -> Result<()> {
        zip2(a.slice(), b.slice(), sum.slice(), |a, b, sum| *sum = a + b);
        Ok(())
    }

    fn accumulate(&self, from: View<Self>, to: ViewMut<Self>) -> Result<()> {
        zip(from.slice(), to.slice(), |from, to| *to += from);
        Ok(())
    }

    fn activate(&self, f: Activation, x: ViewMut<Self>) -> Result<()> {
        match f {
            // not `max`: NaN must stay visible
            Activation::Relu => map(x.slice(), |x| if x < 0.0 { 0.0 } else { x }),
            Activation::Sigmoid => map(x.slice(), sigmoid),
        }
        Ok(())
    }

    fn activate_backward(&self, f: Activation, y: View<Self>, d: ViewMut<Self>) -> Result<()> {
        match f {
            Activation::Relu => zip(y.slice(), d.slice(), |y, d| *d = if y > 0.0 { *d } else { 0.0 }),
            Activation::Sigmoid => zip(y.slice(), d.slice(), |y, d| *d *= y * (1.0 - y)),
        }
        Ok(())
    }

    fn all_finite(&self, x: View<Self>) -> Result<bool> {
        let finite = |chunk: &[f32]| simd!(lanes::all_finite(chunk));
        Ok(x.slice().par_chunks(CHUNK).all(finite))
    }
}

impl Gradients for Cpu {
    fn clip_later(&self, gradients: &mut [&mut Buffer], limit: f32) -> Result<Vec<f32>> {
        let squares: Vec<f64> = gradients.par_iter().map(|gradient| sum_of_squares(gradient)).collect();
        let norm = squares.iter().sum::<f64>().sqrt() as f32;
        if norm > limit {
            let factor = limit / norm;
            gradients.par_iter_mut().for_each(|gradient| map(gradient, |g| g * factor));
        }
        Ok(vec![norm])
    }
}

/// `Σ g²`: each chunk on one thread, then the chunks in order, so that it is the same on any number of threads.
fn sum_of_squares(gradient: &[f32]) -> f64 {
    let square = |chunk: &[f32]| f64::from(simd!(sum(chunk, |g| g * g)));
    let chunks: Vec<f64> = gradient.par_chunks(CHUNK).map(square).collect();
    chunks.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clipped_gradient_is_the_same_on_any_number_of_threads_and_each_value_that_times_one_factor() {
        let lengths = [5, 3 * CHUNK + 17, CHUNK];
        let gradients = || lengths.map(|len| (0..len).map(|i| 0.37 * (i as f32).sin()).collect::<Vec<f32>>());
        let clipped = |threads: usize, limit: f32| {
            let mut buffers = gradients().map(|values| {
                let mut buffer = Buffer::zeros(values.len());
                buffer.copy_from_slice(&values);
                buffer
            });
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool");
            let norm = pool.install(|| Cpu::new().clip_later(&mut buffers.each_mut(), limit)).unwrap()[0];
            (norm, buffers.map(|buffer| buffer.to_vec()))
        };
        let (norm, one) = clipped(1, 1.0);
        let exact = gradients().concat().iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
        assert!((f64::from(norm) - exact).abs() < 1e-6 * exact, "{norm}, exactly {exact}");
        assert!(one == gradients().map(|gradient| gradient.iter().map(|g| g * (1.0 / norm)).collect::<Vec<f32>>()));
        for threads in [2, 3, 7] {
            assert!(clipped(threads, 1.0) == (norm, one.clone()), "{threads} threads give other bits than one");
        }
        assert!(clipped(2, norm) == (norm, gradients()), "at the limit nothing changes");
    }
}
