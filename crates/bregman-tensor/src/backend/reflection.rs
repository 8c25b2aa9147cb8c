//! Signals that continue beyond their ends as if mirrored there.

use super::DeviceMemory;
use crate::{Result, View, ViewMut};

/// Kernels that mirror signals. A convolution without padding over the mirrored signal is one with padding by
/// reflection.
pub trait Reflection: DeviceMemory {
    /// `y` is `x` with as many frames more on each side as its width says: the frame k before the first is x's frame k,
    /// the frame k after the last that k before the last. A signal must have more frames than are mirrored.
    fn reflect(&self, x: View<Self>, y: ViewMut<Self>) -> Result<()>;
    /// Gradient of [`Reflection::reflect`], overwriting `dx` or adding to it.
    fn reflect_backward(&self, dy: View<Self>, add: bool, dx: ViewMut<Self>) -> Result<()>;
}
