//! Batch norm in all its orders with a ReLU and a residual.

use bregman_tensor::constants::NORM_EPSILON;
use bregman_tensor::{Backend, NormGradients, NormParams, NormStatistics, Relu, Shape};

use super::check;
use crate::harness::{Random, exact, poisoned, read_exact, tensor, values};

pub(super) fn batch_norms<B: Backend>(backend: &B) {
    for shape in [
        Shape::vector(3, 5),
        Shape::signal(7, 1, 7),
        Shape::signal(5, 3, 301),
        Shape { channels: 3, batch: 2, height: 5, width: 7 },
    ] {
        let orders = [(Relu::Absent, false), (Relu::Before, false), (Relu::After, false), (Relu::After, true)];
        for ((relu, with_residual), fixed) in orders.into_iter().flat_map(|order| [(order, false), (order, true)]) {
            let mut random = Random(5);
            // the ReLU after the norm has its kink where the output is zero: a large shift of either sign per channel
            // keeps away from it
            let shift = (0..shape.channels)
                .map(|c| if relu == Relu::After { if c % 3 == 1 { -9.0 } else { 9.0 } } else { 0.3 })
                .collect();
            let inputs = [
                random.away_from_zero(shape.len()),
                random.away_from_zero(shape.channels),
                shift,
                random.values(shape.len()),
            ];
            let run = |inputs: &[Vec<f32>]| {
                let x = tensor(backend, shape, &inputs[0]);
                let residual = tensor(backend, shape, &inputs[3]);
                let [scale, shift] = [1, 2].map(|i| exact(backend, &inputs[i]));
                // fixed statistics: mean and 1/√(variance + ε), then the running ones they are of
                let state = if fixed { [0.2, 1.0 / (0.7f32 + NORM_EPSILON).sqrt(), 0.2, 0.7] } else { [0.0; 4] };
                let mut state = state.map(|fill| exact(backend, &vec![fill; shape.channels]));
                let mut y = poisoned(backend, shape);
                let [mean, inverse_std, running_mean, running_variance] = state.each_mut();
                let norm = NormParams { scale: &scale, shift: &shift, relu, fixed };
                let residual = with_residual.then(|| residual.view());
                if fixed {
                    backend.norm_eval(x.view(), norm, running_mean, running_variance, residual, y.view_mut()).unwrap();
                } else {
                    let statistics = NormStatistics { mean, inverse_std, running_mean, running_variance };
                    backend.norm_train(x.view(), norm, statistics, residual, y.view_mut()).unwrap();
                }
                (x, y, scale, shift, state)
            };
            check(
                &format!("{relu:?}, residual {with_residual}, fixed {fixed}, {shape:?}"),
                5e-3,
                &inputs,
                |inputs| values(backend, &run(inputs).1),
                |inputs, c| {
                    let (x, y, scale, shift, [mean, inverse_std, ..]) = run(inputs);
                    let mut d = tensor(backend, shape, c);
                    let mut dresidual = poisoned(backend, shape);
                    let [mut dscale, mut dshift, mut dbias] =
                        [0; 3].map(|_| exact(backend, &vec![f32::NAN; shape.channels]));
                    let into = NormGradients { scale: &mut dscale, shift: &mut dshift, bias: Some(&mut dbias) };
                    let norm = NormParams { scale: &scale, shift: &shift, relu, fixed };
                    let target = with_residual.then(|| dresidual.view_mut());
                    backend
                        .norm_backward(x.view(), y.view(), norm, &mean, &inverse_std, d.view_mut(), target, into)
                        .unwrap();
                    let mut sum = exact(backend, &vec![f32::NAN; shape.channels]);
                    backend.conv_backward_bias(d.view(), &mut sum).unwrap();
                    let [dbias, sum, dscale, dshift] =
                        [&dbias, &sum, &dscale, &dshift].map(|buffer| read_exact(backend, buffer, shape.channels));
                    let apart = dbias.iter().zip(&sum).fold(0.0f32, |apart, (a, b)| apart.max((a - b).abs()));
                    assert!(apart <= 1e-4, "the gradient of a bias before the norm: {apart:e} apart");
                    let mut gradients = vec![values(backend, &d), dscale, dshift];
                    if with_residual {
                        gradients.push(values(backend, &dresidual));
                    }
                    gradients
                },
            );
        }
    }
}
