//! Every operation on a backend and on the reference, on sizes that fill no vector, no block and no tile.

mod cases;
mod conv_norm;
mod frozen;
mod reflection;
mod segments;
mod whole;

pub(crate) use whole::exact;

use std::sync::OnceLock;

use bregman_tensor::{Backend, Conv, Relu, Shape};
use cases::Cases;

use crate::harness::Random;
use crate::reference::Reference;

/// The results of cases, each with its name.
type Results = Vec<(String, Vec<f32>)>;

/// Panics unless every result is within a relative ℓ2 error of the reference's: a single ReLU that flips at a rounding
/// error must not decide.
pub(crate) fn conforms<B: Backend>(backend: &B, tolerance: f64) {
    static EXPECTED: OnceLock<Results> = OnceLock::new();
    compare(EXPECTED.get_or_init(|| everything(&Reference::new())), &everything(backend), tolerance);
}

/// The same for a case or two of each operation: seconds in an emulator, where all of them take minutes.
pub(crate) fn conforms_in_brief<B: Backend>(backend: &B, tolerance: f64) {
    static EXPECTED: OnceLock<Results> = OnceLock::new();
    compare(EXPECTED.get_or_init(|| a_few(&Reference::new())), &a_few(backend), tolerance);
}

fn compare(expected: &Results, got: &Results, tolerance: f64) {
    assert_eq!(expected.len(), got.len());
    let length = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let mut errors: Vec<(f64, &str)> = expected
        .iter()
        .zip(got)
        .map(|((name, expected), (_, got))| {
            let apart = length(&mut expected.iter().zip(got).map(|(a, b)| f64::from(a - b)));
            (apart / length(&mut expected.iter().map(|&a| f64::from(a))).max(1e-6), &**name)
        })
        .collect();
    errors.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!("{} results, the worst: {:?}", errors.len(), &errors[..3]);
    let failed: Vec<_> = errors.iter().filter(|(error, _)| error.is_nan() || *error > tolerance).collect();
    assert!(failed.is_empty(), "over {tolerance:e}: {failed:#?}");
}

fn a_few<B: Backend>(backend: &B) -> Results {
    let mut cases = Cases { backend, random: Random(3), numbers: Random::values, results: Vec::new(), sparse: false };
    cases.inputs();
    cases.samples();
    for conv in [Conv::POINTWISE, Conv::same_1d(3, 2)] {
        cases.conv(conv, Shape::signal(17, 2, 67), 24, 3);
        cases.conv(conv, Shape::signal(16, 2, 67), 9, 3);
    }
    for conv in [Conv::square(3, 1), Conv::square(3, 2)] {
        let map = Shape { channels: 16, batch: 2, height: 10, width: 19 };
        cases.conv(conv, map, 17, 3);
        cases.conv(conv, map, 17, 3);
        cases.conv(conv, map.with_channels(1), 32, 0);
    }
    for shape in [Shape::signal(17, 2, 67), Shape { channels: 3, batch: 2, height: 5, width: 7 }] {
        cases.norm(shape, Relu::Before, false);
        cases.norm(shape, Relu::After, true);
        cases.pointwise(shape);
        cases.pooling(shape);
    }
    cases.losses(37, 24, 5);
    cases.segments(Shape::signal(7, 3, 200), 100);
    cases.reflection(Shape::signal(7, 3, 5), 4);
    cases.results
}

