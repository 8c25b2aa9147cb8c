//! Every backward kernel against finite differences of its forward kernel, on odd sizes.
//!
//! For outputs y(x) and random c, v: (⟨c, y(x + h·v)⟩ − ⟨c, y(x − h·v)⟩) / 2h must equal ⟨∇ₓ⟨c, y⟩, v⟩.

use bregman_tensor::{
    Activation, Backend, Block, Conv, Copies, Cpu, Margin, Norm, NormGradients, NormStatistics, Relu, Shape, Start,
    Storage, Tensor, Weight, WeightPolicy,
};

/// A small generator, so that a failing case can be repeated.
struct Random(u64);

impl Random {
    fn values(&mut self, count: usize) -> Vec<f32> {
        let next = |state: &mut u64| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (*state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next(&mut self.0)).collect()
    }

    /// Values at least 0.1 away from zero, so that no step of a finite difference crosses the kink of a ReLU.
    fn away_from_zero(&mut self, count: usize) -> Vec<f32> {
        self.values(count).into_iter().map(|v| v + 0.1f32.copysign(v)).collect()
    }
}

fn tensor(backend: &Cpu, shape: Shape, values: &[f32]) -> Tensor<Cpu> {
    let mut tensor = Tensor::empty(backend).unwrap();
    tensor.resize(backend, shape).unwrap();
    backend.write(values, tensor.view_mut()).unwrap();
    tensor
}

/// Unspecified memory must never leak into a result: NaN shows it.
fn poisoned(backend: &Cpu, shape: Shape) -> Tensor<Cpu> {
    tensor(backend, shape, &vec![f32::NAN; shape.len()])
}

