//! Every gradient of a network in bf16 against the same network in f64, where no ReLU is near its kink.
//!
//! A ReLU whose input is within rounding of zero falls on either side, and what flows back through it is then right or
//! wrong at random: nothing can be asked of such gradients. Here biases and shifts put each ReLU's zero into a gap
//! between its inputs, and what is left is rounding.
//!
//! # How far apart they may be
//! bf16 has a significand of 8 bits: a stored value is within u = 2⁻⁸ of itself, and where all values are equally
//! likely its error has a standard deviation of u/√3 at most. Sums are f32 (2⁻²⁴) and add nothing to that. Weights and
//! features are numbers that bf16 holds, gradients of weights are sums in f32. So what is rounded are D maps one after
//! the other on the way to the embedding, and as many gradients of maps on the way back. Batch norms keep the size of
//! signal and error alike; errors that do not know of each other add by their squares. The error of a gradient, by its
//! length, then has a standard deviation of about
//!
//! ```text
//! σ = √(2 D) · u / √3
//! ```
//!
//! A tensor may be 4 σ from the reference, and each column of a weight, which has fewer values to average over, 8 σ.
//! ReLUs keep more than 4 σ away from their kinks, which the reference measures, so that none flips.

#[path = "../../bregman-tensor/tests/conformance/reference/mod.rs"]
mod reference;

use bregman::{Param, Role};
use bregman_network::Pointwise;
use bregman_nn::{Architecture, Checkpoint, EcapaConfig, Input, Parameter, ResNetConfig, Rng, TrainableModel, Values};
use bregman_tensor::{Backend, Cpu, Precision};
use reference::Reference;

/// A small network, with a batch of [`BATCH`] utterances of so many frames.
struct Case {
    name: &'static str,
    architecture: Architecture,
    frames: usize,
    /// D: maps that are stored one after the other on the longest way through the network.
    depth: usize,
}

impl Case {
    fn tolerance(&self) -> f64 {
        4.0 * (2.0 * self.depth as f64).sqrt() * 2f64.powi(-8) / 3f64.sqrt()
    }
}

const BATCH: usize = 8;
const FEATURES: usize = 16;

/// Of widths for which a GPU has kernels of its own: 32 and 64 channels in the ResNet, eights in ECAPA's Res2 parts.
fn cases() -> [Case; 2] {
    let ecapa = EcapaConfig { channels: 64, embedding: 16, global_context: true };
    let resnet = ResNetConfig { blocks: [1, 1, 1, 1], channels: 32, embedding: 16 };
    [
        Case {
            name: "ecapa",
            architecture: Architecture::new(FEATURES, ecapa),
            frames: 6,
            // layer1: 2; in each block 2 + 2 + 6 · 3 + 2 + 1; the sum of the blocks and its ReLU: 4; the attention: 4
            depth: 2 + 3 * 25 + 4 + 4,
        },
        Case {
            name: "resnet",
            architecture: Architecture::new(FEATURES, resnet),
            frames: 8,
            // two convolutions with their norms in each block, one before them
            depth: 2 + 4 * 4,
        },
    ]
}

/// As bf16 holds it: the upper half of an f32.
fn short(value: f32) -> f32 {
    f32::from_bits(value.to_bits() & 0xffff_0000)
}

fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut random = Rng::new(seed);
    (0..count).map(|_| short(random.symmetric(2.0))).collect()
}

/// Replaces each value of a tensor by what `f` makes of its place and of it.
fn change(state: &mut Checkpoint, tensor: &str, f: impl Fn(usize, f32) -> f32) {
    let Values::F32(values) = &mut state.tensors.get_mut(tensor).unwrap().values else { panic!("{tensor}: integers") };
    values.iter_mut().enumerate().for_each(|(i, value)| *value = short(f(i, *value)));
}

