//! Gates, moments and attention.

use bregman_tensor::constants::POOL_EPSILON;
use bregman_tensor::{Activation, Backend, Shape, Spread, Tensor};

use super::check;
use crate::harness::{Random, poisoned, tensor, values};

pub(super) fn squeeze_excitation<B: Backend>(backend: &B) {
    for shape in [Shape::signal(3, 1, 1), Shape::signal(5, 2, 7), Shape::signal(17, 3, 301)] {
        let vector = Shape::vector(shape.channels, shape.batch);
        let mut random = Random(9);
        let inputs = [random.values(shape.len()), random.values(vector.len()), random.values(shape.len())];
        // y = residual + sigmoid(gate + relu(mean(x) + 3)) · x, the gate an input of its own
        let run = |inputs: &[Vec<f32>]| {
            let [x, residual] = [0, 2].map(|i| tensor(backend, shape, &inputs[i]));
            let (mut mean, mut gate) = (poisoned(backend, vector), poisoned(backend, vector));
            backend.mean_forward(x.view(), mean.view_mut()).unwrap();
            backend.accumulate(tensor(backend, vector, &vec![3.0; vector.len()]).view(), mean.view_mut()).unwrap();
            backend.activate(Activation::Relu, mean.view_mut()).unwrap();
            backend.add(mean.view(), tensor(backend, vector, &inputs[1]).view(), gate.view_mut()).unwrap();
            backend.activate(Activation::Sigmoid, gate.view_mut()).unwrap();
            let mut y = poisoned(backend, shape);
            backend.gate_forward(x.view(), gate.view(), residual.view(), y.view_mut()).unwrap();
            (x, mean, gate, y)
        };
        check(
            &format!("gate of {shape:?}"),
            1e-2,
            &inputs,
            |inputs| values(backend, &run(inputs).3),
            |inputs, c| {
                let (x, mean, gate, _) = run(inputs);
                let dy = tensor(backend, shape, c);
                let mut dgate = poisoned(backend, vector);
                backend.gate_backward_gate(x.view(), dy.view(), dgate.view_mut()).unwrap();
                backend.activate_backward(Activation::Sigmoid, gate.view(), dgate.view_mut()).unwrap();
                let mut dmean = tensor(backend, vector, &values(backend, &dgate));
                backend.activate_backward(Activation::Relu, mean.view(), dmean.view_mut()).unwrap();
                let mut dx = poisoned(backend, shape);
                backend.gate_backward_input(gate.view(), dmean.view(), dy.view(), dx.view_mut()).unwrap();
                vec![values(backend, &dx), values(backend, &dgate), c.to_vec()]
            },
        );
    }
}

