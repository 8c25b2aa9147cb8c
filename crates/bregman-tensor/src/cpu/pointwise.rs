//! Kernels over values one by one: copies, sums, activations, clipping.

use bregman_base::lanes;
use bregman_base::math::sigmoid;
use rayon::prelude::*;

use super::Buffer;
use super::math::{SERIAL, simd, sum};
use crate::{Activation, Shape};

/// Values per task.
const CHUNK: usize = SERIAL;

/// `f(a, &mut b)` for all pairs.
pub(super) fn zip(a: &[f32], b: &mut [f32], f: impl Fn(f32, &mut f32) + Sync + Send) {
    assert_eq!(a.len(), b.len(), "pointwise operands");
    let work = |(a, b): (&[f32], &mut [f32])| simd!(a.iter().zip(b).for_each(|(&a, b)| f(a, b)));
    if a.len() <= CHUNK { work((a, b)) } else { a.par_chunks(CHUNK).zip(b.par_chunks_mut(CHUNK)).for_each(work) }
}

/// `f(a, b, &mut c)` for all triples.
pub(super) fn zip2(a: &[f32], b: &[f32], c: &mut [f32], f: impl Fn(f32, f32, &mut f32) + Sync + Send) {
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

/// `x = f(x)`
pub(super) fn activate(f: Activation, x: &mut [f32]) {
    match f {
        // not `max`: NaN must stay visible
        Activation::Relu => map(x, |x| if x < 0.0 { 0.0 } else { x }),
        Activation::Sigmoid => map(x, sigmoid),
    }
}

/// `d = f′ · d`, with f′ from the result y.
pub(super) fn activate_backward(f: Activation, y: &[f32], d: &mut [f32]) {
    match f {
        Activation::Relu => zip(y, d, |y, d| *d = if y > 0.0 { *d } else { 0.0 }),
        Activation::Sigmoid => zip(y, d, |y, d| *d *= y * (1.0 - y)),
    }
}

/// `[first, second, rest…]` → `[second, first, rest…]`
pub(super) fn swap_leading_axes(from: &[f32], first: usize, second: usize, to: &mut [f32]) {
    let rest = from.len() / (first * second).max(1);
    for i in 0..first {
        for j in 0..second {
            to[(j * first + i) * rest..][..rest].copy_from_slice(&from[(i * second + j) * rest..][..rest]);
        }
    }
}

/// `[batch, width, features]` → `[channels, batch, height, width]`, where channels · height are the features, one of
/// the two being 1.
pub(super) fn transpose_items(from: &[f32], shape: Shape, to: &mut [f32]) {
    let Shape { channels, batch, height, width } = shape;
    assert!(channels == 1 || height == 1, "frames of {shape:?}");
    let features = channels * height;
    // a signal's features lie a whole batch apart, a map's only a row
    let (item_stride, feature_stride) = if height == 1 { (width, batch * width) } else { (height * width, width) };
    for (index, frame) in from.chunks_exact(features).enumerate() {
        let start = index / width * item_stride + index % width;
        frame.iter().enumerate().for_each(|(feature, &value)| to[start + feature * feature_stride] = value);
    }
}

/// Scales all gradients to a joint norm of at most `limit`; returns the norm before.
pub(super) fn clip(gradients: &mut [&mut Buffer], limit: f32) -> f32 {
    // f64 partial sums in a fixed order: the norm is the same on any number of threads
    let square = |chunk: &[f32]| f64::from(simd!(sum(chunk.len(), |i| chunk[i] * chunk[i])));
    let total: f64 = gradients.iter().map(|gradient| gradient.chunks(CHUNK).map(square).sum::<f64>()).sum();
    let norm = total.sqrt() as f32;
    if norm > limit {
        let factor = limit / norm;
        gradients.iter_mut().for_each(|gradient| map(gradient, |g| g * factor));
    }
    norm
}

/// Whether no value is NaN or infinite.
pub(super) fn all_finite(x: &[f32]) -> bool {
    x.par_chunks(CHUNK).all(|chunk| simd!(lanes::all_finite(chunk)))
}
