//! Segments of a signal. See kernels/segments.cu.

use super::Cuda;
use crate::{Result, Segments, View, ViewMut};

impl Segments for Cuda {
    fn segment_context(&self, x: View<Self>, length: usize, context: ViewMut<Self>) -> Result<()> {
        let (shape, x, context) = (x.shape, self.rows(x), self.rows_mut(&context));
        let variant = x.variant();
        let launch = self.device.variant("segment_context", variant).view(x).view(context);
        let launch = launch.arg(shape.width as u32).arg(length as u32).arg(x.channels);
        // SAFETY: `context` has a row per segment of every item of x.
        unsafe { self.over_items(launch, variant, shape.batch * shape.segments(length), x.channels, 1) }
    }

    fn segment_context_backward(&self, dcontext: View<Self>, length: usize, dx: ViewMut<Self>) -> Result<()> {
        let (shape, dcontext, dx) = (dx.shape, self.rows(dcontext), self.rows_mut(&dx));
        let variant = dx.variant();
        let launch = self.device.variant("segment_context_backward", variant).view(dcontext).view(dx);
        let launch = launch.arg(shape.width as u32).arg(length as u32).arg(dx.channels);
        // SAFETY: `dcontext` has a row per segment of every item of dx.
        unsafe { self.over_items(launch, variant, shape.batch * shape.segments(length), dx.channels, 0) }
    }

    fn segment_gate(&self, x: View<Self>, gate: View<Self>, length: usize, y: ViewMut<Self>) -> Result<()> {
        let (shape, x, gate, y) = (x.shape, self.rows(x), self.rows(gate), self.rows_mut(&y));
        let variant = x.variant_with(&[y]);
        let launch = self.device.variant("segment_gate", variant).view(x).view(gate).view(y);
        let launch = launch.arg(shape.width as u32).arg(length as u32).arg(x.channels);
        // SAFETY: the maps are alike; `gate` has a row per segment.
        unsafe { self.over_items(launch, variant, shape.batch * shape.segments(length), x.channels, 0) }
    }

    fn segment_gate_backward(
        &self,
        x: View<Self>,
        gate: View<Self>,
        dy: View<Self>,
        length: usize,
        dgate: ViewMut<Self>,
        dx: ViewMut<Self>,
    ) -> Result<()> {
        let (shape, x, gate, dy) = (x.shape, self.rows(x), self.rows(gate), self.rows(dy));
        let (dgate, dx) = (self.rows_mut(&dgate), self.rows_mut(&dx));
        let variant = x.variant_with(&[dy, dx]);
        let launch = self.device.variant("segment_gate_backward", variant).view(x).view(gate).view(dy);
        let launch = launch.view(dgate).view(dx).arg(shape.width as u32).arg(length as u32).arg(x.channels);
        // SAFETY: the maps are alike; `gate` and `dgate` have a row per segment.
        unsafe { self.over_items(launch, variant, shape.batch * shape.segments(length), x.channels, 1) }
    }
}
