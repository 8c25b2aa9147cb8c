//! Runs: a tiny one that is trained, and ones as the trainer would have written them, made up for tests of what is
//! shown.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

/// Steps of a made-up epoch.
pub(crate) const PER_EPOCH: u64 = 10;

/// This program.
pub(crate) fn bregman(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bregman")).args(args).env("RAYON_NUM_THREADS", "2").output().unwrap()
}

/// Its output, if it succeeded.
pub(crate) fn success(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The message of a user's mistake.
pub(crate) fn mistake(output: &Output) -> String {
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{message}");
    message
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
    let line = json!({
        "kind": "step", "step": step, "epoch": (step - 1) / PER_EPOCH + 1, "loss": 3.0 / step as f64, "accuracy": 1.0 - 1.0 / step as f64,
        "lambda": 0.01 * step as f64, "sparsity": sparsity, "target": target, "epsilon": target - sparsity, "lr": 0.1, "margin": 0.2,
        "gradient_norm": 1.0, "utterances_per_second": 50.0,
    });
    // The trainer writes `kind` first.
    let text = line.to_string().replacen("\"kind\":\"step\",", "", 1).replace(",\"kind\":\"step\"", "");
    format!("{{\"kind\":\"step\",{}\n", &text[1..])
}

/// One line of an epoch: two layers, of which the second dies in the third epoch.
pub(crate) fn epoch_line(epoch: u64, target: f64) -> String {
    let dead = epoch >= 3;
    let layer = |name: &str, sparsity: f64| json!({"name": name, "shape": [8, 4, 3], "sparsity": sparsity, "live": ((1.0 - sparsity) * 96.0).round() as u64, "norm": 1.0 + 0.1 * epoch as f64});
    let layers = [layer("layer1.conv.weight", target), layer("layer2.conv.weight", if dead { 1.0 } else { target })];
    let line = json!({
        "kind": "epoch", "step": epoch * PER_EPOCH, "epoch": epoch, "train_loss": 1.0 / epoch as f64, "train_accuracy": 0.9,
        "validation_loss": 1.2 / epoch as f64, "validation_accuracy": 0.8, "lambda": 0.5, "sparsity": target, "target": target,
        "admitted": true, "lr": 0.1, "seconds": 3.0 * epoch as f64, "groups": [["layer1", target], ["layer2", target]], "layers": layers,
        "dead": if dead { vec!["layer2.conv.weight"] } else { vec![] },
    });
    line.to_string() + "\n"
}

/// An evaluation of a made-up run.
fn evaluation(test: &str, domain: &str, sparsity: f64, eer: f64) -> Value {
    let det: Vec<Value> = (1..40)
        .map(|at| f64::from(at) / 40.0)
        .map(|rate| json!({"miss": rate, "false_alarm": eer * eer / rate}))
        .collect();
    json!({
        "test": test, "domain": domain, "checkpoint": "last", "step": 0, "sparsity": sparsity, "eer": eer, "min_dcf": 0.4, "min_dcf_p05": 0.3,
        "threshold": 0.4, "intervals": {"eer": [0.8 * eer, 1.2 * eer], "min_dcf": [[0.3, 0.5], [0.2, 0.4]]}, "det": det,
        "histogram": {"low": -0.2, "high": 1.0, "targets": [0, 1, 5, 20], "others": [30, 20, 4, 0]}, "scoring": "cosine",
        "trials": 80, "targets": 26, "speakers": 4, "left_out": 0,
    })
}

/// An unfinished run of `epochs` epochs, evaluated in and out of domain.
pub(crate) fn write_run(folder: &Path, epochs: u64, target: f64, optimizer: &str) -> PathBuf {
    std::fs::create_dir_all(folder.join("evaluations")).unwrap();
    let recipe = format!(
        "[data]\nroot = \"voices\"\n[train]\nepochs = {}\n[method]\nkind = \"adaptive\"\ntarget = {target}\noptimizer = {{ kind = \"{optimizer}\" }}\n",
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
    let sizes = ["--speakers", "6", "--utterances", "5", "--held-out", "2", "--seconds", "1.0", "1.2"];
    success(&bregman(&[&["synth", "--out", text(&voices)], &sizes[..]].concat()));
    let settings = format!(
        "[model]\nkind = \"ecapa\"\nchannels = 16\nembedding = 16\n[data]\nroot = {voices:?}\nseconds = 1.0\n\
         [method]\nkind = \"adaptive\"\ntarget = 0.5\n[train]\nepochs = 1\nbatch = 8\n"
    );
    std::fs::write(&recipe, settings).unwrap();
    let summary = success(&bregman(&["train", text(&recipe), "--out", text(&run), "--json"]));
    (voices, run, serde_json::from_str(&summary).unwrap())
}
