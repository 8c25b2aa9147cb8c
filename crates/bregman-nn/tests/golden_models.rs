//! The networks against WeSpeaker's, 3D-Speaker's and SpeechBrain's, run in float64: outputs, statistics and every
//! gradient.

mod common;

use bregman_nn::{Architecture, Checkpoint, Parameter, TrainableModel};
use bregman_tensor::{Backend, Cpu};
use common::{Features, Floats, architecture, furthest, json, largest, load, tensors};
use serde_json::Value;

/// Each golden model with its weights, its input and its expectations.
fn each_model<B: Backend>(
    backend: impl Fn() -> B,
    check: impl Fn(&str, TrainableModel<B>, Features, &Checkpoint, &Value),
) {
    for name in bregman_golden::models() {
        let case = json(&format!("{name}_expected"));
        let model = load(backend(), &case, &tensors(&name));
        check(&name, model, Features::of(&case), &tensors(&format!("{name}_expected")), &case);
    }
}

/// What a float32 implementation should meet, of the largest value each.
struct Tolerances {
    eval: f32,
    train: f32,
    gradient: f32,
}

impl Tolerances {
    fn of(case: &Value) -> Self {
        match case["kind"].as_str().unwrap() {
            "resnet" => Self { eval: 5e-5, train: 2e-5, gradient: 2e-4 },
            "campplus" => Self { eval: 2e-5, train: 2e-4, gradient: 1e-3 },
            _ => Self { eval: 2e-5, train: 2e-5, gradient: 2e-4 },
        }
    }
}

fn gradient<B: Backend>(model: &TrainableModel<B>, parameter: &Parameter<B>) -> Vec<f32> {
    let mut values = vec![0.0; parameter.param.len()];
    model.backend().download(&parameter.grad, &mut values).unwrap();
    values
}

fn assert_embedding(name: &str, got: &[f32], expected: &[f32], tolerance: f32) {
    let error = furthest(got, expected) / largest(expected);
    assert!(error <= tolerance, "{name}: relative error {error:e} over {tolerance:e}");
}

#[test]
fn eval_embeddings_match_the_reference() {
    check_eval_embeddings(Cpu::new, 1.0);
}

fn check_eval_embeddings<B: Backend>(backend: impl Fn() -> B, slack: f32) {
    each_model(backend, |name, mut model, x, expected, case| {
        let tolerance = slack * Tolerances::of(case).eval;
        assert_embedding(name, &model.embed(x.input()).unwrap(), expected.floats("eval_embedding"), tolerance);
        let mut lengths = 0;
        for key in expected.tensors.keys().filter(|key| key.starts_with("eval_embedding_")) {
            let length = key.strip_prefix("eval_embedding_len").map_or(x.frames / 2, |length| length.parse().unwrap());
            let short = x.piece(1, 0, length);
            assert_embedding(name, &model.embed(short.input()).unwrap(), expected.floats(key), tolerance);
            lengths += 1;
        }
        assert!(lengths > 0, "{name}: no shorter input");
    });
}

#[test]
fn train_embeddings_and_running_statistics_match_the_reference() {
    check_train_embeddings(Cpu::new, 1.0);
}

fn check_train_embeddings<B: Backend>(backend: impl Fn() -> B, slack: f32) {
    each_model(backend, |name, mut model, x, expected, case| {
        let before = model.params().norms()[0].batches;
        assert_embedding(
            name,
            &model.forward_training(x.input()).unwrap(),
            expected.floats("train_embedding"),
            slack * Tolerances::of(case).train,
        );
        let state = model.state().unwrap();
        let mut compared = 0;
        for (key, _) in expected.tensors.iter().filter(|(key, _)| key.starts_with("after_train.")) {
            let tensor = key.trim_start_matches("after_train.");
            let (got, expected) = (state.floats(tensor), expected.floats(key));
            let error = furthest(got, expected) / largest(expected);
            assert!(error <= slack * 1e-5, "{name} {tensor}: relative error {error:e}");
            compared += 1;
        }
        assert_eq!(compared, 2 * model.params().norms().len(), "{name}: every batch norm has two statistics");
        assert_eq!(model.params().norms()[0].batches, before + 1);
    });
}

