//! Contexts and gates of segments.

use bregman_tensor::{Backend, Shape};

use super::check;
use crate::harness::{Random, poisoned, tensor, values};

pub(super) fn masks<B: Backend>(backend: &B) {
    for (shape, length) in
        [(Shape::signal(3, 1, 7), 3), (Shape::signal(17, 2, 149), 100), (Shape::signal(5, 2, 9), 100)]
    {
        let vector = shape.per_segment(length);
        let mut random = Random(6);
        let inputs = [random.values(shape.len()), random.values(vector.len())];
        // y = (context(x) + gate) of the segment · x
        let run = |inputs: &[Vec<f32>]| {
            let x = tensor(backend, shape, &inputs[0]);
            let mut gate = poisoned(backend, vector);
            backend.segment_context(x.view(), length, gate.view_mut()).unwrap();
            backend.accumulate(tensor(backend, vector, &inputs[1]).view(), gate.view_mut()).unwrap();
            let mut y = poisoned(backend, shape);
            backend.segment_gate(x.view(), gate.view(), length, y.view_mut()).unwrap();
            (x, gate, y)
        };
        check(
            &format!("segments of {length} in {shape:?}"),
            1e-2,
            &inputs,
            |inputs| values(backend, &run(inputs).2),
            |inputs, c| {
                let (x, gate, _) = run(inputs);
                let (dy, mut dgate, mut dx) =
                    (tensor(backend, shape, c), poisoned(backend, vector), poisoned(backend, shape));
                backend
                    .segment_gate_backward(x.view(), gate.view(), dy.view(), length, dgate.view_mut(), dx.view_mut())
                    .unwrap();
                backend.segment_context_backward(dgate.view(), length, dx.view_mut()).unwrap();
                vec![values(backend, &dx), values(backend, &dgate)]
            },
        );
    }
}
