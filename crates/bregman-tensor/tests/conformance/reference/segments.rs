//! Segments of a signal.

use bregman_tensor::{Result, Segments, Shape, View, ViewMut};

use super::{Read, Reference, Write};

/// Frames of segment `s`.
fn frames(shape: Shape, length: usize, s: usize) -> std::ops::Range<usize> {
    s * length..shape.width.min((s + 1) * length)
}

/// The mean of `f` over frames.
fn mean(frames: std::ops::Range<usize>, f: impl Fn(usize) -> f64) -> f64 {
    let count = frames.len() as f64;
    frames.map(f).sum::<f64>() / count
}

impl Segments for Reference {
    fn segment_context(&self, x: View<Self>, length: usize, mut context: ViewMut<Self>) -> Result<()> {
        let segments = x.shape.segments(length);
        context.fill(|item, c, _, _| {
            let value = |t| x.get(item / segments, c, t);
            mean(0..x.shape.width, value) + mean(frames(x.shape, length, item % segments), value)
        });
        Ok(())
    }

    fn segment_context_backward(&self, dcontext: View<Self>, length: usize, mut dx: ViewMut<Self>) -> Result<()> {
        let (shape, segments) = (dx.shape, dx.shape.segments(length));
        dx.fill(|b, c, t, before| {
            let d = |s: usize| dcontext.get(b * segments + s, c, 0);
            let s = t / length;
            before
                + (0..segments).map(d).sum::<f64>() / shape.width as f64
                + d(s) / frames(shape, length, s).len() as f64
        });
        self.store(&mut dx)
    }

    fn segment_gate(&self, x: View<Self>, gate: View<Self>, length: usize, mut y: ViewMut<Self>) -> Result<()> {
        let segments = x.shape.segments(length);
        y.fill(|b, c, t, _| gate.get(b * segments + t / length, c, 0) * x.get(b, c, t));
        self.store(&mut y)
    }

    fn segment_gate_backward(
        &self,
        x: View<Self>,
        gate: View<Self>,
        dy: View<Self>,
        length: usize,
        mut dgate: ViewMut<Self>,
        mut dx: ViewMut<Self>,
    ) -> Result<()> {
        let (shape, segments) = (x.shape, x.shape.segments(length));
        dgate.fill(|item, c, _, _| {
            let product = |t| x.get(item / segments, c, t) * dy.get(item / segments, c, t);
            frames(shape, length, item % segments).map(product).sum()
        });
        dx.fill(|b, c, t, _| gate.get(b * segments + t / length, c, 0) * dy.get(b, c, t));
        self.store(&mut dx)
    }
}
