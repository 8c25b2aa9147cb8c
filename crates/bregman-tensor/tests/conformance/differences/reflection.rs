//! Mirrored signals.

use bregman_tensor::{Backend, Shape};

use super::check;
use crate::harness::{Random, poisoned, tensor, values};

pub(super) fn mirrored<B: Backend>(backend: &B) {
    for (shape, edge) in [(Shape::signal(3, 1, 5), 4), (Shape::signal(17, 2, 61), 3), (Shape::signal(1, 1, 2), 1)] {
        let wide = Shape { width: shape.width + 2 * edge, ..shape };
        check(
            &format!("{shape:?} mirrored by {edge}"),
            0.5, // linear
            &[Random(8).values(shape.len())],
            |inputs| {
                let mut y = poisoned(backend, wide);
                backend.reflect(tensor(backend, shape, &inputs[0]).view(), y.view_mut()).unwrap();
                values(backend, &y)
            },
            |_, c| {
                let mut dx = poisoned(backend, shape);
                backend.reflect_backward(tensor(backend, wide, c).view(), false, dx.view_mut()).unwrap();
                vec![values(backend, &dx)]
            },
        );
    }
}