/// Gradients of the loss that a golden file holds in full or in samples, beside ours.
fn gradients<B: Backend>(
    model: &TrainableModel<B>,
    expected: &Checkpoint,
    case: &Value,
    prefix: &str,
) -> Vec<(String, Vec<f32>, Vec<f32>)> {
    let pairs = model.params().all().iter().map(|parameter| {
        let name = &parameter.param.name;
        let key = format!("{prefix}grad.{name}");
        if expected.tensors.contains_key(&key) {
            return (name.clone(), gradient(model, parameter), expected.floats(&key).to_vec());
        }
        let stride = case["grad"][name]["sample_stride"].as_u64().unwrap() as usize;
        let sample = expected.floats(&format!("{prefix}grad_sample.{name}"));
        (
            name.clone(),
            gradient(model, parameter).into_iter().step_by(stride).take(sample.len()).collect(),
            sample.to_vec(),
        )
    });
    pairs.collect()
}

/// In exact arithmetic the gradients of these biases are zero: a softmax over time does not see a constant. Errors are
/// measured by the gradient of the weights beside them.
const VANISHING: [&str; 2] = ["pool.linear2", "asp.conv.conv"];

fn vanishes(parameter: &str) -> bool {
    parameter.strip_suffix(".bias").is_some_and(|layer| VANISHING.contains(&layer))
}

#[test]
fn gradients_match_the_reference_on_input_without_relu_flips() {
    check_gradients(Cpu::new, 1.0);
}

fn check_gradients<B: Backend>(backend: impl Fn() -> B, slack: f32) {
    each_model(backend, |name, mut model, x, expected, case| {
        let number = |key: &str| case["short"][key].as_u64().unwrap() as usize;
        let short = x.piece(x.batch, number("first_frame"), number("frames"));
        check_gradients_of(name, &mut model, &short, expected, case, "short.", slack);
        if case["bias_nudges"].is_object() {
            // no ReLU is near its kink on the full input either
            let mut model = load_again(model, name);
            check_gradients_of(name, &mut model, &x, expected, case, "", slack);
        }
    });
}

/// The model before its first step.
fn load_again<B: Backend>(mut model: TrainableModel<B>, name: &str) -> TrainableModel<B> {
    model.load(&tensors(name)).unwrap();
    model
}

fn check_gradients_of<B: Backend>(
    name: &str,
    model: &mut TrainableModel<B>,
    x: &Features,
    expected: &Checkpoint,
    case: &Value,
    prefix: &str,
    slack: f32,
) {
    let tolerances = Tolerances::of(case);
    let embedding = model.forward_training(x.input()).unwrap();
    assert_embedding(name, &embedding, expected.floats(&format!("{prefix}train_embedding")), slack * tolerances.train);
    model.backward(&x.slope(&embedding)).unwrap();
    let gradients = gradients(model, expected, case, prefix);
    let weighs = |name: &str| name.strip_suffix(".weight").is_some_and(|layer| VANISHING.contains(&layer));
    let vanishing_scale = gradients.iter().find(|(name, ..)| weighs(name)).map_or(0.0, |(_, _, g)| largest(g));
    let recorded = format!("{}absmax", prefix.replace('.', "_"));
    for (parameter, got, expected) in gradients {
        let whole = case["grad"][&parameter][&recorded].as_f64();
        let scale =
            if vanishes(&parameter) { vanishing_scale } else { whole.map_or(largest(&expected), |whole| whole as f32) };
        let error = furthest(&got, &expected) / scale;
        assert!(error <= slack * tolerances.gradient, "{name} {prefix}{parameter}: relative error {error:e}");
    }
}

#[test]
fn gradients_match_the_reference_on_the_full_input_up_to_relu_flips() {
    check_gradients_up_to_flips(Cpu::new, 3e-2, |_| 1e-3);
}

