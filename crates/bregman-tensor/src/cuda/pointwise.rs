//! Kernels over values one by one.

use super::{Cuda, Rows};
use crate::{Activation, PointwiseOps, Result, View, ViewMut};

impl PointwiseOps for Cuda {
    fn copy(&self, from: View<Self>, to: ViewMut<Self>) -> Result<()> {
        unary(self, "copy", self.rows(from), self.rows_mut(&to))
    }

    fn add(&self, a: View<Self>, b: View<Self>, sum: ViewMut<Self>) -> Result<()> {
        binary(self, "add", self.rows(a), self.rows(b), self.rows_mut(&sum))
    }

    fn accumulate(&self, from: View<Self>, to: ViewMut<Self>) -> Result<()> {
        let to = self.rows_mut(&to);
        binary(self, "add", to, self.rows(from), to)
    }

    fn activate(&self, f: Activation, x: ViewMut<Self>) -> Result<()> {
        let x = self.rows_mut(&x);
        let name = match f {
            Activation::Relu => "relu",
            Activation::Sigmoid => "sigmoid",
        };
        unary(self, name, x, x)
    }

    fn activate_backward(&self, f: Activation, y: View<Self>, d: ViewMut<Self>) -> Result<()> {
        let d = self.rows_mut(&d);
        let name = match f {
            Activation::Relu => "relu_backward",
            Activation::Sigmoid => "sigmoid_backward",
        };
        binary(self, name, self.rows(y), d, d)
    }

    fn all_finite(&self, x: View<Self>) -> Result<bool> {
        let x = self.rows(x);
        let variant = x.variant();
        let mut scratch = self.scratch();
        let counts = scratch.counts.at_least(&self.device, 4)?;
        counts.upload(&[0u32])?;
        let launch = self.device.variant("count_non_finite", variant).view(x).arg(x.rows).arg(x.channels);
        // SAFETY: the count is one word.
        unsafe { self.over_rows(launch.arg(counts.pointer()), variant, x.rows, x.channels)? };
        let mut count = [0u32];
        counts.download(&mut count)?;
        Ok(count == [0])
    }
}

pub(super) fn unary(cuda: &Cuda, name: &'static str, from: Rows, to: Rows) -> Result<()> {
    assert_eq!((from.rows, from.channels), (to.rows, to.channels), "{name}");
    let variant = from.variant_with(&[to]);
    let launch = cuda.device.variant(name, variant).view(from).view(to).arg(to.rows).arg(to.channels);
    // SAFETY: both views have these rows and channels.
    unsafe { cuda.over_rows(launch, variant, to.rows, to.channels) }
}

pub(super) fn binary(cuda: &Cuda, name: &'static str, a: Rows, b: Rows, to: Rows) -> Result<()> {
    assert_eq!((a.rows, a.channels, b.rows, b.channels), (to.rows, to.channels, to.rows, to.channels), "{name}");
    let variant = a.variant_with(&[b, to]);
    let launch = cuda.device.variant(name, variant).view(a).view(b).view(to).arg(to.rows).arg(to.channels);
    // SAFETY: all three views have these rows and channels.
    unsafe { cuda.over_rows(launch, variant, to.rows, to.channels) }
}
