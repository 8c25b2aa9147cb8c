//! The corpus commands as a user runs them.

mod common;

use std::process::Output;
use std::time::{Duration, Instant};

use common::{bregman, errors, json, start, text};

/// Exit code and standard error.
fn failure(output: &Output) -> (Option<i32>, String) {
    assert!(output.stdout.is_empty());
    (output.status.code(), errors(output))
}

#[test]
fn synth_prepare_and_shard_work_one_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let (voices, manifest, shards) = (dir.path().join("voices"), dir.path().join("m.csv"), dir.path().join("shards"));
    let synth = [
        "synth",
        "--speakers",
        "5",
        "--utterances",
        "4",
        "--seconds",
        "0.3",
        "0.5",
        "--seed",
        "3",
        "--json",
        "--out",
        text(&voices),
    ];
    let made = json(&bregman(&synth));
    assert_eq!((made["train"]["speakers"].as_u64(), made["test"]["utterances"].as_u64()), (Some(4), Some(4)));

    let prepare = ["prepare", "folder", text(&voices), "--out", text(&manifest), "--validation", "0.25", "--json"];
    let prepared = json(&bregman(&prepare));
    assert_eq!(
        (prepared["summary"]["utterances"].as_u64(), prepared["summary"]["speakers"].as_u64()),
        (Some(20), Some(5))
    );
    assert_eq!(prepared["written"].as_array().unwrap().len(), 4);

    let packed = json(&bregman(&["shard", text(&manifest), "--out", text(&shards), "--per-shard", "8", "--json"]));
    assert_eq!((packed["shards"].as_u64(), packed["utterances"].as_u64()), (Some(3), Some(20)));

    for args in [&synth[..], &prepare, &["shard", text(&manifest), "--out", text(&shards)]] {
        let (code, error) = failure(&bregman(args));
        assert_eq!((code, error.lines().count()), (Some(2), 2), "{error}");
        assert!(
            error.starts_with("error: ") && error.contains("already exists") && error.contains("--force"),
            "{error}"
        );
        assert!(bregman(&[args, &["--force"]].concat()).status.success());
    }
}

#[test]
fn tables_show_counts_and_unreadable_files() {
    let dir = tempfile::tempdir().unwrap();
    let voices = dir.path().join("voices");
    let output =
        bregman(&["synth", "--speakers", "3", "--utterances", "2", "--seconds", "0.3", "0.4", "--out", text(&voices)]);
    assert!(output.status.success());
    std::fs::write(voices.join("s00000/broken.flac"), b"fLaC").unwrap();
    let output = bregman(&["prepare", "folder", text(&voices), "--out", text(&dir.path().join("m.csv"))]);
    let table = String::from_utf8(output.stdout).unwrap();
    for expected in ["speakers    3", "utterances  6", "1 files could not be read", "broken.flac: ", "m.summary.json"] {
        assert!(table.contains(expected), "no '{expected}' in\n{table}");
    }
}