fn values(backend: &Cpu, tensor: &Tensor<Cpu>) -> Vec<f32> {
    let mut values = vec![0.0; tensor.shape().len()];
    backend.read(tensor.view(), &mut values).unwrap();
    values
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// `forward` maps all inputs to the output, `backward` all inputs and c to the gradients of ⟨c, output⟩ for the first
/// few inputs.
fn check(
    name: &str,
    step: f32,
    inputs: &[Vec<f32>],
    forward: impl Fn(&[Vec<f32>]) -> Vec<f32>,
    backward: impl Fn(&[Vec<f32>], &[f32]) -> Vec<Vec<f32>>,
) {
    let mut random = Random(7);
    let c = random.values(forward(inputs).len());
    for (index, gradient) in backward(inputs, &c).iter().enumerate() {
        assert_eq!(gradient.len(), inputs[index].len(), "{name}: size of gradient {index}");
        for _ in 0..2 {
            let v = random.values(gradient.len());
            let moved = |factor: f32| {
                let mut inputs = inputs.to_vec();
                inputs[index].iter_mut().zip(&v).for_each(|(x, v)| *x += factor * step * v);
                dot(&c, &forward(&inputs))
            };
            let difference = (moved(1.0) - moved(-1.0)) / (2.0 * f64::from(step));
            let analytic = dot(gradient, &v);
            let scale = dot(gradient, gradient).sqrt().max(1e-3);
            assert!(
                (difference - analytic).abs() <= 4e-3 * scale,
                "{name}, input {index}: {difference} against {analytic}"
            );
        }
    }
}

fn exact(backend: &Cpu, values: &[f32]) -> <Cpu as Backend>::Buffer {
    let mut buffer = backend.alloc(values.len(), Storage::Exact).unwrap();
    backend.upload(values, &mut buffer).unwrap();
    buffer
}

fn conv_case(backend: &Cpu, conv: Conv, input: Shape, outputs: usize, zeros: bool) {
    let output = conv.output(input, outputs);
    let columns = input.channels * conv.taps();
    let block = Block { rows: outputs, stride: columns, first: 0, columns, taps: conv.taps() };
    let mut random = Random(1);
    let mut weight = random.values(outputs * columns);
    if zeros {
        weight.iter_mut().enumerate().filter(|(i, _)| i % 5 != 0).for_each(|(_, w)| *w = 0.0);
    }
    let inputs = [random.values(input.len()), weight, random.values(outputs)];
    let copies = |value: &<Cpu as Backend>::Buffer| {
        let mut copies = Copies::default();
        backend.refresh(value, block, &mut copies).unwrap();
        copies
    };
    check(
        &format!("{conv:?} of {input:?} to {outputs}"),
        0.5, // linear in each input: any step is exact
        &inputs,
        |inputs| {
            let (x, value, bias) =
                (tensor(backend, input, &inputs[0]), exact(backend, &inputs[1]), exact(backend, &inputs[2]));
            let mut y = poisoned(backend, output);
            let weight = Weight { value: &value, block, copies: &copies(&value) };
            backend.conv_forward(&conv, x.view(), weight, Start::Bias(&bias), y.view_mut()).unwrap();
            // the other two starts agree with this one
            let mut again = poisoned(backend, output);
            backend.conv_forward(&conv, x.view(), weight, Start::Zero, again.view_mut()).unwrap();
            backend.conv_forward(&conv, x.view(), weight, Start::Keep, again.view_mut()).unwrap();
            let (y, twice) = (values(backend, &y), values(backend, &again));
            let bias = |i: usize| inputs[2][i / output.positions() % outputs];
            assert!(y.iter().zip(&twice).enumerate().all(|(i, (y, twice))| (2.0 * (y - bias(i)) - twice).abs() < 1e-3));
            y
        },
        |inputs, c| {
            let (x, value, dy) =
                (tensor(backend, input, &inputs[0]), exact(backend, &inputs[1]), tensor(backend, output, c));
            let mut dx = poisoned(backend, input);
            let weight = Weight { value: &value, block, copies: &copies(&value) };
            backend.conv_backward_input(&conv, weight, dy.view(), false, dx.view_mut()).unwrap();
            let dx = values(backend, &dx);
            let mut sum = tensor(backend, input, &inputs[0]);
            backend.conv_backward_input(&conv, weight, dy.view(), true, sum.view_mut()).unwrap();
            let sum = values(backend, &sum);
            assert!(sum.iter().zip(&dx).zip(&inputs[0]).all(|((sum, dx), x)| (sum - dx - x).abs() < 1e-3), "adding");
            let mut dw = exact(backend, &vec![f32::NAN; inputs[1].len()]);
            backend.conv_backward_weight(&conv, x.view(), dy.view(), block, &mut dw).unwrap();
            let mut db = exact(backend, &vec![f32::NAN; outputs]);
            backend.conv_backward_bias(dy.view(), &mut db).unwrap();
            vec![dx, dw.to_vec(), db.to_vec()]
        },
    );
}

#[test]
fn convolutions_have_the_gradients_of_their_finite_differences() {
    let strided = |kernel: usize, stride: usize| Conv::square(kernel, stride);
    for policy in [WeightPolicy::Dense, WeightPolicy::Sparse] {
        let backend = Cpu::new().with_weights(policy);
        let zeros = policy == WeightPolicy::Sparse;
        for (channels, outputs, batch) in [(5, 7, 1), (17, 3, 3)] {
            for width in [1, 7, 301] {
                let signal = Shape::signal(channels, batch, width);
                for conv in [Conv::POINTWISE, Conv::same_1d(3, 1), Conv::same_1d(3, 4), Conv::same_1d(5, 1)] {
                    conv_case(&backend, conv, signal, outputs, zeros);
                }
                let map = Shape { channels, batch, height: 9, width };
                for conv in [Conv::POINTWISE, strided(3, 1), strided(3, 2), strided(1, 2)] {
                    conv_case(&backend, conv, map, outputs, zeros);
                }
            }
        }
        // larger than one tile of positions, than one SIMD strip, than one task
        conv_case(&backend, Conv::square(3, 1), Shape { channels: 20, batch: 2, height: 33, width: 65 }, 35, zeros);
    }
}

#[test]
fn column_blocks_of_a_weight_multiply_and_differentiate_as_the_concatenated_input() {
    let mut random = Random(3);
    let (batch, width, outputs, sizes) = (2, 13, 6, [3, 5]);
    let total: usize = sizes.iter().sum();
    let weight = random.values(outputs * total);
    for policy in [WeightPolicy::Dense, WeightPolicy::Sparse] {
        let backend = Cpu::new().with_weights(policy);
        let value = exact(&backend, &weight);
        let parts: Vec<Tensor<Cpu>> = sizes
            .iter()
            .map(|&size| {
                let shape = Shape::signal(size, batch, width);
                tensor(&backend, shape, &random.values(shape.len()))
            })
            .collect();
        let mut joined = poisoned(&backend, Shape::signal(total, batch, width));
        backend.copy(parts[0].view(), joined.channels_mut(0..sizes[0])).unwrap();
        backend.copy(parts[1].view(), joined.channels_mut(sizes[0]..total)).unwrap();

        let block = |first: usize, columns: usize| Block { rows: outputs, stride: total, first, columns, taps: 1 };
        let blocks = [block(0, sizes[0]), block(sizes[0], sizes[1]), block(0, total)];
        let copies = blocks.map(|block| {
            let mut copies = Copies::default();
            backend.refresh(&value, block, &mut copies).unwrap();
            copies
        });
        let weight = |i: usize| Weight { value: &value, block: blocks[i], copies: &copies[i] };
        let shape = Shape::signal(outputs, batch, width);
        let (mut whole, mut sum) = (poisoned(&backend, shape), poisoned(&backend, shape));
        backend.conv_forward(&Conv::POINTWISE, joined.view(), weight(2), Start::Zero, whole.view_mut()).unwrap();
        backend.conv_forward(&Conv::POINTWISE, parts[0].view(), weight(0), Start::Zero, sum.view_mut()).unwrap();
        backend.conv_forward(&Conv::POINTWISE, parts[1].view(), weight(1), Start::Keep, sum.view_mut()).unwrap();
        let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
        assert!(close(&values(&backend, &whole), &values(&backend, &sum)));

        let (mut dwhole, mut dparts) =
            (exact(&backend, &vec![f32::NAN; outputs * total]), exact(&backend, &vec![f32::NAN; outputs * total]));
        backend.conv_backward_weight(&Conv::POINTWISE, joined.view(), whole.view(), blocks[2], &mut dwhole).unwrap();
        for i in 0..2 {
            backend
                .conv_backward_weight(&Conv::POINTWISE, parts[i].view(), whole.view(), blocks[i], &mut dparts)
                .unwrap();
        }
        assert!(close(&dwhole, &dparts));
    }
}

#[test]
fn batch_norms_have_the_gradients_of_their_finite_differences() {
    let backend = &Cpu::new();
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
                let norm = Norm { scale: &scale, shift: &shift, relu };
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
                    let norm = Norm { scale: &scale, shift: &shift, relu };
                    let target = with_residual.then(|| dresidual.view_mut());
                    backend
                        .norm_backward(x.view(), y.view(), norm, &mean, &inverse_std, d.view_mut(), target, into)
                        .unwrap();
                    let mut sum = exact(backend, &vec![f32::NAN; shape.channels]);
                    backend.conv_backward_bias(d.view(), &mut sum).unwrap();
                    assert_eq!(dbias.to_vec(), sum.to_vec(), "the gradient of a bias before the norm");
                    let mut gradients = vec![values(backend, &d), dscale.to_vec(), dshift.to_vec()];
                    if with_residual {
                        gradients.push(values(backend, &dresidual));
                    }
                    gradients
                },
            );
        }
    }
}

