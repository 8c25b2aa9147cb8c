//! The networks against WeSpeaker's, run in float64: outputs, statistics and every gradient.

mod common;

use bregman_nn::{Checkpoint, Model};
use bregman_tensor::Cpu;
use common::{Features, Floats, furthest, json, largest, load, model_cases, tensors};
use serde_json::Value;

/// Each golden model with its weights and expectations.
fn each_model(check: impl Fn(&str, Model<Cpu>, &Checkpoint, &Value)) {
    for name in model_cases() {
        let case = json(&format!("{name}_expected"));
        check(&name, load(&case, &tensors(&name)), &tensors(&format!("{name}_expected")), &case);
    }
}

fn assert_embedding(name: &str, got: &[f32], expected: &[f32], tolerance: f32) {
    let error = furthest(got, expected) / largest(expected);
    assert!(error <= tolerance, "{name}: relative error {error:e} over {tolerance:e}");
}

#[test]
fn eval_embeddings_match_the_reference() {
    let x = Features::read();
    each_model(|name, mut model, expected, case| {
        let tolerance = if case["kind"] == "resnet" { 5e-5 } else { 2e-5 };
        assert_embedding(name, &model.embed(x.input()).unwrap(), expected.floats("eval_embedding"), tolerance);
        let short = x.piece(1, 0, x.frames / 2);
        assert_embedding(name, &model.embed(short.input()).unwrap(), expected.floats("eval_embedding_short"), tolerance);
    });
}

#[test]
fn train_embeddings_and_running_statistics_match_the_reference() {
    let x = Features::read();
    each_model(|name, mut model, expected, _| {
        let before = model.params().norms()[0].batches;
        assert_embedding(name, &model.forward_training(x.input()).unwrap(), expected.floats("train_embedding"), 2e-5);
        let state = model.state().unwrap();
        let mut compared = 0;
        for (key, _) in expected.tensors.iter().filter(|(key, _)| key.starts_with("after_train.")) {
            let tensor = key.trim_start_matches("after_train.");
            let (got, expected) = (state.floats(tensor), expected.floats(key));
            let error = furthest(got, expected) / largest(expected);
            assert!(error <= 1e-5, "{name} {tensor}: relative error {error:e}");
            compared += 1;
        }
        assert_eq!(compared, 2 * model.params().norms().len(), "{name}: every batch norm has two statistics");
        assert_eq!(model.params().norms()[0].batches, before + 1);
    });
}

/// Gradients of Σ embedding² that a golden file holds in full or in samples, beside ours.
fn gradients(model: &Model<Cpu>, expected: &Checkpoint, case: &Value, prefix: &str) -> Vec<(String, Vec<f32>, Vec<f32>)> {
    let pairs = model.params().all().iter().map(|parameter| {
        let name = &parameter.name;
        let key = format!("{prefix}grad.{name}");
        if expected.tensors.contains_key(&key) {
            return (name.clone(), parameter.grad.to_vec(), expected.floats(&key).to_vec());
        }
        let stride = case["grad"][name]["sample_stride"].as_u64().unwrap() as usize;
        let sample = expected.floats(&format!("{prefix}grad_sample.{name}"));
        (name.clone(), parameter.grad.iter().step_by(stride).take(sample.len()).copied().collect(), sample.to_vec())
    });
    pairs.collect()
}

/// In exact arithmetic this gradient is zero: a softmax over time does not see a constant.
const VANISHING: &str = "pool.linear2.bias";

#[test]
fn gradients_match_the_reference_on_input_without_relu_flips() {
    let x = Features::read();
    each_model(|name, mut model, expected, case| {
        let short = &case["short"];
        let number = |key: &str| short[key].as_u64().unwrap() as usize;
        let piece = x.piece(x.batch, number("first_frame"), number("frames"));
        let embedding = model.forward_training(piece.input()).unwrap();
        assert_embedding(name, &embedding, expected.floats("short.train_embedding"), 2e-5);
        model.backward(&embedding.iter().map(|e| 2.0 * e).collect::<Vec<_>>()).unwrap();
        let gradients = gradients(&model, expected, case, "short.");
        let vanishing_scale = gradients.iter().find(|(name, ..)| name == "pool.linear2.weight").map_or(0.0, |(_, _, g)| largest(g));
        for (parameter, got, expected) in gradients {
            let scale = if parameter == VANISHING { vanishing_scale } else { largest(&expected) };
            let error = furthest(&got, &expected) / scale;
            assert!(error <= 2e-4, "{name} {parameter}: relative error {error:e}");
        }
    });
}

#[test]
fn gradients_match_the_reference_on_the_full_input_up_to_relu_flips() {
    let x = Features::read();
    each_model(|name, mut model, expected, case| {
        let embedding = model.forward_training(x.input()).unwrap();
        model.backward(&embedding.iter().map(|e| 2.0 * e).collect::<Vec<_>>()).unwrap();
        let mut errors = Vec::new();
        for (parameter, got, expected) in gradients(&model, expected, case, "") {
            if parameter == VANISHING {
                continue;
            }
            let norm = |values: &mut dyn Iterator<Item = f32>| values.map(|v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt();
            let error = norm(&mut got.iter().zip(&expected).map(|(a, b)| a - b)) / norm(&mut expected.iter().copied());
            assert!(error <= 3e-2, "{name} {parameter}: relative l2 error {error:e}");
            errors.push(error);
            // the samples are few; the length of the whole gradient was recorded too
            let whole = model.params().all().iter().find(|p| p.name == parameter).unwrap();
            let length = norm(&mut whole.grad.iter().copied());
            let recorded = case["grad"][&parameter]["l2"].as_f64().unwrap();
            assert!((length - recorded).abs() <= 3e-2 * recorded, "{name} {parameter}: length {length}, not {recorded}");
        }
        errors.sort_by(f64::total_cmp);
        let median = errors[errors.len() / 2];
        assert!(median <= 1e-3, "{name}: median relative error {median:e}");
    });
}
