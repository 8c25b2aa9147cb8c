//! A trained network becomes sparse without labels: from its own weights, after its own embeddings.

mod common;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use bregman_nn::{Checkpoint, TrainableModel};
use bregman_tensor::Cpu;
use bregman_train::config::{FrontEndChoice, Sparsify, SparsifyBy, ZerosFor};
use bregman_train::{Deployable, Ending, Experiment, Ranks, Trainer};
use common::{StopAfter, assert_same_metrics, corpus, metrics, recipe, train, weights};

/// A corpus and a trained dense network on it.
fn prepared(folder: &Path) -> (PathBuf, PathBuf) {
    let (voices, dense) = (folder.join("voices"), folder.join("dense"));
    corpus(&voices);
    train(recipe(&voices, "kind = \"dense\"\noptimizer = { kind = \"adamw\" }", &[]), &dense).unwrap();
    (voices, dense)
}

fn experiment(voices: &Path, network: &Path, settings: &[&str]) -> Experiment {
    asked((SparsifyBy::Bregman, ZerosFor::Size), voices, network, settings)
}

fn asked((by, zeros_for): (SparsifyBy, ZerosFor), voices: &Path, network: &Path, settings: &[&str]) -> Experiment {
    configured(&Sparsify { by, zeros_for, ..sparsify(voices, network) }, settings)
}

fn sparsify(voices: &Path, network: &Path) -> Sparsify {
    Sparsify {
        by: SparsifyBy::default(),
        zeros_for: ZerosFor::default(),
        network: network.to_owned(),
        front_end: None,
        root: voices.to_owned(),
        corpus: "train.csv".into(),
        target: 0.8,
        surroundings: None,
    }
}

fn configured(sparsify: &Sparsify, settings: &[&str]) -> Experiment {
    let small = ["data.seconds=0.3", "data.validation=0.2", "train.batch=8", "train.epochs=4"];
    sparsify.experiment(&[&small[..], settings].concat(), &Ranks::ALONE, &()).unwrap()
}

fn state(path: &Path) -> Checkpoint {
    Deployable::open(path).unwrap().model().state().unwrap()
}

#[test]
fn the_first_step_begins_from_the_trained_weights_and_the_last_has_the_target() {
    let folder = tempfile::tempdir().unwrap();
    let (voices, dense) = prepared(folder.path());
    let run = folder.path().join("sparse");
    // a rate of almost nothing shows what the start alone does
    let still = experiment(&voices, &dense, &["train.lr=1e-12", "method.warmup=1000000"]);
    train(still, &folder.path().join("still")).unwrap();
    let (before, after) = (state(&dense), state(&folder.path().join("still")));
    for (name, array) in &before.tensors {
        let (bregman_nn::Values::F32(a), bregman_nn::Values::F32(b)) = (&array.values, &after.tensors[name].values)
        else {
            continue;
        };
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-6 * a.abs().max(1e-3)), "{name} moved");
    }

    let outcome = train(experiment(&voices, &dense, &[]), &run).unwrap();
    assert_eq!(outcome.ending, Ending::Finished);
    assert!((outcome.state.sparsity - 0.8).abs() < 0.01, "{}", outcome.state.sparsity);
    let steps: Vec<_> = metrics(&run).into_iter().filter(|line| line["kind"] == "step").collect();
    for step in &steps {
        let [sparsity, target] = ["sparsity", "target"].map(|key| step[key].as_f64().unwrap());
        assert!((sparsity - target).abs() < 0.01, "it rises with its target: {step}");
    }
    assert!(steps[0]["target"].as_f64().unwrap() < 0.2, "{}", steps[0]);
    assert!(steps[0]["loss"].as_f64().unwrap() < 1e-5, "a network begins as itself: {}", steps[0]);
    // it has no classifier, and is a run like any other
    assert!(state(&run).tensors.keys().all(|name| !name.starts_with("projection")));
    let zeros = Deployable::open(&run).unwrap().to_model().unwrap();
    let model = zeros.to_bytes(bregman_runtime::ValueFormat::F32).unwrap();
    let model = bregman_runtime::Model::from_bytes(&model).unwrap();
    assert!((model.zeros_in_file() - 0.8).abs() < 0.02, "{}", model.zeros_in_file());
}

#[test]
fn by_magnitude_it_has_the_target_after_its_ramp() {
    let folder = tempfile::tempdir().unwrap();
    let (voices, dense) = prepared(folder.path());
    let run = folder.path().join("pruned");
    let outcome = train(asked((SparsifyBy::Magnitude, ZerosFor::Size), &voices, &dense, &[]), &run).unwrap();
    assert!((outcome.state.sparsity - 0.8).abs() < 1e-3, "{}", outcome.state.sparsity);
    let lines = metrics(&run);
    let at_target = |step: &&serde_json::Value| step["sparsity"].as_f64().is_some_and(|sparsity| sparsity > 0.799);
    let reached = lines.iter().filter(|line| line["kind"] == "step").find(at_target).unwrap();
    assert_eq!(reached["epoch"].as_u64(), Some(2), "60 % of four epochs are two whole ones");
}

