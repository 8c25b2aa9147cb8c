//! Several processes that `mpirun` starts train one network.
#![cfg(unix)]

mod common;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{errors, failure, json, success, text, timeless_metrics};

/// How long to wait for a step: processes that share a busy core get to it rarely.
const PATIENCE: Duration = Duration::from_secs(300);

/// `mpirun -n SIZE bregman …`, whose processes leave their core to others while they wait, or `None` where that cannot
/// be done, which is a skip.
fn mpirun(size: usize, args: &[&str]) -> Option<Command> {
    if !cfg!(feature = "mpi") {
        bregman_skip::skip("mpi", "this program was built without MPI");
        return None;
    }
    let there = Command::new("mpirun").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if there.is_err() {
        bregman_skip::skip("mpi", "there is no mpirun");
        return None;
    }
    let mut command = Command::new("mpirun");
    command
        .args(["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"])
        .args(["-n", &size.to_string(), env!("CARGO_BIN_EXE_bregman")])
        .args(args)
        .envs(["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"].map(|name| (name, "1")))
        .env("RAYON_NUM_THREADS", "1");
    Some(command)
}

fn place(dir: &Path) -> String {
    let (voices, recipe) = (dir.join("voices"), dir.join("recipe.toml"));
    common::synth(&voices, [6, 8, 2], ["0.7", "0.8"]);
    let settings = format!(
        "[model]\nkind = \"resnet\"\nblocks = [1, 1, 1, 1]\nchannels = 4\nembedding = 16\n\
         [data]\nroot = {voices:?}\nseconds = 0.3\nvalidation = 0.2\nfeatures = {{ bins = 16 }}\n\
         [train]\nepochs = 2\nbatch = 8\njoint_norms = true\n\
         [method]\nkind = \"adaptive\"\ntarget = 0.8\ngroups = [{{ initial_sparsity = 0.5 }}]\n\
         optimizer = {{ kind = \"adabreg\" }}\n"
    );
    std::fs::write(&recipe, settings).unwrap();
    text(&recipe).to_owned()
}

fn losses(run: &Path) -> Vec<f64> {
    timeless_metrics(run).iter().filter_map(|line| line["loss"].as_f64()).collect()
}

#[test]
fn one_two_and_four_processes_train_alike() {
    let dir = tempfile::tempdir().unwrap();
    let recipe = place(dir.path());
    let alone = dir.path().join("alone");
    // as many threads as each rank has: sums in the same order
    let args = ["train", &recipe, "--out", text(&alone)];
    success(&common::command(&args).env("RAYON_NUM_THREADS", "1").output().unwrap());
    for size in [1, 2, 4] {
        let (run, batch) = (dir.path().join(size.to_string()), format!("train.batch={}", 8 / size));
        let args = ["train", &recipe, "--set", &batch, "--out", text(&run), "--json"];
        let Some(mut command) = mpirun(size, &args) else { return };
        let output = command.output().unwrap();
        assert_eq!(json(&output)["ending"], "finished", "one result, whatever the number of ranks");
        let said = errors(&output);
        assert_eq!(said.matches("device: ").count(), size, "{said}");
        let last = format!("rank {} of {size} on cpu", size - 1);
        assert!(said.contains(&last) && said.contains(" of 8 cuts per step"), "{said}");
        if size == 1 {
            assert_eq!(losses(&run), losses(&alone), "by MPI, too");
            continue;
        }
        let (ours, whole) = (losses(&run), losses(&alone));
        assert_eq!(ours.len(), whole.len());
        let apart = |step: usize| (ours[step] - whole[step]).abs() / whole[step];
        assert!(apart(0) < 1e-5 && apart(4) < 1e-2, "{} {}", apart(0), apart(4));
    }
}

