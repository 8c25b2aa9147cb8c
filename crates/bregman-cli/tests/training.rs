//! `bregman train` and `bregman inspect` as a user calls them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;

fn bregman(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bregman"));
    command.args(args).env("RAYON_NUM_THREADS", "2").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn output(args: &[&str]) -> Output {
    bregman(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A corpus of synthetic voices and a recipe for a tiny network.
fn place(epochs: u32) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let voices = dir.path().join("voices");
    let made = output(&[
        "synth",
        "--speakers",
        "5",
        "--utterances",
        "8",
        "--held-out",
        "1",
        "--seconds",
        "0.7",
        "0.8",
        "--out",
        voices.to_str().unwrap(),
    ]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let recipe = dir.path().join("tiny.toml");
    let content = format!(
        "[model]\nkind = \"resnet\"\nblocks = [1, 1, 1, 1]\nchannels = 4\nembedding = 16\n\
         [data]\nroot = \"{}\"\nseconds = 0.3\nvalidation = 0.2\nfeatures = {{ bins = 16 }}\n\
         [train]\nepochs = {epochs}\nbatch = 4\nsave_every = 3\n\
         [method]\nkind = \"adaptive\"\ntarget = 0.9\noptimizer = {{ kind = \"adabreg\" }}\nlaw = {{ kind = \"density\" }}\n\
         groups = [{{ initial_sparsity = 0.5 }}]\n",
        voices.display()
    );
    std::fs::write(&recipe, content).unwrap();
    (dir, recipe)
}

fn metrics(run: &Path) -> Vec<Value> {
    let timeless = |line: &str| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        value.as_object_mut().unwrap().retain(|key, _| key != "utterances_per_second" && key != "seconds");
        value
    };
    std::fs::read_to_string(run.join("metrics.jsonl")).unwrap().lines().map(timeless).collect()
}

#[test]
fn a_run_killed_at_random_moments_and_resumed_equals_an_unbroken_one() {
    let (dir, recipe) = place(30);
    let recipe = recipe.to_str().unwrap();
    let (whole, broken) = (dir.path().join("whole"), dir.path().join("broken"));
    let began = SystemTime::now();
    let unbroken = output(&["train", recipe, "--out", whole.to_str().unwrap()]);
    assert!(unbroken.status.success(), "{}", text(&unbroken.stderr));
    let takes = began.elapsed().unwrap();

    let mut random = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos();
    let mut kills = 0;
    for _ in 0..5 {
        let mut child = bregman(&["train", recipe, "--out", broken.to_str().unwrap(), "--resume"]).spawn().unwrap();
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        std::thread::sleep(
            takes.mul_f64(0.05 + 0.3 * f64::from(random >> 8) / f64::from(1u32 << 24)) + Duration::from_millis(20),
        );
        let running = child.try_wait().unwrap().is_none();
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
        kills += u32::from(running);
    }
    assert!(kills > 0, "no run lived long enough to be killed");
    let last = output(&["train", recipe, "--out", broken.to_str().unwrap(), "--resume", "--json"]);
    assert!(last.status.success(), "{}", text(&last.stderr));
    assert_eq!(metrics(&broken), metrics(&whole), "after {kills} kills");
    for file in ["last/model.safetensors", "last/optimizer.safetensors"] {
        assert_eq!(
            std::fs::read(broken.join(file)).unwrap(),
            std::fs::read(whole.join(file)).unwrap(),
            "{file} after {kills} kills"
        );
    }
    let summary: Value = serde_json::from_slice(&last.stdout).unwrap();
    assert_eq!(summary["ending"], "finished");
}

#[test]
fn inspect_tells_sparsity_and_layers_as_a_table_and_as_json() {
    let (dir, recipe) = place(2);
    let run = dir.path().join("run");
    let run = run.to_str().unwrap();
    assert!(output(&["train", recipe.to_str().unwrap(), "--out", run]).status.success());
    let json: Value = serde_json::from_slice(&output(&["inspect", run, "--json"]).stdout).unwrap();
    let layers = json["layers"].as_array().unwrap();
    let (live, len) = layers.iter().fold((0, 0), |(live, len), layer| {
        let shape = layer["shape"].as_array().unwrap().iter().map(|size| size.as_u64().unwrap()).product::<u64>();
        (live + layer["live"].as_u64().unwrap(), len + shape)
    });
    assert!((json["sparsity"].as_f64().unwrap() - (1.0 - live as f64 / len as f64)).abs() < 1e-12);
    let table = text(&output(&["inspect", run]).stdout);
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
        let failed = output(&args);
        let message = text(&failed.stderr);
        assert_eq!(failed.status.code(), Some(2), "{message}");
        assert!(message.contains(expected), "{message}");
        assert!(!out.exists(), "a mistake leaves nothing behind");
    };
    fails(&["--set", "method.traget=0.9"], "did you mean `method.target`?");
    fails(&["--set", "data.root=/nowhere"], "/nowhere/train.csv");
    fails(&["--set", "method.target=2"], "a share in (0, 1)");
    if !cfg!(feature = "cuda") {
        fails(&["--device", "cuda"], "built without CUDA");
    }
}

#[test]
fn a_run_is_not_continued_with_other_settings() {
    let (dir, recipe) = place(1);
    let (recipe, run) = (recipe.to_str().unwrap(), dir.path().join("run"));
    let run = run.to_str().unwrap();
    assert!(output(&["train", recipe, "--out", run]).status.success());
    let failed = output(&["train", recipe, "--out", run, "--resume", "--set", "method.target=0.5"]);
    assert_eq!(failed.status.code(), Some(2));
    assert!(text(&failed.stderr).contains("target = 0.5"), "{}", text(&failed.stderr));
    let precise = output(&["train", recipe, "--out", run, "--resume", "--precision", "bf16"]);
    assert!(text(&precise.stderr).contains("precision = \"bf16\""), "{}", text(&precise.stderr));
    let exists = output(&["train", recipe, "--out", run]);
    assert!(text(&exists.stderr).contains("--resume"), "{}", text(&exists.stderr));
}

#[test]
fn the_line_that_starts_a_run_names_device_and_precision() {
    let (dir, recipe) = place(1);
    let (recipe, run) = (recipe.to_str().unwrap(), dir.path().join("run"));
    let begin = |more: &[&str]| {
        let args = [&["train", recipe, "--device", "cpu", "--out", run.to_str().unwrap()], more].concat();
        let output = output(&args);
        let message = text(&output.stderr);
        assert!(output.status.success(), "{message}");
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

/// A run that was killed after its first checkpoint, for the disk to fill up under.
fn killed_run(recipe: &str, run: &Path) {
    let mut child = bregman(&["train", recipe, "--out", run.to_str().unwrap()]).spawn().unwrap();
    while !run.join("last/config.toml").is_file() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// `failed` resumed `run` on a full disk: it must say so, keep the checkpoint it had, and continue as if nothing had
/// been, once there is room.
fn assert_nothing_was_lost(failed: &Output, before: &[u8], run: &Path, recipe: &str, make_room: impl FnOnce()) {
    let message = text(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{message}");
    assert!(
        message.contains("last.new") && message.contains("free some space, then continue with --resume"),
        "{message}"
    );
    assert_eq!(std::fs::read(run.join("last/model.safetensors")).unwrap(), before, "the last checkpoint is whole");
    make_room();
    let resumed = output(&["train", recipe, "--out", run.to_str().unwrap(), "--resume"]);
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    let whole = run.with_file_name("whole");
    assert!(output(&["train", recipe, "--out", whole.to_str().unwrap()]).status.success());
    assert_eq!(metrics(run), metrics(&whole));
}

#[cfg(unix)]
#[test]
fn a_save_that_is_cut_short_loses_nothing() {
    let (dir, recipe) = place(30);
    let (recipe, run) = (recipe.to_str().unwrap(), dir.path().join("run"));
    killed_run(recipe, &run);
    let before = std::fs::read(run.join("last/model.safetensors")).unwrap();
    // No file may grow beyond half a checkpoint; without the trap the system would end the process instead of failing
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
    /// Needs to be root, with leave to mount.
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
        println!("skipped: a small disk cannot be mounted here");
        return;
    };
    let (run, filler) = (disk.0.join("run"), disk.0.join("filler"));
    killed_run(recipe, &run);
    let before = std::fs::read(run.join("last/model.safetensors")).unwrap();
    std::fs::write(&filler, vec![0; 65 << 20]).unwrap_err(); // to the last byte
    let file = std::fs::OpenOptions::new().write(true).open(&filler).unwrap();
    file.set_len(file.metadata().unwrap().len() - before.len() as u64 / 2).unwrap(); // room for logs, not for a checkpoint
    drop(file); // an open file keeps its space
    let failed = output(&["train", recipe, "--out", run.to_str().unwrap(), "--resume"]);
    assert_nothing_was_lost(&failed, &before, &run, recipe, || std::fs::remove_file(&filler).unwrap());
}

#[test]
fn recipes_are_listed_printed_and_trained_by_name_or_by_parts() {
    let list = text(&output(&["recipes"]).stdout);
    assert!(list.contains("audiomnist") && list.contains("AdaBreg with a fixed λ"), "{list}");
    let rows: Value = serde_json::from_slice(&output(&["recipes", "--json"]).stdout).unwrap();
    let is_ecapa = |row: &&Value| row["part"] == "networks" && row["name"] == "ecapa";
    assert!(rows.as_array().unwrap().iter().any(|row| is_ecapa(&row)), "{rows}");

    let (dir, recipe) = place(1);
    let out = dir.path().join("run");
    let printed = |recipe: &[&str]| text(&output(&[&["recipes"], recipe].concat()).stdout);
    let by_name = printed(&["audiomnist/ecapa-adabreg"]);
    assert!(by_name.contains("channels = 64") && by_name.contains("penalty = \"group_kernel\""), "{by_name}");
    assert_eq!(printed(&["recipes/audiomnist/ecapa-adabreg.toml"]), by_name);
    assert_eq!(printed(&["methods/adabreg", "networks/ecapa", "corpora/audiomnist"]), by_name);
    std::fs::write(dir.path().join("mine.toml"), printed(&[recipe.to_str().unwrap()])).unwrap();
    let mine = dir.path().join("mine.toml");
    let trained = output(&["train", mine.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    assert!(trained.status.success(), "what is printed can be trained: {}", text(&trained.stderr));

    let unknown = output(&["train", "audiomnist/ecapa-adabrag", "--out", out.to_str().unwrap()]);
    assert_eq!(unknown.status.code(), Some(2));
    let message = text(&unknown.stderr);
    assert!(message.contains("unknown method `adabrag`; the nearest known: adabreg"), "{message}");
}
