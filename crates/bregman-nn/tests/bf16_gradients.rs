//! Every gradient of a network in bf16 against the same network in f64, where no ReLU is near its kink.
//!
//! A ReLU whose input is within rounding of zero may fall on either side, and a gradient through it is then right or
//! wrong at random: of such networks nothing can be asked. Here biases and shifts hold each ReLU's inputs away from zero,
//! by channel on either side, and what is left is rounding.
//!
//! # How far apart they may be
//! bf16 has a significand of 8 bits: a stored value is within u = 2⁻⁸ of itself, and with all roundings equally likely
//! its error has a standard deviation of u/√3 at most. Sums are f32 and add nothing to that. An input of a batch norm
//! that stays away from zero has a mean of some κ times its standard deviation, and the norm takes the mean away: κ·u/√3
//! of what it passes on. Weights and features are multiples that bf16 holds, and gradients of weights are sums in f32,
//! so what is rounded is D maps one after the other on the way to the loss, and D gradients of maps on the way back.
//! These errors are independent of each other and add by their squares:
//!
//! ```text
//! √(2 D) · κ · u / √3
//! ```
//!
//! The tolerance is twice that, with D and κ in [`Case`]. It is also how far the ReLUs keep away from their kinks, which
//! the f64 reference measures: so no error within the tolerance can flip one.

#[path = "../../bregman-tensor/tests/conformance/reference/mod.rs"]
mod reference;

use bregman::Role;
use bregman_network::Pointwise;
use bregman_nn::{Architecture, Checkpoint, EcapaConfig, Input, ResNetConfig, Rng, TrainableModel, Values};
use bregman_tensor::{Backend, Cpu, Precision};
use reference::Reference;

/// A small network whose ReLUs keep away from their kinks.
struct Case {
    name: &'static str,
    architecture: Architecture,
    frames: usize,
    /// D: maps that are stored one after the other on the longest way through the network.
    depth: usize,
    /// κ: mean by standard deviation of what a batch norm receives.
    mean: f64,
    /// Where a bias before a ReLU, or a shift of a norm before it, lies.
    distance: f32,
    /// Scale of the norms before a ReLU.
    scale: f32,
}

impl Case {
    fn tolerance(&self) -> f64 {
        2.0 * (2.0 * self.depth as f64).sqrt() * self.mean * 2f64.powi(-8) / 3f64.sqrt()
    }
}

const BATCH: usize = 3;
const FEATURES: usize = 16;

