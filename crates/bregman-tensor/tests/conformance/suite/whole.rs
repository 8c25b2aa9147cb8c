//! Products of small whole numbers: bf16 and tf32 hold them, f32 holds all their sums, so nothing is rounded anywhere
//! and every backend must give the reference's numbers exactly. A tolerance for rounding errors lets a wrong tap of one
//! column pass; this does not.

use std::sync::OnceLock;

use bregman_tensor::{Backend, Conv, Shape};

use super::cases::Cases;
use crate::harness::Random;
use crate::reference::Reference;

/// Whole numbers up to here have 8 bits of significand, as bf16 does.
const LARGEST: f32 = 256.0;

/// Panics unless every value of every product is the reference's.
pub(crate) fn exact<B: Backend>(backend: &B) {
    static EXPECTED: OnceLock<Vec<(String, Vec<f32>)>> = OnceLock::new();
    let (expected, got) = (EXPECTED.get_or_init(expected), everything(backend));
    assert_eq!(expected.len(), got.len());
    let wrong: Vec<String> = expected.iter().zip(&got).filter_map(|(a, b)| difference(a, b)).collect();
    println!("{} products of whole numbers, {} wrong", expected.len(), wrong.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// How many values differ, and the first of them.
fn difference((name, expected): &(String, Vec<f32>), (_, got): &(String, Vec<f32>)) -> Option<String> {
    let pairs = || expected.iter().zip(got).enumerate().filter(|(_, (expected, got))| expected != got);
    let (at, (first, instead)) = pairs().next()?;
    let (wrong, all) = (pairs().count(), got.len());
    Some(format!("{name}: {wrong} of {all} values, the first at {at}: {instead}, not {first}"))
}

/// The reference's, which must be numbers that every format holds. Gradients of biases are f32 everywhere.
fn expected() -> Vec<(String, Vec<f32>)> {
    let results = everything(&Reference::new());
    for (name, values) in &results {
        let largest = if name.starts_with("bias gradient") { (1 << 24) as f32 } else { LARGEST };
        assert!(values.iter().all(|v| v.fract() == 0.0 && v.abs() <= largest), "{name} would be rounded");
    }
    results
}

fn everything<B: Backend>(backend: &B) -> Vec<(String, Vec<f32>)> {
    let mut cases = Cases { backend, random: Random(5), numbers: Random::whole, results: Vec::new(), sparse: false };
    let map = |channels, batch, height, width| Shape { channels, batch, height, width };
    // 0 or 8 channels more behind the input keep its positions on 16-byte boundaries, 3 do not
    for extra in [0, 3] {
        // matrix products: linear layers, signals, maps
        for (input, outputs) in [
            (Shape::vector(192, 33), 130),
            (Shape::vector(40, 9), 24),
            (Shape::vector(5, 3), 7),
            (Shape::signal(64, 3, 101), 128),
            (Shape::signal(17, 2, 301), 9),
            (Shape::signal(8, 1, 1), 8),
            (map(24, 2, 5, 7), 40),
        ] {
            cases.products(Conv::POINTWISE, input, outputs, extra);
        }
        // signals with taps, also where a tap reaches past both ends
        for (channels, outputs, width) in [(64, 64, 101), (8, 8, 33), (80, 72, 20), (6, 10, 45), (16, 24, 3)] {
            for conv in [Conv::same_1d(3, 1), Conv::same_1d(3, 2), Conv::same_1d(3, 4), Conv::same_1d(5, 1)] {
                cases.products(conv, Shape::signal(channels, 2, width), outputs, extra);
            }
        }
        // maps, with strides that leave a last row and column out or not
        for (input, outputs) in [
            (map(8, 2, 8, 31), 16),
            (map(16, 1, 9, 6), 8),
            (map(32, 2, 10, 7), 64),
            (map(128, 1, 5, 9), 128),
            (map(5, 2, 7, 12), 3),
            (map(40, 1, 1, 13), 40),
        ] {
            for conv in [Conv::square(3, 1), Conv::square(3, 2), Conv::square(1, 2)] {
                cases.products(conv, input, outputs, extra);
            }
        }
    }
    // the tiles of our own kernels of few channels: partly filled, one row or column, and, with 300 items, more tiles
    // than blocks, which then walk from one to the next
    for channels in [32, 64] {
        for (batch, height, width) in [(1, 3, 5), (2, 17, 35), (1, 40, 1), (2, 1, 70), (1, 8, 32), (300, 2, 3)] {
            for extra in [0, 8] {
                cases.products(Conv::square(3, 1), map(channels, batch, height, width), channels, extra);
            }
        }
    }
    // a single channel
    for (batch, height, width, outputs) in [(3, 17, 35, 32), (1, 3, 1, 24), (1, 1, 5, 64), (40, 9, 3, 256)] {
        cases.products(Conv::square(3, 1), map(1, batch, height, width), outputs, 0);
    }
    cases.conv_norm_products();
    cases.results
}