/// The sign of a ReLU's input that lies within rounding of zero is chance, and one that turns in a late layer moves
/// most gradients. So where the median exceeds `typical`, it must be one that rounding alone makes: our own gradients
/// differ as much between inputs that differ by rounding. Where no sign turns, those differ by rounding only, and an
/// error stands out.
fn check_gradients_up_to_flips<B: Backend>(backend: impl Fn() -> B, each: f64, typical: impl Fn(&Architecture) -> f64) {
    each_model(backend, |name, mut model, x, expected, case| {
        let mut gradients_of = |x: &Features| {
            let embedding = model.forward_training(x.input()).unwrap();
            model.backward(&x.slope(&embedding)).unwrap();
            // the samples of the reference are few; the length of the whole gradient was recorded, too
            for parameter in model.params().all().iter().filter(|parameter| !vanishes(&parameter.param.name)) {
                let name = &parameter.param.name;
                let (length, recorded) =
                    (norm(&gradient(&model, parameter)), case["grad"][name]["l2"].as_f64().unwrap());
                let close = (length - recorded).abs() <= each * recorded;
                assert!(close, "{name}: length {length}, not {recorded}");
            }
            let all = gradients(&model, expected, case, "").into_iter();
            all.filter(|(name, ..)| !vanishes(name)).collect::<Vec<_>>()
        };
        let ours = gradients_of(&x);
        let errors: Vec<f64> = ours.iter().map(|(_, got, expected)| relative_l2(got, expected)).collect();
        for ((parameter, ..), error) in ours.iter().zip(&errors) {
            assert!(*error <= each, "{name} {parameter}: relative l2 error {error:e}");
        }
        let (typical, median) = (typical(&architecture(case)), median(errors));
        if median > typical {
            let by_rounding = (1..=4).map(|nudge| {
                let nudged = gradients_of(&x.scaled(1.0 + nudge as f32 * f32::EPSILON));
                self::median(nudged.iter().zip(&ours).map(|(a, b)| relative_l2(&a.1, &b.1)).collect())
            });
            let by_rounding = by_rounding.fold(0.0, f64::max);
            assert!(
                median <= 2.0 * by_rounding,
                "{name}: median relative error {median:e}, {by_rounding:e} by rounding"
            );
        }
    });
}

fn norm(values: &[f32]) -> f64 {
    values.iter().map(|&value| f64::from(value) * f64::from(value)).sum::<f64>().sqrt()
}

fn relative_l2(got: &[f32], expected: &[f32]) -> f64 {
    let difference: Vec<f32> = got.iter().zip(expected).map(|(a, b)| a - b).collect();
    norm(&difference) / norm(expected)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The same on a GPU; on a machine without one these say so and pass.
#[cfg(feature = "cuda")]
mod cuda {
    use bregman_nn::{Architecture, NetworkConfig};
    use bregman_tensor::{Precision, cuda::Cuda};

    fn on_gpu(precision: Precision, check: impl Fn(&dyn Fn() -> Cuda)) {
        if Cuda::open_or_skip(precision, bregman_skip::no_gpu).is_some() {
            check(&|| Cuda::open(0, precision).unwrap());
        }
    }

    #[test]
    fn eval_embeddings_match_the_reference() {
        on_gpu(Precision::F32, |backend| super::check_eval_embeddings(backend, 2.0));
        // bf16 keeps 8 bits: 4e-3 per rounding
        on_gpu(Precision::Bf16, |backend| super::check_eval_embeddings(backend, 1500.0));
    }

    #[test]
    fn train_embeddings_and_running_statistics_match_the_reference() {
        on_gpu(Precision::F32, |backend| super::check_train_embeddings(backend, 5.0));
        on_gpu(Precision::Bf16, |backend| super::check_train_embeddings(backend, 3000.0));
    }

    #[test]
    fn gradients_match_the_reference() {
        on_gpu(Precision::F32, |backend| super::check_gradients(backend, 1.0));
        on_gpu(Precision::F32, |backend| super::check_gradients_up_to_flips(backend, 3e-2, |_| 1e-2));
        // with flipped ReLUs a single gradient may be anything; `bf16_gradients.rs` has each of them without flips. The
        // typical one: the median error of PyTorch 2.11 with bf16 autocast is 0.19 on ecapa_c32_noglob, 0.18 on
        // ecapa_c64_glob, 0.61 on resnet34_m8 and 0.72 on campplus_g8_m8, where what leaves a norm is bf16 here, too
        let typical = |architecture: &Architecture| match architecture.network {
            NetworkConfig::Ecapa(_) => 0.2,
            NetworkConfig::CampPlus(_) => 0.76,
            _ => 0.62,
        };
        on_gpu(Precision::Bf16, |backend| super::check_gradients_up_to_flips(backend, f64::INFINITY, typical));
    }
}