#[test]
fn a_rank_that_dies_ends_the_others_and_two_continue_what_four_began() {
    let dir = tempfile::tempdir().unwrap();
    let recipe = place(dir.path());
    let run = dir.path().join("run");
    let args = |batch| ["train", &recipe, "--set", batch, "--set", "train.epochs=400", "--out", text(&run), "--resume"];
    let Some(mut command) = mpirun(4, &args("train.batch=2")) else { return };
    let mut job = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while !run.join("last/state.json").is_file() {
        assert!(job.try_wait().unwrap().is_none() && began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_child_of(job.id());
    let killed = Instant::now();
    let output = job.wait_with_output().unwrap();
    assert!(killed.elapsed() < Duration::from_secs(60) && !output.status.success());
    let said = errors(&output);
    assert!(said.contains("signal 9") && said.matches("stopping after this step").count() <= 1, "{said}");

    let before = losses(&run).len();
    let settings = [&args("train.batch=2")[..], &["--set", "train.epochs=400", "--json"]].concat();
    let mut resumed = mpirun(2, &settings).unwrap();
    let mut job = resumed.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    while losses(&run).len() < before + 20 {
        assert!(job.try_wait().unwrap().is_none() && began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    // rank 0 is asked to stop: both stop after the same step, with a checkpoint
    Command::new("pkill").args(["-TERM", "-o", "-P", &job.id().to_string()]).status().unwrap();
    assert_eq!(json_ending(job.wait_with_output().unwrap()), "interrupted");
}

/// Kills the last started process of a job.
fn kill_child_of(job: u32) {
    assert!(Command::new("pkill").args(["-KILL", "-n", "-P", &job.to_string()]).status().unwrap().success());
}

fn json_ending(output: Output) -> String {
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    result["ending"].as_str().unwrap().to_owned()
}

#[test]
fn evaluations_and_sweeps_are_divided_among_processes() {
    let dir = tempfile::tempdir().unwrap();
    let (recipe, voices) = (place(dir.path()), dir.path().join("voices"));
    let sweep = dir.path().join("sweep");
    let seeds = ["sweep", &recipe, "--set", "seed=1,2,3", "--out", text(&sweep), "--device", "cpu", "--json"];
    let Some(mut command) = mpirun(2, &seeds) else { return };
    let rows = json(&command.output().unwrap());
    let statuses: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["finished", "skipped", "finished"], "the second was trained by the other rank");

    let (run, trials) = (rows[0]["run"].as_str().unwrap(), voices.join("trials.txt"));
    let copy = dir.path().join("copy");
    assert!(Command::new("cp").args(["-r", run, text(&copy)]).status().unwrap().success());
    let evaluate =
        |run| ["evaluate", run, "--trials", text(&trials), "--root", text(&voices), "--device", "cpu", "--json"];
    let together = json(&mpirun(2, &evaluate(run)).unwrap().output().unwrap());
    let alone = json(&common::bregman(&evaluate(text(&copy))));
    assert_eq!((&together["eer"], &together["computed"]), (&alone["eer"], &alone["computed"]));
    assert!(together["computed"].as_u64().unwrap() > 1);

    let broken = dir.path().join("broken.wav");
    std::fs::write(&broken, "RIFF nonsense").unwrap();
    let mut files: Vec<_> =
        std::fs::read_dir(voices.join("s00000")).unwrap().map(|file| file.unwrap().path()).collect();
    files.insert(1, broken);
    let asked = ["embed", run, "--window", "0.4"].into_iter().chain(files.iter().map(|file| text(file)));
    let asked: Vec<&str> = asked.collect();
    let (together, alone) = (mpirun(2, &asked).unwrap().output().unwrap(), common::bregman(&asked));
    assert!(alone.stdout.len() > 1000 && together.stdout == alone.stdout);
    assert!(errors(&alone).contains("broken.wav") && errors(&together) == errors(&alone), "{}", errors(&together));
}

#[test]
fn two_processes_have_the_same_bits_after_two_hundred_steps_and_with_a_divided_optimizer() {
    let dir = tempfile::tempdir().unwrap();
    let recipe = place(dir.path());
    let run = |divided: bool| dir.path().join(divided.to_string());
    for divided in [false, true] {
        let (out, divide) = (run(divided), format!("train.divide_optimizer={divided}"));
        let settings = ["train.batch=2", "train.epochs=17", &divide].into_iter().flat_map(|setting| ["--set", setting]);
        let args: Vec<&str> = ["train", &recipe, "--out", text(&out), "--json"].into_iter().chain(settings).collect();
        let Some(mut command) = mpirun(2, &args) else { return };
        // at step 200 the ranks compare their weights and duals; a difference ends the run
        let report = json(&command.output().unwrap());
        assert!(report["ending"] == "finished" && report["steps"].as_u64().unwrap() > 200, "{report}");
    }
    for file in ["model.safetensors", "optimizer.safetensors"] {
        let [whole, divided] =
            [false, true].map(|divided| std::fs::read(run(divided).join("last").join(file)).unwrap());
        assert!(whole == divided, "{file}");
    }
}

#[test]
fn a_trained_network_is_made_sparse_by_two_processes() {
    let dir = tempfile::tempdir().unwrap();
    let (voices, out) = (dir.path().join("voices"), dir.path().join("sparse.breg"));
    common::synth(&voices, [3, 6, 1], ["0.7", "0.8"]);
    std::fs::remove_file(voices.join("train.csv")).unwrap(); // a plain folder, which the leading rank lists
    let network = bregman_golden::own("campplus_g8_m8.safetensors");
    let asked = ["sparsify", text(&network), "--corpus", text(&voices), "--target", "0.5", "-o", text(&out)];
    let settings = ["data.seconds=0.4", "data.validation=0.2", "train.batch=2", "train.epochs=2"];
    let settings = settings.iter().flat_map(|setting| ["--set", setting]);
    let more = ["--front-end", "3d-speaker", "--device", "cpu", "--json"];
    let args: Vec<&str> = asked.into_iter().chain(settings).chain(more).collect();
    let Some(mut command) = mpirun(2, &args) else { return };
    let report = json(&command.output().unwrap());
    assert!((report["zeros_in_file"].as_f64().unwrap() - 0.5).abs() < 0.01, "{report}");
    let steps = losses(&dir.path().join("sparse.run")).len();
    assert!(out.is_file() && steps > 0, "{steps} steps");
}

#[test]
fn a_launcher_that_this_program_cannot_follow_and_gpus_that_are_not_there_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let started = |variables: &[(&str, &str)]| {
        common::command(&["train", "x.toml", "--out", text(&out)]).envs(variables.iter().copied()).output().unwrap()
    };
    let message = failure(&started(&[("WORLD_SIZE", "4")]), 2);
    assert!(message.contains("WORLD_SIZE = 4") && message.contains("MASTER_ADDR"), "{message}");
    let message = failure(&started(&[("WORLD_SIZE", "four")]), 2);
    assert!(message.contains("WORLD_SIZE = four"), "{message}");
    let nobody = [("WORLD_SIZE", "4"), ("RANK", "1"), ("LOCAL_RANK", "99"), ("MASTER_ADDR", "127.0.0.1")];
    let message = failure(&started(&nobody), 2);
    assert!(message.contains('4') && message.contains("mpirun"), "{message}");
    let message = failure(&common::bregman(&["train", "x.toml", "--gpus", "99"]), 2);
    assert!(message.contains("--gpus: "), "{message}");
    if !cfg!(feature = "mpi") {
        let message = failure(&started(&[("OMPI_COMM_WORLD_SIZE", "4")]), 2);
        let need = if cfg!(feature = "cuda") { "MASTER_ADDR" } else { "--features mpi" };
        assert!(message.contains("OMPI_COMM_WORLD_SIZE") && message.contains(need), "{message}");
    }
}