/// Widths for which a GPU has kernels of its own: 32 and 64 channels in the ResNet, eights in ECAPA's Res2 parts.
fn cases() -> [Case; 2] {
    [
        Case {
            name: "ecapa",
            architecture: Architecture::new(
                FEATURES,
                EcapaConfig { channels: 64, embedding: 16, global_context: true },
            ),
            frames: 11,
            depth: 90,
            mean: 5.0,
            distance: 4.0,
            scale: 1.0,
        },
        Case {
            name: "resnet",
            architecture: Architecture::new(
                FEATURES,
                ResNetConfig { blocks: [1, 1, 1, 1], channels: 32, embedding: 16 },
            ),
            frames: 12,
            depth: 18,
            mean: 5.0,
            distance: 1.5,
            scale: 0.3,
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

/// Weights that bf16 holds. One channel of three is off everywhere, the others are on.
fn weights(case: &Case) -> Checkpoint {
    let mut state = TrainableModel::new(Cpu::new(), &case.architecture, None, 1).unwrap().state().unwrap();
    let side = |on: f32, off: f32| move |channel: usize, value: f32| value + if channel % 3 == 1 { off } else { on };
    let names: Vec<String> =
        state.tensors.keys().filter(|name| !name.ends_with("num_batches_tracked")).cloned().collect();
    names.iter().for_each(|name| change(&mut state, name, |_, value| value));
    for layer in case.architecture.layers() {
        if let [Pointwise::Relu, ..] = layer.after[..] {
            change(&mut state, &format!("{}.bias", layer.name), side(case.distance, -case.distance));
        } else if let Some(norm) = layer.norm_after() {
            change(&mut state, &format!("{}.weight", norm.name), |_, scale| case.scale * scale);
            // what is added to a sum may be several times the distance already
            let off = if layer.after.contains(&Pointwise::Residual) { -4.0 } else { -1.0 };
            let on = if layer.relu() { 1.0 } else { 0.0 };
            change(&mut state, &format!("{}.bias", norm.name), side(on * case.distance, on * off * case.distance));
        }
    }
    state
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
    let values = noise(BATCH * case.frames * FEATURES, 2);
    let embedding = model.forward_training(Input { values: &values, batch: BATCH, frames: case.frames }).unwrap();
    model.backward(&noise(embedding.len(), 3)).unwrap();
    let read = |parameter: &bregman_nn::Parameter<B>| {
        let mut values = vec![0.0; parameter.param.len()];
        model.backend().download(&parameter.grad, &mut values).unwrap();
        let bregman::Param { name, shape, role, .. } = &parameter.param;
        Gradient { name: name.clone(), role: *role, rows: shape[0], values }
    };
    (model.params().all().iter().map(read).collect(), model)
}

fn norm(values: impl Iterator<Item = f32>) -> f64 {
    values.map(|v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt()
}

/// Relative errors: of every row and every column of a weight's gradient, and of every other gradient as a whole.
fn errors(expected: &[Gradient], got: &[Gradient]) -> Vec<(String, f64)> {
    let typical = |name: &str| {
        let gradient = expected.iter().find(|gradient| gradient.name == name)?;
        Some(norm(gradient.values.iter().copied()) / (gradient.values.len() as f64).sqrt())
    };
    let mut errors = Vec::new();
    for (expected, got) in expected.iter().zip(got) {
        let Gradient { name, role, rows, values } = expected;
        let columns = values.len() / rows;
        let apart: Vec<f32> = values.iter().zip(&got.values).map(|(a, b)| a - b).collect();
        let whole = norm(values.iter().copied());
        let mut compare = |part: String, of: &dyn Fn(&[f32]) -> f64, scale: f64| {
            errors.push((format!("{name}{part}"), of(&apart) / of(values).max(scale)));
        };
        if role.is_weight() {
            for row in 0..*rows {
                let of = |values: &[f32]| norm(values[row * columns..][..columns].iter().copied());
                compare(format!(", row {row}"), &of, whole / (*rows as f64).sqrt());
            }
            for column in 0..columns {
                let of = |values: &[f32]| norm(values.iter().skip(column).step_by(columns).copied());
                compare(format!(", column {column}"), &of, whole / (columns as f64).sqrt());
            }
        } else {
            // a batch norm, or a softmax, behind them makes some of these zero but for rounding errors, whose size is
            // that of the weight's or the scale's errors
            let beside = typical(&name.replace(".bias", ".weight")).unwrap();
            compare(String::new(), &|values| norm(values.iter().copied()), beside * (values.len() as f64).sqrt());
        }
    }
    errors.sort_by(|a, b| b.1.total_cmp(&a.1));
    errors
}

/// The gradients in f64, on input without flips.
fn expected(case: &Case, weights: &Checkpoint) -> Vec<Gradient> {
    let (gradients, model) = gradients(Reference::new(), case, weights);
    let (nearest, tolerance) = (model.backend().nearest_kink(), case.tolerance());
    println!("{}: nearest kink {nearest:.3}, tolerance {tolerance:.3}", case.name);
    assert!(nearest > tolerance, "{}: a ReLU is {nearest} from its kink, and {tolerance} may flip it", case.name);
    gradients
}

fn check<B: Backend>(backend: impl Fn() -> B) {
    for case in cases() {
        let weights = weights(&case);
        let expected = expected(&case, &weights);
        let errors = errors(&expected, &gradients(backend(), &case, &weights).0);
        println!("{}: the worst of {}: {:?}", case.name, errors.len(), &errors[..4]);
        let tolerance = case.tolerance();
        let failed: Vec<_> = errors.iter().filter(|(_, error)| error.is_nan() || *error > tolerance).collect();
        assert!(failed.is_empty(), "{}, over {tolerance:.3}: {failed:#?}", case.name);
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
    if Cuda::open_or_skip(Precision::Bf16).is_some() {
        check(|| Cuda::open(0, Precision::Bf16).unwrap());
    }
}