pub(super) fn statistics<B: Backend>(backend: &B) {
    for shape in
        [Shape::signal(3, 1, 7), Shape::signal(5, 2, 301), Shape { channels: 3, batch: 2, height: 4, width: 9 }]
    {
        for spread in [Spread::Raised(POOL_EPSILON), Spread::Floored(1e-12)] {
            let stats = Shape::vector(2 * shape.channels * shape.height, shape.batch);
            let forward = |x: &Tensor<B>| {
                let mut y = poisoned(backend, stats);
                backend.moments_forward(x.view(), spread, y.view_mut()).unwrap();
                y
            };
            check(
                &format!("moments of {shape:?}, {spread:?}"),
                1e-2,
                &[Random(2).values(shape.len())],
                |inputs| values(backend, &forward(&tensor(backend, shape, &inputs[0]))),
                |inputs, c| {
                    let x = tensor(backend, shape, &inputs[0]);
                    let (y, dy) = (forward(&x), tensor(backend, stats, c));
                    let mut dx = poisoned(backend, shape);
                    backend.moments_backward(x.view(), y.view(), dy.view(), spread, false, dx.view_mut()).unwrap();
                    let mut sum = tensor(backend, shape, &inputs[0]);
                    backend.moments_backward(x.view(), y.view(), dy.view(), spread, true, sum.view_mut()).unwrap();
                    let (dx, sum) = (values(backend, &dx), values(backend, &sum));
                    assert!(
                        sum.iter().zip(&dx).zip(&inputs[0]).all(|((sum, dx), x)| (sum - dx - x).abs() < 1e-5),
                        "adding"
                    );
                    vec![dx]
                },
            );
        }
    }
    constant_without_epsilon(backend);
    constants_are_at_the_floor(backend);
    for shape in [Shape::signal(3, 1, 1), Shape::signal(3, 1, 7), Shape::signal(17, 2, 301)] {
        let (vector, stats) =
            (Shape::vector(shape.channels, shape.batch), Shape::vector(2 * shape.channels, shape.batch));
        let mut random = Random(4);
        let inputs = [random.values(shape.len()), random.values(shape.len()), random.values(vector.len())];
        // attention = tanh(h + context), statistics of x under it
        let run = |inputs: &[Vec<f32>]| {
            let [x, mut h] = [0, 1].map(|i| tensor(backend, shape, &inputs[i]));
            let context = tensor(backend, vector, &inputs[2]);
            backend.context_tanh(Some(context.view()), h.view_mut()).unwrap();
            let mut attention = tensor(backend, shape, &values(backend, &h));
            let mut y = poisoned(backend, stats);
            backend.attentive_forward(x.view(), attention.view_mut(), POOL_EPSILON, y.view_mut()).unwrap();
            (x, h, attention, y)
        };
        check(
            &format!("attentive statistics of {shape:?}"),
            1e-2,
            &inputs,
            |inputs| values(backend, &run(inputs).3),
            |inputs, c| {
                let (x, h, attention, y) = run(inputs);
                let dy = tensor(backend, stats, c);
                let (mut d, mut dx, mut dcontext) =
                    (poisoned(backend, shape), poisoned(backend, shape), poisoned(backend, vector));
                let (floor, found) = (POOL_EPSILON, y.view());
                backend
                    .attentive_backward(
                        x.view(),
                        attention.view(),
                        found,
                        dy.view(),
                        floor,
                        d.view_mut(),
                        dx.view_mut(),
                    )
                    .unwrap();
                backend.context_tanh_backward(h.view(), d.view_mut(), Some(dcontext.view_mut())).unwrap();
                vec![values(backend, &dx), values(backend, &d), values(backend, &dcontext)]
            },
        );
    }
}

/// A deviation of 0 has no slope: nothing is divided by it.
fn constant_without_epsilon<B: Backend>(backend: &B) {
    let (shape, stats) = (Shape::signal(8, 2, 4), Shape::vector(16, 2));
    let x = tensor(backend, shape, &vec![0.5; shape.len()]);
    let mut y = poisoned(backend, stats);
    let plain = Spread::Raised(0.0);
    backend.moments_forward(x.view(), plain, y.view_mut()).unwrap();
    let both = |mean: f32, deviation: f32| -> Vec<f32> {
        (0..stats.len()).map(|i| if i % 16 < 8 { mean } else { deviation }).collect()
    };
    assert_eq!(values(backend, &y), both(0.5, 0.0));
    let mut dx = poisoned(backend, shape);
    let dy = tensor(backend, stats, &both(2.0, 3.0));
    backend.moments_backward(x.view(), y.view(), dy.view(), plain, false, dx.view_mut()).unwrap();
    assert_eq!(values(backend, &dx), vec![0.5; shape.len()]);
}

/// However large a constant is, and whatever weighs its frames, its deviation is the floor's: no rounding error shows.
fn constants_are_at_the_floor<B: Backend>(backend: &B) {
    let (shape, stats, floor) = (Shape::signal(8, 2, 301), Shape::vector(16, 2), 1e-12f32);
    let x = tensor(backend, shape, &vec![3.3; shape.len()]);
    let mut attention = tensor(backend, shape, &Random(3).values(shape.len()));
    let mut y = poisoned(backend, stats);
    backend.attentive_forward(x.view(), attention.view_mut(), floor, y.view_mut()).unwrap();
    let expected: Vec<f32> = (0..stats.len()).map(|i| if i % 16 < 8 { 3.3 } else { 1e-6 }).collect();
    let apart = values(backend, &y).iter().zip(&expected).fold(0.0f32, |apart, (a, b)| apart.max((a / b - 1.0).abs()));
    assert!(apart <= 1e-6, "{apart:e}");
}
