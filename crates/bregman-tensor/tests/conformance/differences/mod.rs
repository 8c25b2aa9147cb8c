//! Every gradient against finite differences of its forward pass, on odd sizes.
//!
//! For outputs y(x) and random c, v: (⟨c, y(x + h·v)⟩ − ⟨c, y(x − h·v)⟩) / 2h must equal ⟨∇ₓ⟨c, y⟩, v⟩.

mod conv;
mod loss;
mod norm;
mod pooling;
mod reflection;
mod segments;

use bregman_tensor::Backend;

use crate::harness::Random;

/// Every gradient of a backend that computes in f32 or better.
pub(crate) fn all<B: Backend>(backend: &B) {
    conv::convolutions(backend);
    norm::batch_norms(backend);
    pooling::squeeze_excitation(backend);
    pooling::statistics(backend);
    reflection::mirrored(backend);
    segments::masks(backend);
    loss::losses(backend);
}

/// Those of convolutions, also of one that a fast backend cuts into tiles.
pub(crate) fn convolutions<B: Backend>(backend: &B) {
    conv::convolutions(backend);
    conv::large_convolution(backend);
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
