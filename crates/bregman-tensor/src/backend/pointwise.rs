//! Values one by one: sums, copies, activations.

use super::DeviceMemory;
use crate::{Result, View, ViewMut};

/// Pointwise non-linearities outside of a batch norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `max(x, 0)`
    Relu,
    /// `1 / (1 + exp(−x))`
    Sigmoid,
}

/// Kernels over values one by one.
pub trait PointwiseOps: DeviceMemory {
    /// `to = from`
    fn copy(&self, from: View<Self>, to: ViewMut<Self>) -> Result<()>;
    /// `sum = a + b`
    fn add(&self, a: View<Self>, b: View<Self>, sum: ViewMut<Self>) -> Result<()>;
    /// Adds `from` to `to`.
    fn accumulate(&self, from: View<Self>, to: ViewMut<Self>) -> Result<()>;
    /// `x = f(x)`
    fn activate(&self, f: Activation, x: ViewMut<Self>) -> Result<()>;
    /// Gradient of [`PointwiseOps::activate`] from its result `y`: `d` holds dy and becomes dx.
    fn activate_backward(&self, f: Activation, y: View<Self>, d: ViewMut<Self>) -> Result<()>;
    /// Whether no value is NaN or infinite.
    fn all_finite(&self, x: View<Self>) -> Result<bool>;
}