#[test]
fn squeeze_excitation_has_the_gradients_of_its_finite_differences() {
    let backend = &Cpu::new();
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

#[test]
fn pooling_has_the_gradients_of_its_finite_differences() {
    let backend = &Cpu::new();
    for shape in
        [Shape::signal(3, 1, 7), Shape::signal(5, 2, 301), Shape { channels: 3, batch: 2, height: 4, width: 9 }]
    {
        let stats = Shape::vector(2 * shape.channels * shape.height, shape.batch);
        let forward = |x: &Tensor<Cpu>| {
            let mut y = poisoned(backend, stats);
            backend.moments_forward(x.view(), y.view_mut()).unwrap();
            y
        };
        check(
            &format!("moments of {shape:?}"),
            1e-2,
            &[Random(2).values(shape.len())],
            |inputs| values(backend, &forward(&tensor(backend, shape, &inputs[0]))),
            |inputs, c| {
                let x = tensor(backend, shape, &inputs[0]);
                let (y, dy) = (forward(&x), tensor(backend, stats, c));
                let mut dx = poisoned(backend, shape);
                backend.moments_backward(x.view(), y.view(), dy.view(), false, dx.view_mut()).unwrap();
                let mut sum = tensor(backend, shape, &inputs[0]);
                backend.moments_backward(x.view(), y.view(), dy.view(), true, sum.view_mut()).unwrap();
                let (dx, sum) = (values(backend, &dx), values(backend, &sum));
                assert!(
                    sum.iter().zip(&dx).zip(&inputs[0]).all(|((sum, dx), x)| (sum - dx - x).abs() < 1e-5),
                    "adding"
                );
                vec![dx]
            },
        );
    }
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
            backend.attentive_forward(x.view(), attention.view_mut(), y.view_mut()).unwrap();
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
                backend
                    .attentive_backward(x.view(), attention.view(), y.view(), dy.view(), d.view_mut(), dx.view_mut())
                    .unwrap();
                backend.context_tanh_backward(h.view(), d.view_mut(), Some(dcontext.view_mut())).unwrap();
                vec![values(backend, &dx), values(backend, &d), values(backend, &dcontext)]
            },
        );
    }
}