#[test]
fn zeros_for_speed_leave_less_work_at_the_same_target() {
    let folder = tempfile::tempdir().unwrap();
    let (voices, dense) = prepared(folder.path());
    let left = |zeros_for: ZerosFor, name: &str| {
        let run = folder.path().join(name);
        let outcome = train(asked((SparsifyBy::Bregman, zeros_for), &voices, &dense, &[]), &run).unwrap();
        assert!((outcome.state.sparsity - 0.8).abs() < 0.01, "{}", outcome.state.sparsity);
        let written = Deployable::open(&run).unwrap().to_model().unwrap();
        let model = written.to_bytes(bregman_runtime::ValueFormat::F32).unwrap();
        let model = bregman_runtime::Model::from_bytes(&model).unwrap();
        model.layers().iter().map(|layer| layer.multiply_adds(300)).sum::<u64>()
    };
    let [size, speed] = [left(ZerosFor::Size, "size"), left(ZerosFor::Speed, "speed")];
    assert!(10 * speed < 9 * size, "{speed} of {size} multiply-adds");
}

/// Without labels, and with them.
#[test]
fn a_stopped_and_continued_run_equals_an_unbroken_one() {
    let folder = tempfile::tempdir().unwrap();
    let (voices, dense) = prepared(folder.path());
    for (name, settings) in [("alone", &[][..]), ("with labels", &["loss.distance=5"])] {
        let folder = folder.path().join(name);
        let classifier = resumed_exactly(&folder, experiment(&voices, &dense, settings));
        assert_eq!(classifier, name == "with labels");
    }
}

/// Whether the network has a classifier, too.
fn resumed_exactly(folder: &Path, experiment: Experiment) -> bool {
    let (whole, broken) = (folder.join("whole"), folder.join("broken"));
    train(experiment.clone(), &whole).unwrap();
    let first = StopAfter::new(3);
    Trainer::new(experiment, &broken, &first).unwrap().run(&first.stop).unwrap();
    let end = Trainer::resume(&broken, &()).unwrap().run(&AtomicBool::new(false)).unwrap();
    assert_eq!(end.ending, Ending::Finished);
    assert_same_metrics(&broken, &whole, "sparsify");
    assert_eq!(weights(&broken, "last"), weights(&whole, "last"));
    let model = Checkpoint::read(&whole.join("last/model.safetensors")).unwrap();
    model.tensors.keys().any(|name| name.starts_with("projection"))
}

#[test]
fn a_checkpoint_of_others_is_a_teacher_and_one_that_does_not_fit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let voices = folder.path().join("voices");
    corpus(&voices);
    let config = bregman_nn::CampPlusConfig { head: 2, channels: 4, growth: 2, bottleneck: 2, embedding: 6 };
    let architecture = bregman_nn::Architecture::new(16, config);
    let path = folder.path().join("campplus.safetensors");
    TrainableModel::new(Cpu::new(), &architecture, None, 3).unwrap().state().unwrap().write(&path).unwrap();
    let asked = Sparsify { front_end: Some(FrontEndChoice::ThreeDSpeaker), ..sparsify(&voices, &path) };
    let fits = configured(&asked, &["train.epochs=1"]);
    assert_eq!(fits.architecture(), architecture);
    assert_eq!(fits.data.features.fbank(), FrontEndChoice::ThreeDSpeaker.fbank(16).unwrap());
    let run = folder.path().join("run");
    let outcome = train(fits.clone(), &run).unwrap();
    assert_eq!(outcome.ending, Ending::Finished);
    for of_run in [run.clone(), run.join("last"), run.join("last/model.safetensors")] {
        assert_eq!(*Deployable::open(&of_run).unwrap().features(), fits.data.features.fbank(), "{}", of_run.display());
        let message = Deployable::open_with(&of_run, asked.front_end).map(|_| ()).unwrap_err().to_string();
        assert!(message.contains("front_end = 3d-speaker") && message.contains("knows its own"), "{message}");
    }

    let speechbrain = bregman_golden::file("embedding_model.ckpt");
    let mirrors = experiment(&voices, &speechbrain, &["train.epochs=1"]);
    assert_eq!(mirrors.data.features.fbank(), *Deployable::open(&speechbrain).unwrap().features());
    let outcome = train(mirrors, &folder.path().join("speechbrain")).unwrap();
    assert!((outcome.state.sparsity - 0.8).abs() < 0.01, "{}", outcome.state.sparsity);
    let steps: Vec<_> =
        metrics(&folder.path().join("speechbrain")).into_iter().filter(|line| line["kind"] == "step").collect();
    assert!(steps[0]["loss"].as_f64().unwrap() < 1e-5, "a network begins as itself: {}", steps[0]);

    let refused = |settings: &[&str]| {
        train(configured(&asked, settings), &folder.path().join("refused")).unwrap_err().to_string()
    };
    let message = refused(&["data.features.window=hamming"]);
    assert!(message.contains("init = ") && message.contains("povey"), "{message}");
    let message = refused(&["model.embedding=7"]);
    assert!(message.contains("campplus.safetensors") && message.contains("xvector.dense"), "{message}");
}
