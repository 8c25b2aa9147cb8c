//! Batch norm in all its orders with a ReLU and a residual.

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
        for (relu, with_residual) in
            [(Relu::Absent, false), (Relu::Before, false), (Relu::After, false), (Relu::After, true)]
        {
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
                let mut state = [0.0; 4].map(|fill| exact(backend, &vec![fill; shape.channels]));
                let mut y = poisoned(backend, shape);
                let [mean, inverse_std, running_mean, running_variance] = state.each_mut();
                let statistics = NormStatistics { mean, inverse_std, running_mean, running_variance };
                let norm = NormParams { scale: &scale, shift: &shift, relu };
                backend
                    .norm_train(x.view(), norm, statistics, with_residual.then(|| residual.view()), y.view_mut())
                    .unwrap();
                (x, y, scale, shift, state)
            };
            check(
                &format!("{relu:?}, residual {with_residual}, {shape:?}"),
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
                    let norm = NormParams { scale: &scale, shift: &shift, relu };
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
