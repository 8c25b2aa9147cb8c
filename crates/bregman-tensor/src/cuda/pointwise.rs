//! Kernels over values one by one.

use super::{Cuda, Rows};
use crate::{Activation, Result, View, ViewMut};

pub(super) fn copy(cuda: &Cuda, from: View<Cuda>, to: ViewMut<Cuda>) -> Result<()> {
    unary(cuda, "copy", cuda.rows(from), cuda.rows_mut(&to))
}

pub(super) fn add(cuda: &Cuda, a: View<Cuda>, b: View<Cuda>, sum: ViewMut<Cuda>) -> Result<()> {
    binary(cuda, "add", cuda.rows(a), cuda.rows(b), cuda.rows_mut(&sum))
}

pub(super) fn accumulate(cuda: &Cuda, from: View<Cuda>, to: ViewMut<Cuda>) -> Result<()> {
    let to = cuda.rows_mut(&to);
    binary(cuda, "add", to, cuda.rows(from), to)
}

pub(super) fn activate(cuda: &Cuda, f: Activation, x: ViewMut<Cuda>) -> Result<()> {
    let x = cuda.rows_mut(&x);
    let name = match f {
        Activation::Relu => "relu",
        Activation::Sigmoid => "sigmoid",
    };
    unary(cuda, name, x, x)
}

pub(super) fn activate_backward(cuda: &Cuda, f: Activation, y: View<Cuda>, d: ViewMut<Cuda>) -> Result<()> {
    let d = cuda.rows_mut(&d);
    let name = match f {
        Activation::Relu => "relu_backward",
        Activation::Sigmoid => "sigmoid_backward",
    };
    binary(cuda, name, cuda.rows(y), d, d)
}

pub(super) fn all_finite(cuda: &Cuda, x: View<Cuda>) -> Result<bool> {
    let x = cuda.rows(x);
    let variant = x.variant();
    let mut scratch = cuda.scratch();
    let counts = scratch.counts.at_least(&cuda.device, 4)?;
    counts.upload(&[0u32])?;
    let launch =
        cuda.device.variant("count_non_finite", variant).arg(x.pointer).arg(x.stride).arg(x.rows).arg(x.channels);
    // SAFETY: the count is one word.
    unsafe { cuda.over_rows(launch.arg(counts.pointer()), variant, x.rows, x.channels)? };
    let mut count = [0u32];
    counts.download(&mut count)?;
    Ok(count == [0])
}

pub(super) fn unary(cuda: &Cuda, name: &'static str, from: Rows, to: Rows) -> Result<()> {
    assert_eq!((from.rows, from.channels), (to.rows, to.channels), "{name}");
    let variant = from.variant_with(&[to]);
    let launch = cuda.device.variant(name, variant);
    let launch = launch.arg(from.pointer).arg(from.stride).arg(to.pointer).arg(to.stride).arg(to.rows).arg(to.channels);
    // SAFETY: both views have these rows and channels.
    unsafe { cuda.over_rows(launch, variant, to.rows, to.channels) }
}

pub(super) fn binary(cuda: &Cuda, name: &'static str, a: Rows, b: Rows, to: Rows) -> Result<()> {
    assert_eq!((a.rows, a.channels, b.rows, b.channels), (to.rows, to.channels, to.rows, to.channels), "{name}");
    let variant = a.variant_with(&[b, to]);
    let launch = cuda.device.variant(name, variant).arg(a.pointer).arg(a.stride).arg(b.pointer).arg(b.stride);
    let launch = launch.arg(to.pointer).arg(to.stride).arg(to.rows).arg(to.channels);
    // SAFETY: all three views have these rows and channels.
    unsafe { cuda.over_rows(launch, variant, to.rows, to.channels) }
}
