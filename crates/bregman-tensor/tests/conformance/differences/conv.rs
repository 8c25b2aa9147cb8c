//! Convolutions, with dense weights and with mostly zeros.

use bregman_tensor::{Backend, Block, Conv, OutputStart, Shape, Weight};

use super::check;
use crate::harness::{Random, exact, mostly_zero, poisoned, read_exact, tensor, values};

fn case<B: Backend>(backend: &B, conv: Conv, input: Shape, outputs: usize, zeros: bool) {
    let output = conv.output(input, outputs);
    let columns = input.channels * conv.taps();
    let block = Block { rows: outputs, stride: columns, first: 0, columns, taps: conv.taps() };
    let mut random = Random(1);
    let mut weight = random.values(outputs * columns);
    if zeros {
        mostly_zero(&mut weight);
    }
    let inputs = [random.values(input.len()), weight, random.values(outputs)];
    let copies = |value: &B::Buffer| {
        let mut copies = B::Copies::default();
        backend.refresh(value, None, block, &mut copies).unwrap();
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
            let weight = Weight { value: &value, mask: None, block, copies: &copies(&value) };
            backend.conv_forward(&conv, x.view(), weight, OutputStart::Bias(&bias), y.view_mut()).unwrap();
            // the other two starts agree with this one
            let mut again = poisoned(backend, output);
            backend.conv_forward(&conv, x.view(), weight, OutputStart::Zero, again.view_mut()).unwrap();
            backend.conv_forward(&conv, x.view(), weight, OutputStart::Keep, again.view_mut()).unwrap();
            let (y, twice) = (values(backend, &y), values(backend, &again));
            let bias = |i: usize| inputs[2][i / output.positions() % outputs];
            assert!(y.iter().zip(&twice).enumerate().all(|(i, (y, twice))| (2.0 * (y - bias(i)) - twice).abs() < 1e-3));
            y
        },
        |inputs, c| {
            let (x, value, dy) =
                (tensor(backend, input, &inputs[0]), exact(backend, &inputs[1]), tensor(backend, output, c));
            let mut dx = poisoned(backend, input);
            let weight = Weight { value: &value, mask: None, block, copies: &copies(&value) };
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
            vec![dx, read_exact(backend, &dw, inputs[1].len()), read_exact(backend, &db, outputs)]
        },
    );
}

pub(super) fn convolutions<B: Backend>(backend: &B) {
    for zeros in [false, true] {
        for (channels, outputs, batch) in [(5, 7, 1), (17, 3, 3)] {
            for width in [1, 7, 301] {
                let signal = Shape::signal(channels, batch, width);
                for conv in [Conv::POINTWISE, Conv::same_1d(3, 1), Conv::same_1d(3, 4), Conv::same_1d(5, 1)] {
                    case(backend, conv, signal, outputs, zeros);
                }
                let map = Shape { channels, batch, height: 9, width };
                for conv in [Conv::POINTWISE, Conv::square(3, 1), Conv::square(3, 2), Conv::square(1, 2)] {
                    case(backend, conv, map, outputs, zeros);
                }
            }
        }
    }
}

/// Larger than one tile of positions, than one SIMD strip, than one task.
pub(super) fn large_convolution<B: Backend>(backend: &B) {
    for zeros in [false, true] {
        case(backend, Conv::square(3, 1), Shape { channels: 20, batch: 2, height: 33, width: 65 }, 35, zeros);
    }
}