fn everything<B: Backend>(backend: &B) -> Results {
    let mut cases = Cases { backend, random: Random(3), numbers: Random::values, results: Vec::new(), sparse: false };
    cases.inputs();
    cases.samples();
    for input in [Shape::signal(16, 2, 301), Shape::signal(6, 1, 7), Shape::signal(5, 3, 1), Shape::vector(40, 9)] {
        cases.conv(Conv::POINTWISE, input, 24, 3);
        if input.width > 1 {
            cases.conv(Conv::same_1d(3, 2), input, 24, 3);
            cases.conv(Conv::same_1d(5, 1), input, 7, 3);
        }
    }
    for (height, width) in [(8, 31), (10, 7)] {
        let map = Shape { channels: 8, batch: 2, height, width };
        cases.conv(Conv::square(3, 1), map, 16, 3);
        cases.conv(Conv::square(3, 2), map, 16, 3);
        cases.conv(Conv::square(1, 2), map, 9, 3);
        cases.conv(Conv::square(3, 1), map.with_channels(1), 32, 3);
    }
    for (batch, height, width, outputs) in [(3, 17, 35, 32), (1, 3, 1, 24), (1, 1, 5, 64)] {
        cases.conv(Conv::square(3, 1), Shape { channels: 1, batch, height, width }, outputs, 0);
    }
    // no multiple of a vector, larger than a tile of positions, a stride and a dilation on each
    for (channels, outputs, batch) in [(5, 7, 1), (17, 3, 3)] {
        for width in [1, 7, 301] {
            let signal = Shape::signal(channels, batch, width);
            for conv in [Conv::POINTWISE, Conv::same_1d(3, 1), Conv::same_1d(3, 4), Conv::same_1d(5, 1)] {
                cases.conv(conv, signal, outputs, 0);
            }
            let map = Shape { channels, batch, height: 9, width };
            for conv in [Conv::POINTWISE, Conv::square(3, 1), Conv::square(3, 2), Conv::square(1, 2)] {
                cases.conv(conv, map, outputs, 1);
            }
        }
    }
    cases.conv(Conv::square(3, 1), Shape { channels: 20, batch: 2, height: 33, width: 65 }, 35, 0);
    // tiles of our own tensor-core kernels: partly filled, several, one column, one row
    for channels in [32, 64] {
        for (batch, height, width) in [(3, 17, 35), (1, 3, 5), (1, 40, 1), (2, 1, 70), (1, 8, 32)] {
            for extra in [0, 8] {
                cases.conv(Conv::square(3, 1), Shape { channels, batch, height, width }, channels, extra);
            }
        }
    }
    for shape in [
        Shape::signal(64, 3, 301),
        Shape::signal(6, 1, 7),
        Shape::vector(72, 5),
        Shape::vector(3, 5),
        Shape::signal(7, 1, 7),
        Shape::signal(17, 2, 301),
        Shape { channels: 3, batch: 2, height: 5, width: 7 },
        Shape { channels: 16, batch: 2, height: 9, width: 31 },
    ] {
        for (relu, residual) in
            [(Relu::Absent, false), (Relu::Before, false), (Relu::After, false), (Relu::After, true)]
        {
            cases.norm(shape, relu, residual);
        }
        cases.pointwise(shape);
        cases.pooling(shape);
    }
    cases.conv_norms();
    cases.losses(2, 1, 1);
    cases.losses(5, 7, 3);
    cases.losses(37, 24, 5);
    cases.losses(130, 192, 33);
    for (shape, length) in [
        (Shape::signal(32, 2, 149), 100),
        (Shape::signal(7, 3, 200), 100),
        (Shape::signal(17, 2, 12), 100),
        (Shape::signal(8, 2, 9), 4),
    ] {
        cases.segments(shape, length);
    }
    for (shape, edge) in [
        (Shape::signal(16, 2, 61), 4),
        (Shape::signal(7, 3, 5), 4),
        (Shape::signal(5, 1, 2), 1),
        (Shape::signal(8, 2, 301), 2),
    ] {
        cases.reflection(shape, edge);
        // what follows it: a convolution without padding
        let wide = Shape { width: shape.width + 2 * edge, ..shape };
        cases.conv(Conv { padding: [0, 0], ..Conv::same_1d(3, edge) }, wide, 24, 0);
        cases.conv(Conv { padding: [0, 0], ..Conv::same_1d(3, edge) }, wide, 9, 0);
    }
    // CAM++: strides along one axis, and a kernel as tall as the map
    for width in [7, 61] {
        let map = Shape { channels: 8, batch: 2, height: 10, width };
        let tall = Conv { kernel: [10, 5], stride: [1, 2], padding: [0, 2], dilation: [1, 1] };
        cases.conv(tall, map, 16, 0);
        cases.conv(tall, map, 16, 3);
        for conv in [Conv::square(3, 2), Conv::square(1, 2)] {
            cases.conv(Conv { stride: [2, 1], ..conv }, map, 16, 0);
            cases.conv(Conv { stride: [2, 1], ..conv }, map, 9, 3);
        }
    }
    cases.results
}
