//! Mirrored signals: short ones, whose ends meet, and long ones.

use bregman_tensor::{Backend, Shape};

use super::cases::Cases;

impl<B: Backend> Cases<'_, B> {
    pub(super) fn reflection(&mut self, shape: Shape, edge: usize) {
        let (backend, mirrored) = (self.backend, Shape { width: shape.width + 2 * edge, ..shape });
        // a channel range of a wider tensor, as a part of Res2
        let wide = self.tensor(shape.with_channels(shape.channels + 8));
        let mut y = self.poisoned(mirrored);
        backend.reflect(wide.channels(8..wide.shape().channels), y.view_mut()).unwrap();
        self.keep("mirrored", &y);
        let (dy, mut dx) = (self.tensor(mirrored), self.tensor(shape));
        backend.reflect_backward(dy.view(), true, dx.view_mut()).unwrap();
        self.keep("mirrored, gradient adds", &dx);
        backend.reflect_backward(dy.view(), false, dx.view_mut()).unwrap();
        self.keep("mirrored, gradient", &dx);
    }
}
