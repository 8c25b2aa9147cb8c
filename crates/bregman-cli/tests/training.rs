//! `bregman train` and `bregman inspect` as a user calls them.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use common::{bregman, errors, json, start, success, synth, timeless_metrics};
use serde_json::Value;

/// A corpus of synthetic voices and a recipe for a tiny network.
fn place(epochs: u32) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let voices = dir.path().join("voices");
    synth(&voices, [5, 8, 1], ["0.7", "0.8"]);
    let recipe = dir.path().join("tiny.toml");
    let content = format!(
        "[model]\nkind = \"resnet\"\nblocks = [1, 1, 1, 1]\nchannels = 4\nembedding = 16\n\
         [data]\nroot = \"{}\"\nseconds = 0.3\nvalidation = 0.2\nfeatures = {{ bins = 16 }}\n\
         [train]\nepochs = {epochs}\nbatch = 4\nsave_every = 3\n\
         [method]\nkind = \"adaptive\"\ntarget = 0.9\noptimizer = {{ kind = \"adabreg\" }}\n\
         law = {{ kind = \"density\" }}\n\
         groups = [{{ initial_sparsity = 0.5 }}]\n",
        voices.display()
    );
    std::fs::write(&recipe, content).unwrap();
    (dir, recipe)
}

#[test]
fn inspect_shows_sparsity_and_layers_as_a_table_and_as_json() {
    let (dir, recipe) = place(2);
    let run = dir.path().join("run");
    let run = run.to_str().unwrap();
    success(&bregman(&["train", recipe.to_str().unwrap(), "--out", run]));
    let json = json(&bregman(&["inspect", run, "--json"]));
    let layers = json["layers"].as_array().unwrap();
    let (nonzero, len) = layers.iter().fold((0, 0), |(nonzero, len), layer| {
        let shape = layer["shape"].as_array().unwrap().iter().map(|size| size.as_u64().unwrap()).product::<u64>();
        (nonzero + layer["nonzero"].as_u64().unwrap(), len + shape)
    });
    assert!((json["sparsity"].as_f64().unwrap() - (1.0 - nonzero as f64 / len as f64)).abs() < 1e-12);
    let table = success(&bregman(&["inspect", run]));
    assert!(table.contains("projection.weight") && table.contains("asked for 90.00 %"), "{table}");
}

#[test]
fn mistakes_in_recipes_end_with_code_2_and_name_the_nearest_key() {
    let (dir, recipe) = place(1);
    let recipe = recipe.to_str().unwrap();
    let out = dir.path().join("run");
    let fails = |extra: &[&str], expected: &str| {
        let mut args = vec!["train", recipe, "--out", out.to_str().unwrap()];
        args.extend(extra);
        let failed = bregman(&args);
        let message = errors(&failed);
        assert_eq!(failed.status.code(), Some(2), "{message}");
        assert!(message.contains(expected), "{message}");
        assert!(!out.exists(), "a mistake leaves nothing behind");
    };
    fails(&["--set", "method.traget=0.9"], "did you mean `method.target`?");
    fails(&["--set", "data.root=/nowhere"], "/nowhere/train.csv");
    fails(&["--set", "method.target=2"], "a share in (0, 1)");
    if let Err(error) = bregman_train::DeviceChoice::Cuda(0).find() {
        fails(&["--device", "cuda"], &error.to_string());
    }
}

#[test]
fn a_run_is_not_continued_with_other_settings() {
    let (dir, recipe) = place(1);
    let (recipe, run) = (recipe.to_str().unwrap(), dir.path().join("run"));
    let run = run.to_str().unwrap();
    success(&bregman(&["train", recipe, "--out", run]));
    let failed = bregman(&["train", recipe, "--out", run, "--resume", "--set", "method.target=0.5"]);
    assert_eq!(failed.status.code(), Some(2));
    assert!(errors(&failed).contains("target = 0.5"), "{}", errors(&failed));
    let precise = bregman(&["train", recipe, "--out", run, "--resume", "--precision", "bf16"]);
    assert!(errors(&precise).contains("precision = \"bf16\""), "{}", errors(&precise));
    let exists = bregman(&["train", recipe, "--out", run]);
    assert!(errors(&exists).contains("--resume"), "{}", errors(&exists));
}

#[test]
fn the_line_that_starts_a_run_names_device_and_precision() {
    let (dir, recipe) = place(1);
    let (recipe, run) = (recipe.to_str().unwrap(), dir.path().join("run"));
    let begin = |more: &[&str]| {
        let args = [&["train", recipe, "--device", "cpu", "--out", run.to_str().unwrap()], more].concat();
        let output = bregman(&args);
        let message = errors(&output);
        success(&output);
        message.lines().find(|line| line.starts_with("device: cpu (")).expect(&message).to_owned()
    };
    assert!(begin(&["--precision", "bf16"]).ends_with(", bf16"));
    assert!(begin(&["--resume"]).ends_with(", bf16"), "a run keeps its precision");
    std::fs::remove_dir_all(&run).unwrap();
    let plain = begin(&[]);
    assert!(plain.contains(" thread") && plain.ends_with(", f32"), "{plain}");
    let config = std::fs::read_to_string(run.join("config.toml")).unwrap();
    assert!(config.contains("precision = \"f32\""), "{config}");
}