/// Weights that bf16 holds, and that hold the ReLUs' inputs away from zero. Layer by layer, each channel is shifted so
/// that zero falls into the widest gap between the middle half of its inputs, or before all of them where no gap is
/// wide enough. (Of a channel that passes few inputs, the norm behind it would enlarge the errors.)
fn weights(case: &Case) -> Checkpoint {
    let mut model = TrainableModel::new(Reference::new(), &case.architecture, None, 1).unwrap();
    let mut state = model.state().unwrap();
    let names: Vec<String> =
        state.tensors.keys().filter(|name| !name.ends_with("num_batches_tracked")).cloned().collect();
    names.iter().for_each(|name| change(&mut state, name, |_, value| value));
    for (at, layer) in case.architecture.layers().iter().filter(|layer| layer.relu()).enumerate() {
        model.load(&state).unwrap();
        model.backend().take_relu_inputs();
        forward(&mut model, case);
        let inputs = &model.backend().take_relu_inputs()[at];
        let shifts: Vec<f32> = inputs.iter().map(|channel| shift(channel, 1.5 * case.tolerance())).collect();
        let shifted = match &layer.after[0] {
            Pointwise::Norm(norm) => &norm.name,
            _ => &layer.name,
        };
        change(&mut state, &format!("{shifted}.bias"), |channel, value| value + shifts[channel]);
    }
    state
}

fn deviation(numbers: &[f64]) -> f64 {
    let mean = |numbers: &mut dyn Iterator<Item = f64>, count: usize| numbers.sum::<f64>() / count as f64;
    let middle = mean(&mut numbers.iter().copied(), numbers.len());
    mean(&mut numbers.iter().map(|x| (x - middle).powi(2)), numbers.len()).sqrt()
}

/// What to add to these numbers so that none is nearer to zero than `distance` times their standard deviation.
fn shift(numbers: &[f64], distance: f64) -> f32 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let outer = sorted.len() / 4;
    let gaps =
        sorted[outer..sorted.len() - outer].windows(2).map(|pair| (pair[1] - pair[0], (pair[0] + pair[1]) / 2.0));
    let (width, middle) = gaps.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
    let distance = distance * deviation(numbers);
    -(if width > 2.0 * distance { middle } else { sorted[0] - distance }) as f32
}

/// The smallest input of a ReLU by the standard deviation of those of its channel.
fn nearest_kink(inputs: &[Vec<Vec<f64>>]) -> f64 {
    let nearest = inputs
        .iter()
        .flatten()
        .map(|channel| channel.iter().fold(f64::INFINITY, |least, x| least.min(x.abs())) / deviation(channel));
    nearest.fold(f64::INFINITY, f64::min)
}

fn forward<B: Backend>(model: &mut TrainableModel<B>, case: &Case) {
    let values = noise(BATCH * case.frames * FEATURES, 2);
    model.forward_training(Input { values: &values, batch: BATCH, frames: case.frames }).unwrap();
}

/// The gradient of a tensor.
#[derive(Clone)]
struct Gradient {
    name: String,
    role: Role,
    rows: usize,
    values: Vec<f32>,
}

/// A forward and a backward pass: all gradients of ⟨c, embedding⟩ for some c, and the model.
fn gradients<B: Backend>(backend: B, case: &Case, weights: &Checkpoint) -> (Vec<Gradient>, TrainableModel<B>) {
    let mut model = TrainableModel::new(backend, &case.architecture, None, 0).unwrap();
    model.load(weights).unwrap();
    forward(&mut model, case);
    model.backward(&noise(BATCH * case.architecture.embedding(), 3)).unwrap();
    let read = |parameter: &Parameter<B>| {
        let mut values = vec![0.0; parameter.param.len()];
        model.backend().download(&parameter.grad, &mut values).unwrap();
        let Param { name, shape, role, .. } = &parameter.param;
        Gradient { name: name.clone(), role: *role, rows: shape[0], values }
    };
    (model.params().all().iter().map(read).collect(), model)
}

