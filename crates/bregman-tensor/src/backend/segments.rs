//! Statistics over segments of an item, and factors for each of them: the context-aware mask of CAM++.

use super::DeviceMemory;
use crate::{Result, Shape, View, ViewMut};

/// Kernels over the segments of a signal: `length` frames each, the last one of an item what is left. One value per
/// channel and segment is a vector whose items are all segments of the first item, then those of the second, …
pub trait Segments: DeviceMemory {
    /// `context[c, (b, s)] = mean of x[c, b, …] + mean of its frames in segment s`
    fn segment_context(&self, x: View<Self>, length: usize, context: ViewMut<Self>) -> Result<()>;
    /// Adds the gradient of [`Segments::segment_context`] to `dx`.
    fn segment_context_backward(&self, dcontext: View<Self>, length: usize, dx: ViewMut<Self>) -> Result<()>;
    /// `y[c, b, t] = gate[c, (b, segment of t)] · x[c, b, t]`
    fn segment_gate(&self, x: View<Self>, gate: View<Self>, length: usize, y: ViewMut<Self>) -> Result<()>;
    /// Gradients of [`Segments::segment_gate`]: `dgate` sums x · dy over a segment, `dx = gate · dy`.
    fn segment_gate_backward(
        &self,
        x: View<Self>,
        gate: View<Self>,
        dy: View<Self>,
        length: usize,
        dgate: ViewMut<Self>,
        dx: ViewMut<Self>,
    ) -> Result<()>;
}

impl Shape {
    /// Segments of `length` frames that an item has.
    pub fn segments(&self, length: usize) -> usize {
        self.width.div_ceil(length)
    }

    /// One value per channel and segment of a signal.
    pub fn per_segment(&self, length: usize) -> Self {
        Self::vector(self.channels, self.batch * self.segments(length))
    }
}
