//! Calling the program as a user does, a small synthetic corpus, and synthetic runs in the trainer's format for tests
//! of reports and figures.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// Steps of a synthetic epoch.
pub(crate) const PER_EPOCH: u64 = 10;

/// This program with arguments, on two threads.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bregman"));
    command.args(args).env("RAYON_NUM_THREADS", "2");
    command
}

/// Runs it to its end.
pub(crate) fn bregman(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

/// Starts it in the background, without output.
pub(crate) fn start(args: &[&str]) -> Child {
    command(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Its standard output, if it succeeded.
pub(crate) fn success(output: &Output) -> String {
    assert!(output.status.success(), "{}", errors(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Its JSON output, if it succeeded.
pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_str(&success(output)).unwrap()
}

/// The JSON of `verify` or `identify`, whose exit code must say the same.
pub(crate) fn verdict(output: &Output) -> Value {
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", errors(output)));
    let yes = answer["same"] == true || answer["speaker"].is_string();
    assert_eq!(output.status.code(), Some(if yes { 0 } else { 3 }), "{answer}");
    answer
}

/// The message about a user's mistake, which ends with exit code 2.
pub(crate) fn mistake(output: &Output) -> String {
    failure(output, 2)
}

/// The message of a command that printed an error, nothing else, and ended with exit code `code`.
pub(crate) fn failure(output: &Output, code: i32) -> String {
    let message = errors(output);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(code), 0), "{message}");
    assert!(message.contains("error: "), "{message}");
    message
}

/// Standard error.
pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Writes synthetic voices to `folder`.
pub(crate) fn synth(folder: &Path, [speakers, utterances, held_out]: [u32; 3], seconds: [&str; 2]) {
    let [speakers, utterances, held_out] = [speakers, utterances, held_out].map(|count| count.to_string());
    let sizes = ["--speakers", &speakers, "--utterances", &utterances, "--held-out", &held_out];
    success(&bregman(&[&["synth", "--out", text(folder), "--seconds", seconds[0], seconds[1]], &sizes[..]].concat()));
}

/// The lines of a run's log without the fields that depend on the clock.
pub(crate) fn timeless_metrics(run: &Path) -> Vec<Value> {
    let line = |line: &str| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        value.as_object_mut().unwrap().retain(|key, _| key != "utterances_per_second" && key != "seconds");
        value
    };
    std::fs::read_to_string(run.join("metrics.jsonl")).unwrap().lines().map(line).collect()
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The data inside a report.
pub(crate) fn data(report: &Path) -> Value {
    let page = std::fs::read_to_string(report).unwrap();
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

/// One line of a step.
pub(crate) fn step_line(step: u64, target: f64) -> String {
    let sparsity = target + 0.3 * (1.0 - target) * (-0.05 * step as f64).exp();
    let line = serde_json::json!({
        "kind": "step", "step": step, "epoch": (step - 1) / PER_EPOCH + 1, "loss": 3.0 / step as f64,
        "accuracy": 1.0 - 1.0 / step as f64,
        "lambda": 0.01 * step as f64, "sparsity": sparsity, "target": target, "epsilon": target - sparsity, "lr": 0.1,
        "margin": 0.2,
        "gradient_norm": 1.0, "utterances_per_second": 50.0,
    });
    // The trainer writes `kind` first.
    let text = line.to_string().replacen("\"kind\":\"step\",", "", 1).replace(",\"kind\":\"step\"", "");
    format!("{{\"kind\":\"step\",{}\n", &text[1..])
}

/// One line of an epoch: two layers, of which the second is all zero from the third epoch on.
pub(crate) fn epoch_line(epoch: u64, target: f64) -> String {
    let zero = epoch >= 3;
    let layer = |name: &str, sparsity: f64| {
        let live = ((1.0 - sparsity) * 96.0).round() as u64;
        let norm = 1.0 + 0.1 * epoch as f64;
        serde_json::json!({"name": name, "shape": [8, 4, 3], "sparsity": sparsity, "live": live, "norm": norm})
    };
    let layers = [layer("layer1.conv.weight", target), layer("layer2.conv.weight", if zero { 1.0 } else { target })];
    let line = serde_json::json!({
        "kind": "epoch", "step": epoch * PER_EPOCH, "epoch": epoch, "train_loss": 1.0 / epoch as f64,
        "train_accuracy": 0.9,
        "validation_loss": 1.2 / epoch as f64, "validation_accuracy": 0.8, "lambda": 0.5, "sparsity": target,
        "target": target,
        "admitted": true, "lr": 0.1, "seconds": 3.0 * epoch as f64, "groups": [["layer1", target], ["layer2", target]],
        "layers": layers,
        "dead": if zero { vec!["layer2.conv.weight"] } else { vec![] },
    });
    line.to_string() + "\n"
}

/// An evaluation of a synthetic run.
pub(crate) fn evaluation(test: &str, domain: &str, sparsity: f64, eer: f64) -> Value {
    let det: Vec<Value> = (1..40)
        .map(|at| f64::from(at) / 40.0)
        .map(|rate| serde_json::json!({"miss": rate, "false_alarm": eer * eer / rate}))
        .collect();
    serde_json::json!({
        "test": test, "domain": domain, "checkpoint": "last", "step": 0, "sparsity": sparsity, "eer": eer,
        "min_dcf": 0.4, "min_dcf_p05": 0.3,
        "threshold": 0.4, "intervals": {"eer": [0.8 * eer, 1.2 * eer], "min_dcf": [[0.3, 0.5], [0.2, 0.4]]}, "det": det,
        "histogram": {"low": -0.2, "high": 1.0, "targets": [0, 1, 5, 20], "others": [30, 20, 4, 0]},
        "scoring": "cosine",
        "trials": 80, "targets": 26, "speakers": 4, "left_out": 0,
    })
}

/// An unfinished run of `epochs` epochs, evaluated in and out of domain.
pub(crate) fn write_run(folder: &Path, epochs: u64, target: f64, optimizer: &str) -> PathBuf {
    std::fs::create_dir_all(folder.join("evaluations")).unwrap();
    let recipe = format!(
        "[data]\nroot = \"voices\"\n[train]\nepochs = {}\n[method]\nkind = \"adaptive\"\ntarget = {target}\n\
         optimizer = {{ kind = \"{optimizer}\" }}\n",
        epochs + 1
    );
    std::fs::write(folder.join("config.toml"), recipe).unwrap();
    let lines = (1..=epochs).map(|epoch| {
        let steps: String = (1..=PER_EPOCH).map(|step| step_line((epoch - 1) * PER_EPOCH + step, target)).collect();
        steps + &epoch_line(epoch, target)
    });
    std::fs::write(folder.join("metrics.jsonl"), lines.collect::<String>()).unwrap();
    for (test, domain, eer) in [("here", "in", 0.02), ("there", "out", 0.1)] {
        let file = folder.join("evaluations").join(format!("{test}.json"));
        std::fs::write(file, evaluation(test, domain, target, eer / (1.05 - target)).to_string()).unwrap();
    }
    folder.to_owned()
}

/// A corpus of synthetic voices, a run that has seen a little of it, and what `train` said of it.
pub(crate) fn tiny_run(dir: &Path) -> (PathBuf, PathBuf, Value) {
    let (voices, recipe, run) = (dir.join("voices"), dir.join("recipe.toml"), dir.join("run"));
    synth(&voices, [6, 5, 2], ["1.0", "1.2"]);
    let settings = format!(
        "[model]\nkind = \"ecapa\"\nchannels = 16\nembedding = 16\n[data]\nroot = {voices:?}\nseconds = 1.0\n\
         [method]\nkind = \"adaptive\"\ntarget = 0.5\n[train]\nepochs = 1\nbatch = 8\n"
    );
    std::fs::write(&recipe, settings).unwrap();
    let summary = json(&bregman(&["train", text(&recipe), "--out", text(&run), "--json"]));
    (voices, run, summary)
}
