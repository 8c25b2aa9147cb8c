//! What other processes do to a training, and what its exit code tells them.
#![cfg(unix)]

mod common;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{bregman, command, json, mistake, start, success, text, timeless_metrics};

/// A corpus, and a recipe that takes some seconds.
fn place(dir: &Path) -> String {
    let (voices, recipe) = (dir.join("voices"), dir.join("recipe.toml"));
    common::synth(&voices, [5, 8, 1], ["0.7", "0.8"]);
    let settings = format!(
        "[model]\nkind = \"resnet\"\nblocks = [1, 1, 1, 1]\nchannels = 4\nembedding = 16\n\
         [data]\nroot = {voices:?}\nseconds = 0.3\nvalidation = 0.2\nfeatures = {{ bins = 16 }}\n\
         [train]\nepochs = 40\nbatch = 4\n[method]\nkind = \"dense\"\n"
    );
    std::fs::write(&recipe, settings).unwrap();
    text(&recipe).to_owned()
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap().success());
}

/// Waits until a training takes steps.
fn until_it_trains(run: &Path, child: &mut Child) {
    let logged = || std::fs::read(run.join("metrics.jsonl")).map_or(0, |log| log.len());
    let (before, began) = (logged(), Instant::now());
    while logged() < before + 500 {
        assert!(child.try_wait().unwrap().is_none() && began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn every_signal_that_asks_for_an_end_leaves_a_checkpoint_and_the_exit_code_4() {
    let dir = tempfile::tempdir().unwrap();
    let recipe = place(dir.path());
    let (whole, broken) = (dir.path().join("whole"), dir.path().join("broken"));
    success(&bregman(&["train", &recipe, "--out", text(&whole)]));
    for name in ["TERM", "HUP", "INT"] {
        let mut child = start(&["train", &recipe, "--out", text(&broken), "--resume"]);
        until_it_trains(&broken, &mut child);
        signal(&child, name);
        signal(&child, name); // at once: not a second request
        assert_eq!(child.wait().unwrap().code(), Some(4), "{name}");
        assert!(broken.join("last/state.json").is_file(), "{name}");
        assert!(!broken.join("train.lock").exists(), "{name}");
    }
    let last = json(&bregman(&["train", &recipe, "--out", text(&broken), "--resume", "--json"]));
    assert_eq!(last["ending"], "finished");
    assert_eq!(timeless_metrics(&broken), timeless_metrics(&whole));
}

#[test]
fn a_training_started_with_nohup_outlives_its_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let (recipe, run) = (place(dir.path()), dir.path().join("run"));
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_bregman"), "train", &recipe, "--out"]);
    let mut child = shell.arg(&run).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until_it_trains(&run, &mut child);
    signal(&child, "HUP");
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none() || run.join("best").exists(), "it goes on, or has finished");
    signal(&child, "TERM");
    assert!([Some(0), Some(4)].contains(&child.wait().unwrap().code()));
}

#[test]
fn a_second_training_in_the_same_folder_says_who_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let (recipe, run) = (place(dir.path()), dir.path().join("run"));
    let mut first = start(&["train", &recipe, "--out", text(&run)]);
    until_it_trains(&run, &mut first);
    let refused = mistake(&bregman(&["train", &recipe, "--out", text(&run), "--resume"]));
    let who = format!("{}: in use by process {}", text(&run), first.id());
    assert!(refused.contains(&who) && refused.contains("hint:  wait until it has ended"), "{refused}");
    first.kill().unwrap(); // SIGKILL: the lock's file stays, the lock does not
    first.wait().unwrap();
    success(&bregman(&["train", &recipe, "--out", text(&run), "--resume"]));
}

#[test]
fn a_sweep_that_is_asked_to_end_asks_its_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (recipe, out) = (place(dir.path()), dir.path().join("sweep"));
    let args = ["sweep", &recipe, "--set", "seed=1,2", "--out", text(&out), "--json"];
    let mut sweep = start(&args);
    until_it_trains(&out.join("seed=1"), &mut sweep);
    signal(&sweep, "TERM");
    assert_eq!(sweep.wait().unwrap().code(), Some(4));
    assert!(out.join("seed=1/last/state.json").is_file() && !out.join("seed=1/train.lock").exists());
    assert!(!out.join("seed=2").exists());
}

#[test]
fn standard_error_that_is_closed_ends_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (recipe, run) = (place(dir.path()), dir.path().join("run"));
    let mut train = command(&["train", &recipe, "--out", text(&run), "--set", "train.epochs=2"]);
    let mut child = train.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn help_lists_the_exit_codes() {
    let help = success(&bregman(&["--help"]));
    for line in ["3    verify: another speaker", "4    train", "130  stopped by a second"] {
        assert!(help.contains(line), "{help}");
    }
    assert!(success(&bregman(&["verify", "--help"])).contains("3 for another one"));
    assert!(success(&bregman(&["train", "--help"])).contains("4 when Ctrl-C, SIGTERM or SIGHUP"));
}
