//! Segments: a whole number of them, a shorter one at the end, a single one.

use bregman_tensor::{Backend, Shape};

use super::cases::Cases;

impl<B: Backend> Cases<'_, B> {
    pub(super) fn segments(&mut self, shape: Shape, length: usize) {
        let backend = self.backend;
        let vector = shape.per_segment(length);
        // channel ranges of wider tensors, as in a dense block
        let wide = shape.with_channels(shape.channels + 8);
        let (x, gate, dy) = (self.tensor(wide), self.tensor(vector), self.tensor(wide));
        let (x, dy) = (x.channels(8..wide.channels), dy.channels(8..wide.channels));
        let mut context = self.poisoned(vector);
        backend.segment_context(x, length, context.view_mut()).unwrap();
        self.keep("context of segments", &context);
        let mut dx = self.tensor(shape);
        backend.segment_context_backward(gate.view(), length, dx.view_mut()).unwrap();
        self.keep("context of segments, gradient adds", &dx);
        let mut y = self.poisoned(shape);
        backend.segment_gate(x, gate.view(), length, y.view_mut()).unwrap();
        self.keep("gate of segments", &y);
        let mut dgate = self.poisoned(vector);
        backend.segment_gate_backward(x, gate.view(), dy, length, dgate.view_mut(), dx.view_mut()).unwrap();
        self.keep("gate of segments, its gradient", &dgate);
        self.keep("gate of segments, input's gradient", &dx);
    }
}