fn norm<'a>(values: impl Iterator<Item = &'a f32>) -> f64 {
    values.map(|&v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt()
}

/// What is further from the reference than it may be, and the largest error of a tensor.
fn wrong(case: &Case, expected: &[Gradient], got: &[Gradient]) -> (Vec<String>, f64) {
    let (mut wrong, mut largest) = (Vec::new(), 0f64);
    for (expected, got) in expected_with_scale(expected).zip(got) {
        let (Gradient { name, role, rows, values }, scale) = expected;
        let apart: Vec<f32> = values.iter().zip(&got.values).map(|(a, b)| a - b).collect();
        let mut compare = |what: String, apart: f64, length: f64, tolerance: f64| {
            let error = apart / length;
            if error.is_nan() || error > tolerance {
                wrong.push(format!("{what}: {error:.3} over {tolerance:.3}"));
            }
            error
        };
        let error = compare(name.clone(), norm(apart.iter()), norm(values.iter()).max(scale), case.tolerance());
        largest = largest.max(error);
        let columns = values.len() / rows;
        let typical = norm(values.iter()) / (columns as f64).sqrt();
        for column in (0..columns).filter(|_| role.is_weight()) {
            let of = |values: &[f32]| norm(values.iter().skip(column).step_by(columns));
            compare(format!("{name}, column {column}"), of(&apart), of(values).max(typical), 2.0 * case.tolerance());
        }
    }
    (wrong, largest)
}

/// Each gradient with the least length that its error is divided by. A batch norm or a softmax behind a bias or a shift
/// may make its gradient zero but for rounding: its scale is that of the weight's beside it.
fn expected_with_scale(expected: &[Gradient]) -> impl Iterator<Item = (&Gradient, f64)> {
    expected.iter().map(move |gradient| {
        let name = gradient.name.replace(".bias", ".weight");
        let beside = &expected.iter().find(|other| other.name == name).unwrap().values;
        (gradient, norm(beside.iter()) * (gradient.values.len() as f64 / beside.len() as f64).sqrt())
    })
}

/// The gradients in f64, on input without flips.
fn expected(case: &Case, weights: &Checkpoint) -> Vec<Gradient> {
    let (gradients, model) = gradients(Reference::new(), case, weights);
    let (nearest, tolerance) = (nearest_kink(&model.backend().take_relu_inputs()), case.tolerance());
    println!("{}: nearest kink {nearest:.3}, tolerance {tolerance:.3}", case.name);
    assert!(nearest > tolerance, "{}: a ReLU is {nearest} from its kink, and {tolerance} may flip it", case.name);
    gradients
}

fn check<B: Backend>(backend: impl Fn() -> B) {
    for case in cases() {
        let weights = weights(&case);
        let expected = expected(&case, &weights);
        let (wrong, largest) = wrong(&case, &expected, &gradients(backend(), &case, &weights).0);
        println!("{}: the largest error of a tensor is {largest:.3}", case.name);
        assert!(wrong.is_empty(), "{}: {wrong:#?}", case.name);
    }
}

#[test]
fn a_wrong_tap_and_a_missing_share_are_found() {
    for case in cases() {
        let expected = expected(&case, &weights(&case));
        assert!(wrong(&case, &expected, &expected).0.is_empty());
        for index in (0..expected.len()).filter(|&index| expected[index].role == Role::ConvWeight) {
            let columns = expected[index].values.len() / expected[index].rows;
            let mut one_column = expected.clone();
            let column = columns / 2;
            one_column[index].values.iter_mut().skip(column).step_by(columns).for_each(|value| *value = 0.0);
            let found = wrong(&case, &expected, &one_column).0;
            let name = format!("{}, column {column}", expected[index].name);
            let length = norm(expected[index].values.iter().skip(column).step_by(columns));
            let typical = norm(expected[index].values.iter()) / (columns as f64).sqrt();
            assert!(length < 0.5 * typical || found.iter().any(|found| found.starts_with(&name)), "{name}: {found:?}");
            let mut less = expected.clone();
            less[index].values.iter_mut().for_each(|value| *value *= 0.85);
            assert!(!wrong(&case, &expected, &less).0.is_empty(), "{}: 15 % too small", expected[index].name);
        }
    }
}

#[test]
fn the_reference_with_maps_in_bf16_is_within_the_tolerance() {
    check(Reference::with_bf16_maps);
}

#[test]
fn the_cpu_in_bf16_is_within_the_tolerance() {
    check(|| Cpu::with_precision(Precision::Bf16));
}

#[cfg(feature = "cuda")]
#[test]
fn a_gpu_in_bf16_is_within_the_tolerance() {
    use bregman_tensor::cuda::Cuda;
    if Cuda::open_or_skip(Precision::Bf16, bregman_skip::no_gpu).is_some() {
        check(|| Cuda::open(0, Precision::Bf16).unwrap());
    }
}
