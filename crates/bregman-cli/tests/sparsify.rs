//! `bregman sparsify` as a user runs it, on a small CAM++ of 3D-Speaker.

mod common;

use std::path::Path;
use std::process::Output;

use bregman_speaker::{Corpus, CorpusPart};
use common::{bregman, errors, json, mistake, success, synth, text};

fn sparsify(corpus: &Path, out: &Path, more: &[&str]) -> Output {
    let network = bregman_golden::own("campplus_g8_m8.safetensors");
    let small = ["data.seconds=0.4", "data.validation=0.2", "train.batch=4", "train.epochs=2"];
    let small: Vec<&str> = small.iter().flat_map(|setting| ["--set", setting]).collect();
    let asked = ["sparsify", text(&network), "--corpus", text(corpus), "--target", "0.5", "-o", text(out)];
    let front_end = ["--front-end", "3d-speaker"];
    bregman(&[&asked, &front_end[..], &small[..], more].concat())
}

#[test]
fn a_published_network_becomes_a_sparse_model_file_and_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let (voices, out) = (folder.path().join("voices"), folder.path().join("sparse.breg"));
    synth(&voices, [3, 6, 1], ["0.8", "0.9"]);
    let report = json(&sparsify(&voices, &out, &["--json"]));
    assert_eq!(report["bytes"].as_u64(), Some(std::fs::metadata(&out).unwrap().len()));
    assert!((report["zeros_in_file"].as_f64().unwrap() - 0.5).abs() < 0.01, "{report}");
    let model = bregman_runtime::Model::open(&out).unwrap();
    let front_end = model.front_end().settings();
    assert_eq!((&front_end["front_end"]["window"], &front_end["waveform"]), (&"povey".into(), &"decoded".into()));

    // the run beside it is one like any other
    let run = folder.path().join("sparse.run");
    let inspected = success(&bregman(&["inspect", text(&run)]));
    assert!(inspected.contains("xvector.tdnn"), "{inspected}");
    assert!(mistake(&sparsify(&voices, &out, &[])).contains("--force"));
    let again = sparsify(&voices, &out, &["--force"]);
    assert!(mistake(&again).contains("sparse.run"), "a run is there already");
    assert_eq!(json(&sparsify(&voices, &out, &["--force", "--resume", "--json"]))["nonzero"], report["nonzero"]);
}

/// The same recordings as shards, in one folder per speaker, and all in one folder.
#[test]
fn shards_and_plain_folders_will_do_and_trials_are_scored_after_every_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let (voices, shards, plain) = (place("voices"), place("shards"), place("plain"));
    synth(&voices, [4, 4, 2], ["0.8", "0.9"]);
    success(&bregman(&["shard", text(&voices.join("train.csv")), "--out", text(&shards)]));
    std::fs::create_dir(&plain).unwrap();
    for speaker in ["s00000", "s00001"] {
        std::fs::rename(voices.join(speaker), plain.join(speaker)).unwrap();
    }

    let trials = voices.join("trials.txt");
    // the statistics of this network's norms are those of noise: to it all voices are the same, and a large step away
    // from there changes that little
    let of_batches = ["--set", "train.fixed_norms=false", "--set", "train.lr=0.001"];
    let scoring = ["--trials", text(&trials), "--root", text(&voices)];
    let scored = sparsify(&shards, &place("scored.breg"), &[&of_batches[..], &scoring].concat());
    success(&scored);
    assert_eq!(errors(&scored).matches("  EER ").count(), 2, "a line of each epoch: {}", errors(&scored));
    let log = std::fs::read_to_string(place("scored.run").join("metrics.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let rates: Vec<f64> = lines.iter().filter_map(|line| line["eer"].as_f64()).collect();
    assert!(rates.len() == 2 && rates.iter().all(|rate| (0.0..=1.0).contains(rate)), "{rates:?}");
    let best = bregman_runtime::Model::open(place("scored.breg")).unwrap().calibration().unwrap().eer.unwrap();
    assert!(rates.iter().any(|rate| (rate - best).abs() < 0.1), "{rates:?} and {best} of the file, in f16");

    // scoring changes nothing
    success(&sparsify(&shards, &place("plainly.breg"), &of_batches));
    let weights = |run: &str| std::fs::read(place(run).join("last/model.safetensors")).unwrap();
    assert!(weights("scored.run") == weights("plainly.run"));

    success(&sparsify(&plain, &place("folder.breg"), &[]));
    assert!(place("folder.run").join("corpus.csv").is_file());
    // speakers do not matter: files that lie in no folder will do
    let loose = place("loose");
    std::fs::create_dir(&loose).unwrap();
    for (number, utterance) in Corpus::Folder.find(&plain, CorpusPart::All).unwrap().utterances.iter().enumerate() {
        std::fs::copy(&utterance.path, loose.join(format!("{number}.wav"))).unwrap();
    }
    let held = bregman_train::RunFolder::new(place("loose.run")).lock_new().unwrap();
    let message = mistake(&sparsify(&loose, &place("loose.breg"), &[]));
    assert!(message.contains("which is training here"), "{message}");
    assert_eq!(std::fs::read_dir(place("loose.run")).unwrap().count(), 1, "its lock, and nothing else");
    drop(held);
    success(&sparsify(&loose, &place("loose.breg"), &[]));

    // another corpus does not touch the run that is there
    let message = mistake(&sparsify(&loose, &place("folder.breg"), &["--force"]));
    assert!(message.contains("folder.run") && message.contains("--resume"), "{message}");
    success(&sparsify(&plain, &place("folder.breg"), &["--force", "--resume"]));
    let message = mistake(&sparsify(&shards, &place("no.breg"), &["--trials", text(&trials), "--root", "nowhere"]));
    assert!(message.contains("nowhere") && !place("no.run").exists(), "{message}");
}

#[test]
fn what_cannot_be_made_sparse_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let (empty, out) = (folder.path().join("empty"), folder.path().join("sparse.breg"));
    std::fs::create_dir(&empty).unwrap();
    let message = mistake(&sparsify(&empty, &out, &[]));
    assert!(message.contains("empty") && !out.exists(), "{message}");
    let message = mistake(&sparsify(&empty, &out, &["--for", "speed", "--by", "magnitude"]));
    assert!(message.contains("--for speed") && message.contains("--by magnitude"), "{message}");
}
