//! The networks against WeSpeaker's, run in float64: outputs, statistics and every gradient.

mod common;

use bregman_nn::{Architecture, Checkpoint, Parameter, TrainableModel};
use bregman_tensor::{Backend, Cpu};
use common::{Features, Floats, architecture, furthest, json, largest, load, model_cases, tensors};
use serde_json::Value;

/// Each golden model with its weights and expectations.
fn each_model<B: Backend>(backend: impl Fn() -> B, check: impl Fn(&str, TrainableModel<B>, &Checkpoint, &Value)) {
    for name in model_cases() {
        let case = json(&format!("{name}_expected"));
        check(&name, load(backend(), &case, &tensors(&name)), &tensors(&format!("{name}_expected")), &case);
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
    let x = Features::read();
    each_model(backend, |name, mut model, expected, case| {
        let tolerance = slack * if case["kind"] == "resnet" { 5e-5 } else { 2e-5 };
        assert_embedding(name, &model.embed(x.input()).unwrap(), expected.floats("eval_embedding"), tolerance);
        let short = x.piece(1, 0, x.frames / 2);
        assert_embedding(
            name,
            &model.embed(short.input()).unwrap(),
            expected.floats("eval_embedding_short"),
            tolerance,
        );
    });
}

#[test]
fn train_embeddings_and_running_statistics_match_the_reference() {
    check_train_embeddings(Cpu::new, 1.0);
}

fn check_train_embeddings<B: Backend>(backend: impl Fn() -> B, slack: f32) {
    let x = Features::read();
    each_model(backend, |name, mut model, expected, _| {
        let before = model.params().norms()[0].batches;
        assert_embedding(
            name,
            &model.forward_training(x.input()).unwrap(),
            expected.floats("train_embedding"),
            slack * 2e-5,
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

/// Gradients of Σ embedding² that a golden file holds in full or in samples, beside ours.
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

/// In exact arithmetic this gradient is zero: a softmax over time does not see a constant.
const VANISHING: &str = "pool.linear2.bias";

#[test]
fn gradients_match_the_reference_on_input_without_relu_flips() {
    check_gradients(Cpu::new, 1.0);
}

fn check_gradients<B: Backend>(backend: impl Fn() -> B, slack: f32) {
    let x = Features::read();
    each_model(backend, |name, mut model, expected, case| {
        let short = &case["short"];
        let number = |key: &str| short[key].as_u64().unwrap() as usize;
        let piece = x.piece(x.batch, number("first_frame"), number("frames"));
        let embedding = model.forward_training(piece.input()).unwrap();
        assert_embedding(name, &embedding, expected.floats("short.train_embedding"), slack * 2e-5);
        model.backward(&embedding.iter().map(|e| 2.0 * e).collect::<Vec<_>>()).unwrap();
        let gradients = gradients(&model, expected, case, "short.");
        let vanishing_scale =
            gradients.iter().find(|(name, ..)| name == "pool.linear2.weight").map_or(0.0, |(_, _, g)| largest(g));
        for (parameter, got, expected) in gradients {
            let scale = if parameter == VANISHING { vanishing_scale } else { largest(&expected) };
            let error = furthest(&got, &expected) / scale;
            assert!(error <= slack * 2e-4, "{name} {parameter}: relative error {error:e}");
        }
    });
}

#[test]
fn gradients_match_the_reference_on_the_full_input_up_to_relu_flips() {
    check_gradients_up_to_flips(Cpu::new, 3e-2, |_| 1e-3);
}

fn check_gradients_up_to_flips<B: Backend>(backend: impl Fn() -> B, each: f64, typical: impl Fn(&Architecture) -> f64) {
    let x = Features::read();
    each_model(backend, |name, mut model, expected, case| {
        let embedding = model.forward_training(x.input()).unwrap();
        model.backward(&embedding.iter().map(|e| 2.0 * e).collect::<Vec<_>>()).unwrap();
        let mut errors = Vec::new();
        for (parameter, got, expected) in gradients(&model, expected, case, "") {
            if parameter == VANISHING {
                continue;
            }
            let norm =
                |values: &mut dyn Iterator<Item = f32>| values.map(|v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt();
            let error = norm(&mut got.iter().zip(&expected).map(|(a, b)| a - b)) / norm(&mut expected.iter().copied());
            assert!(error <= each, "{name} {parameter}: relative l2 error {error:e}");
            errors.push(error);
            // the samples are few; the length of the whole gradient was recorded too
            let whole = model.params().all().iter().find(|p| p.param.name == parameter).unwrap();
            let length = norm(&mut gradient(&model, whole).into_iter());
            let recorded = case["grad"][&parameter]["l2"].as_f64().unwrap();
            assert!(
                (length - recorded).abs() <= each * recorded,
                "{name} {parameter}: length {length}, not {recorded}"
            );
        }
        errors.sort_by(f64::total_cmp);
        let median = errors[errors.len() / 2];
        assert!(median <= typical(&architecture(case)), "{name}: median relative error {median:e}");
    });
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
        // ecapa_c64_glob and 0.61 on resnet34_m8
        let typical = |architecture: &Architecture| {
            if matches!(architecture.network, NetworkConfig::Ecapa(_)) { 0.2 } else { 0.62 }
        };
        on_gpu(Precision::Bf16, |backend| super::check_gradients_up_to_flips(backend, f64::INFINITY, typical));
    }
}