/// A run that was killed after its first checkpoint, for the tests with a full disk.
fn killed_run(recipe: &str, run: &Path) {
    let mut child = start(&["train", recipe, "--out", run.to_str().unwrap()]);
    while !run.join("last/config.toml").is_file() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// `failed` resumed `run` on a full disk: it must report that, keep its last checkpoint, and continue as if
/// uninterrupted once there is space.
fn assert_nothing_was_lost(failed: &Output, before: &[u8], run: &Path, recipe: &str, make_room: impl FnOnce()) {
    let message = errors(failed);
    assert_eq!(failed.status.code(), Some(1), "{message}");
    assert!(
        (message.contains("last.new") || message.contains("best.new"))
            && message.contains("free some space, then continue with --resume"),
        "{message}"
    );
    assert_eq!(std::fs::read(run.join("last/model.safetensors")).unwrap(), before, "the last checkpoint is whole");
    make_room();
    let resumed = bregman(&["train", recipe, "--out", run.to_str().unwrap(), "--resume"]);
    success(&resumed);
    let whole = run.with_file_name("whole");
    success(&bregman(&["train", recipe, "--out", whole.to_str().unwrap()]));
    assert_eq!(timeless_metrics(run), timeless_metrics(&whole));
}

#[cfg(unix)]
#[test]
fn a_save_that_is_cut_short_loses_nothing() {
    let (dir, recipe) = place(30);
    let (recipe, run) = (recipe.to_str().unwrap(), dir.path().join("run"));
    killed_run(recipe, &run);
    let before = std::fs::read(run.join("last/model.safetensors")).unwrap();
    // No file may grow beyond half a checkpoint; without the trap the signal would end the process instead of failing
    // the write.
    let limit = format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", before.len() / 2 / 512);
    let program = env!("CARGO_BIN_EXE_bregman");
    let args = ["-c", &limit, "sh", program, "train", recipe, "--out", run.to_str().unwrap(), "--resume"];
    let failed = Command::new("sh").args(args).env("RAYON_NUM_THREADS", "2").output().unwrap();
    assert_nothing_was_lost(&failed, &before, &run, recipe, || {});
}

/// A file system in memory, unmounted at the end.
#[cfg(target_os = "linux")]
struct SmallDisk(PathBuf);

#[cfg(target_os = "linux")]
impl SmallDisk {
    /// Needs root and permission to mount.
    fn mount(path: PathBuf, bytes: usize) -> Option<Self> {
        std::fs::create_dir_all(&path).unwrap();
        let size = format!("size={bytes}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs", path.to_str().unwrap()]).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(path))
    }
}

#[cfg(target_os = "linux")]
impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_is_full_during_a_save_loses_nothing() {
    let (dir, recipe) = place(30);
    let recipe = recipe.to_str().unwrap();
    let Some(disk) = SmallDisk::mount(dir.path().join("disk"), 64 << 20) else {
        bregman_skip::skip("small-disk", "a small disk cannot be mounted here");
        return;
    };
    let (run, filler) = (disk.0.join("run"), disk.0.join("filler"));
    killed_run(recipe, &run);
    let before = std::fs::read(run.join("last/model.safetensors")).unwrap();
    std::fs::write(&filler, vec![0; 65 << 20]).unwrap_err(); // to the last byte
    let file = std::fs::OpenOptions::new().write(true).open(&filler).unwrap();
    // Room for logs, not for a checkpoint.
    file.set_len(file.metadata().unwrap().len() - before.len() as u64 / 2).unwrap();
    drop(file); // an open file keeps its space
    let failed = bregman(&["train", recipe, "--out", run.to_str().unwrap(), "--resume"]);
    assert_nothing_was_lost(&failed, &before, &run, recipe, || std::fs::remove_file(&filler).unwrap());
}

#[test]
fn recipes_are_listed_printed_and_trained_by_name_or_by_parts() {
    let list = success(&bregman(&["recipes"]));
    assert!(list.contains("audiomnist") && list.contains("AdaBreg with a fixed λ"), "{list}");
    let rows = json(&bregman(&["recipes", "--json"]));
    let is_ecapa = |row: &&Value| row["part"] == "networks" && row["name"] == "ecapa";
    assert!(rows.as_array().unwrap().iter().any(|row| is_ecapa(&row)), "{rows}");

    let (dir, recipe) = place(1);
    let out = dir.path().join("run");
    let printed = |recipe: &[&str]| success(&bregman(&[&["recipes"], recipe].concat()));
    let by_name = printed(&["audiomnist/ecapa-adabreg"]);
    assert!(by_name.contains("channels = 64") && by_name.contains("penalty = \"group_kernel\""), "{by_name}");
    assert_eq!(printed(&["recipes/audiomnist/ecapa-adabreg.toml"]), by_name);
    assert_eq!(printed(&["methods/adabreg", "networks/ecapa", "corpora/audiomnist"]), by_name);
    std::fs::write(dir.path().join("mine.toml"), printed(&[recipe.to_str().unwrap()])).unwrap();
    let mine = dir.path().join("mine.toml");
    let trained = bregman(&["train", mine.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    assert!(trained.status.success(), "what is printed can be trained: {}", errors(&trained));

    let unknown = bregman(&["train", "audiomnist/ecapa-adabrag", "--out", out.to_str().unwrap()]);
    assert_eq!(unknown.status.code(), Some(2));
    let message = errors(&unknown);
    assert!(message.contains("unknown method `adabrag`; the nearest known: adabreg"), "{message}");
}