#[test]
fn losses_have_the_gradients_of_their_finite_differences() {
    let backend = &Cpu::new();
    for (dim, classes, batch) in [(1, 2, 1), (7, 5, 3), (33, 19, 8)] {
        let labels: Vec<f32> = (0..batch).map(|item| ((item * 3 + 1) % classes) as f32).collect();
        let mut random = Random(6);
        let inputs = [random.values(batch * classes)];
        let scores = Shape::vector(classes, batch);
        let run = |inputs: &[Vec<f32>]| {
            let mut d = tensor(backend, scores, &inputs[0]);
            let mut outcome = exact(backend, &[f32::NAN; 2]);
            backend.cross_entropy(&exact(backend, &labels), d.view_mut(), &mut outcome).unwrap();
            (outcome[0], values(backend, &d))
        };
        let name = format!("cross-entropy, {classes} classes, batch {batch}");
        check(
            &name,
            1e-2,
            &inputs,
            |inputs| vec![run(inputs).0],
            |inputs, c| vec![run(inputs).1.iter().map(|d| c[0] * d).collect()],
        );

        let block = Block { rows: classes, stride: dim, first: 0, columns: dim, taps: 1 };
        let inputs = [random.away_from_zero(batch * dim), random.away_from_zero(classes * dim)];
        let margin = Margin { scale: 4.0, margin: 0.2, easy: false };
        let vector = Shape::vector(dim, batch);
        let run = |inputs: &[Vec<f32>]| {
            let (x, w) = (tensor(backend, vector, &inputs[0]), exact(backend, &inputs[1]));
            let (mut unit, mut d, mut dx) =
                (poisoned(backend, vector), poisoned(backend, scores), poisoned(backend, vector));
            let (mut lengths, mut rows, mut radial) = (
                exact(backend, &vec![0.0; batch]),
                exact(backend, &vec![0.0; classes]),
                exact(backend, &vec![0.0; classes]),
            );
            let mut outcome = exact(backend, &[f32::NAN; 2]);
            let copies = Copies::default();
            let weight = Weight { value: &w, block, copies: &copies };
            backend.unit_forward(x.view(), unit.view_mut(), &mut lengths).unwrap();
            backend.row_lengths(&w, block, &mut rows).unwrap();
            backend.conv_forward(&Conv::POINTWISE, unit.view(), weight, Start::Zero, d.view_mut()).unwrap();
            backend
                .margin_loss(margin, &rows, &exact(backend, &labels), d.view_mut(), &mut radial, &mut outcome)
                .unwrap();
            backend.conv_backward_input(&Conv::POINTWISE, weight, d.view(), false, dx.view_mut()).unwrap();
            backend.unit_backward(unit.view(), &lengths, dx.view_mut()).unwrap();
            let mut dw = exact(backend, &vec![f32::NAN; classes * dim]);
            backend.conv_backward_weight(&Conv::POINTWISE, unit.view(), d.view(), block, &mut dw).unwrap();
            backend.remove_radial(&w, &radial, block, &mut dw).unwrap();
            (outcome[0], [values(backend, &dx), dw.to_vec()])
        };
        let times = |c: f32, gradients: [Vec<f32>; 2]| gradients.map(|g| g.iter().map(|g| c * g).collect()).to_vec();
        let name = format!("margin softmax, dim {dim}, {classes} classes, batch {batch}");
        check(&name, 1e-3, &inputs, |inputs| vec![run(inputs).0], |inputs, c| times(c[0], run(inputs).1));
    }
}

#[test]
fn clipping_scales_to_the_limit_and_leaves_smaller_gradients_alone() {
    let backend = Cpu::new();
    let (mut a, mut b) = (exact(&backend, &vec![3.0; 50_000]), exact(&backend, &vec![4.0; 50_000]));
    let norm = backend.clip(&mut [&mut a, &mut b], 1.0).unwrap();
    assert!((norm - 5.0 * 50_000f32.sqrt()).abs() < 1e-2, "{norm}");
    let after = backend.clip(&mut [&mut a, &mut b], 10.0).unwrap();
    assert!((after - 1.0).abs() < 1e-5 && (b[0] / a[0] - 4.0 / 3.0).abs() < 1e-5, "{after}");
}

#[test]
fn non_finite_values_are_found_wherever_they_are() {
    let backend = Cpu::new();
    let shape = Shape::signal(3, 2, 10_001);
    for (at, value) in [(0, f32::NAN), (60_005, f32::INFINITY), (30_000, f32::NEG_INFINITY)] {
        let mut content = vec![1.0; shape.len()];
        assert!(backend.all_finite(tensor(&backend, shape, &content).view()).unwrap());
        content[at] = value;
        assert!(!backend.all_finite(tensor(&backend, shape, &content).view()).unwrap(), "{value} at {at}");
    }
}
