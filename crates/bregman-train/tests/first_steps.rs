//! Every recipe that ships takes its first three steps and keeps the sparsity it asks for: on synthetic voices and with
//! small batches, but with the networks, the method and the length of the run that the recipe says. SpeechBrain's ECAPA
//! at full width, which starts as WeSpeaker's does, is left out for the time it takes.
//!
//! A sparse network with a cosine classifier has a first gradient of norm 10⁴ and more. Whatever lets it through opens
//! half of the weights in step 1, and no later step repairs that.

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use bregman_train::config::{BuiltIn, MethodConfig, Validation};
use bregman_train::{Experiment, Trainer};
use common::{StopAfter, corpus, metrics};

const STEPS: u64 = 3;
const BATCH: usize = 4;
/// Cuts of training speech in the corpus of these tests, and so batches per epoch.
const BATCHES: u64 = 8;

/// The steps of a whole run: what λ₀, the period of the controller and the margin depend on.
fn steps_of_the_run(corpus: &str) -> u64 {
    match corpus {
        "audiomnist" => 1_248,
        _ => 160_000, // VoxCeleb: 20 epochs of 2.16 M cuts; CN-Celeb: 40 of 1.15 M; 256 per step
    }
}

/// A recipe on the corpus of these tests.
fn experiment(corpus: &str, network: &str, method: &str, root: &Path) -> Experiment {
    let name = format!("{corpus}/{network}-{method}");
    let mut experiment = Experiment::read(&[&name], &[] as &[&str]).unwrap_or_else(|error| panic!("{name}: {error}"));
    experiment.data.root = root.to_owned();
    experiment.data.cache = None;
    experiment.data.validation = Validation::Share(0.2);
    (experiment.data.seconds, experiment.data.join_seconds) = (0.6, 0.0);
    experiment.train.batch = BATCH;
    experiment.train.epochs = steps_of_the_run(corpus) / BATCHES;
    if let MethodConfig::Snip(config) = &mut experiment.method {
        config.rounds = 2; // a hundred are as many steps
    }
    experiment
}

/// The sparsity after each of the first steps.
fn first_steps(experiment: Experiment, run: &Path) -> Vec<f64> {
    let observer = StopAfter::new(STEPS);
    Trainer::new(experiment, run, &observer).unwrap().run(&observer.stop).unwrap();
    let steps = metrics(run).into_iter().filter(|line| line["kind"] == "step");
    steps.map(|line| line["sparsity"].as_f64().unwrap()).collect()
}

/// The sparsities that are right after the first steps of a method; Bregman methods begin with `start`.
fn expected(method: &MethodConfig, start: f64) -> std::ops::RangeInclusive<f64> {
    match method {
        // A steered λ may already lead to the target.
        MethodConfig::Adaptive(config) => start.min(config.target) - 0.01..=1.0,
        MethodConfig::Fixed(_) => start - 0.01..=1.0,
        MethodConfig::Dense(_) => 0.0..=0.001,
        MethodConfig::Gradual(config) => {
            let first = 1.0 - (1.0 - config.target).powf(1.0 / config.epochs as f64);
            let whole_channels = if config.structure == bregman::Structure::Channels { 0.05 } else { 0.001 };
            first - whole_channels..=first + whole_channels
        }
        MethodConfig::GraNet(config) => config.from - 0.001..=config.target + 0.001,
        MethodConfig::AcDc(_) => 0.0..=0.001,
        MethodConfig::Str(_) => 0.0..=0.2, // what is smaller than the first threshold
        other => other.target().unwrap() - 0.001..=other.target().unwrap() + 0.001,
    }
}

/// Takes the first steps of every method on this network, whose sparse start has `start` zeros. Recipes that come to
/// the same experiment are run once.
fn every_method_keeps_its_sparsity(network: &str, corpora: &[&str], start: f64) {
    let dir = tempfile::tempdir().unwrap();
    let voices = dir.path().join("voices");
    corpus(&voices);
    let mut experiments = BTreeMap::new();
    for corpus in corpora {
        for method in BuiltIn::of_folder("methods").map(BuiltIn::short_name) {
            let experiment = experiment(corpus, network, method, &voices);
            experiments.entry(experiment.to_toml()).or_insert((format!("{corpus}/{network}-{method}"), experiment));
        }
    }
    let mut wrong = Vec::new();
    for (name, experiment) in experiments.into_values() {
        let (run, right) = (dir.path().join("run"), expected(&experiment.method, start));
        let sparsity = first_steps(experiment, &run);
        assert_eq!(sparsity.len() as u64, STEPS, "{name}");
        if !sparsity.iter().all(|sparsity| right.contains(sparsity)) {
            wrong.push(format!("{name}: {sparsity:.4?}, expected {right:.4?}"));
        }
        std::fs::remove_dir_all(&run).unwrap(); // 200 MB each
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn ecapa_at_full_width_keeps_the_sparsity_of_every_method() {
    every_method_keeps_its_sparsity("ecapa", &["voxceleb", "cnceleb"], 0.99);
}

#[test]
fn resnet34_at_full_width_keeps_the_sparsity_of_every_method() {
    every_method_keeps_its_sparsity("resnet34", &["voxceleb", "cnceleb"], 0.99);
}

#[test]
fn campplus_at_full_width_keeps_the_sparsity_of_every_method() {
    every_method_keeps_its_sparsity("campplus", &["voxceleb", "cnceleb"], 0.99);
}

#[test]
fn narrow_networks_keep_the_sparsity_of_every_method() {
    // Ten inputs of every output are 3 % of the first, and most of the first layers of the others: 8 channels.
    every_method_keeps_its_sparsity("ecapa", &["audiomnist"], 0.97);
    every_method_keeps_its_sparsity("resnet34", &["audiomnist"], 0.826);
    every_method_keeps_its_sparsity("campplus", &["audiomnist"], 0.882);
    every_method_keeps_its_sparsity("speechbrain", &["audiomnist"], 0.97);
}

#[test]
fn every_corpus_network_and_method_that_ships_is_run_above() {
    let names = |folder: &str| BuiltIn::of_folder(folder).map(BuiltIn::short_name).collect::<Vec<_>>();
    assert_eq!(names("corpora"), ["audiomnist", "cnceleb", "voxceleb"]);
    assert_eq!(names("networks"), ["campplus", "ecapa", "resnet34", "speechbrain"]);
}