#[test]
fn surroundings_are_audio_that_training_takes_and_are_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let (voices, around) = (dir.path().join("voices"), dir.path().join("around"));
    let made = json(&bregman(&["surroundings", "--out", text(&around), "--json"]));
    let folder = |name: &str| made[name].as_str().unwrap().to_owned();
    let wavs = |name: &str| std::fs::read_dir(folder(name)).unwrap().count();
    assert_eq!((wavs("noises"), wavs("rooms")), (16, 32));
    // a call that was killed after the first folder is repeated; what somebody else has put there stays
    std::fs::remove_dir_all(folder("rooms")).unwrap();
    std::fs::create_dir(around.join("rooms.new")).unwrap();
    assert_eq!(json(&bregman(&["surroundings", "--out", text(&around), "--json"])), made);
    assert_eq!((wavs("noises"), wavs("rooms"), around.join("rooms.new").exists()), (16, 32, false));
    let theirs = around.join("noises/street.wav");
    std::fs::copy(around.join("noises/00.wav"), &theirs).unwrap();
    let (code, error) = failure(&bregman(&["surroundings", "--out", text(&around)]));
    assert!(code == Some(2) && error.contains("noises") && theirs.exists(), "{error}");
    assert!(bregman(&["surroundings", "--out", text(&around), "--force"]).status.success() && !theirs.exists());
    bregman(&["synth", "--speakers", "3", "--utterances", "4", "--seconds", "1.0", "1.1", "--out", text(&voices)]);
    let recipe = dir.path().join("mine.toml");
    let data = format!(
        "[data]\nroot = {:?}\nseconds = 0.5\n\
         augment.noise = {{ folder = {:?}, snr_db = [0, 15], probability = 0.5 }}\n\
         augment.reverb = {{ folder = {:?}, probability = 0.5 }}\n",
        text(&voices),
        folder("noises"),
        folder("rooms")
    );
    std::fs::write(&recipe, data).unwrap();
    let run = dir.path().join("run");
    let mut train = vec!["train", text(&recipe), "networks/ecapa", "methods/adabreg", "--out", text(&run)];
    for setting in ["model.channels=16", "train.epochs=1", "train.batch=2"] {
        train.extend(["--set", setting]);
    }
    let output = bregman(&train);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn mistakes_exit_with_2_one_line_and_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let (nowhere, out) = (dir.path().join("nowhere"), dir.path().join("m.csv"));
    let bad = dir.path().join("bad.csv");
    std::fs::write(&bad, "file,who\na,b\n").unwrap();
    let cases: [(&[&str], &str); 6] = [
        (&["prepare", "folder", text(&nowhere), "--out", text(&out)], "nowhere: No such file"),
        (&["prepare", "folder", text(dir.path()), "--out", text(&out)], "no audio found"),
        (&["prepare", "csv", text(&bad), "--out", text(&out)], "the header has no column 'speaker'"),
        (&["prepare", "folder", text(dir.path()), "--out", text(&out), "--validation", "1.5"], "validation = 1.5"),
        (&["synth", "--speakers", "1", "--out", text(&nowhere)], "speakers = 1"),
        (&["shard", text(&nowhere), "--out", text(&out)], "nowhere: No such file"),
    ];
    for (args, expected) in cases {
        let (code, error) = failure(&bregman(args));
        assert_eq!(code, Some(2), "{args:?}: {error}");
        assert!(error.starts_with("error: ") && error.lines().next().unwrap().contains(expected), "{args:?}: {error}");
    }
    assert!(!out.exists());
    let (code, error) = failure(&bregman(&["prepare", "foldr", "x", "--out", "y"]));
    assert!(code == Some(2) && error.contains("folder"), "{error}");
}

/// Kills a `prepare` half-way, starts it again, and compares with an uninterrupted run.
#[test]
fn a_killed_prepare_continues_where_it_was() {
    const FILES: usize = 4000;
    let dir = tempfile::tempdir().unwrap();
    let (root, out, whole) = (dir.path().join("data"), dir.path().join("m.csv"), dir.path().join("whole.csv"));
    std::fs::create_dir_all(root.join("ann")).unwrap();
    let first = root.join("ann/00000.wav");
    bregman_audio::write_wav(&first, &bregman_audio::Audio { samples: vec![0.1; 800], rate: 16_000 }).unwrap();
    (1..FILES).for_each(|number| std::fs::hard_link(&first, root.join(format!("ann/{number:05}.wav"))).unwrap());

    let args = ["prepare", "folder", text(&root), "--out", text(&out), "--jobs", "1", "--json"];
    let journal = dir.path().join("m.csv.partial");
    // On a busy machine it may finish before this thread can kill it: then try again.
    let killed = (0..20).any(|_| {
        let mut child = start(&args);
        let patience = Instant::now();
        while std::fs::metadata(&journal).map_or(0, |file| file.len()) < 4000 && child.try_wait().unwrap().is_none() {
            assert!(patience.elapsed() < Duration::from_secs(60), "no journal appeared");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if out.exists() {
            [&out, &dir.path().join("m.summary.json")].into_iter().for_each(|file| std::fs::remove_file(file).unwrap());
        }
        journal.exists()
    });
    assert!(killed && !out.exists());

    let resumed = json(&bregman(&args));
    let count = resumed["resumed"].as_u64().unwrap() as usize;
    assert!(count > 50 && count < FILES, "{count} of {FILES} taken over");
    assert!(out.exists() && !journal.exists());
    let undisturbed = json(&bregman(&["prepare", "folder", text(&root), "--out", text(&whole), "--json"]));
    assert_eq!(undisturbed["resumed"], 0);
    assert_eq!(resumed["summary"], undisturbed["summary"]);
    assert_eq!(std::fs::read(&out).unwrap(), std::fs::read(&whole).unwrap());
}
