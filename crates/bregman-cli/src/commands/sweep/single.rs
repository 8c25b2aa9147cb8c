//! One run of a sweep: trained, evaluated, and where methods are compared exported.

use std::path::PathBuf;

use bregman_train::{RunFolder, RunState};
use serde::Serialize;
use serde_json::Value;

use super::Args;
use super::combinations::Combination;
use super::processes::{Children, finish, log_of, program};

/// What runs are evaluated on.
#[derive(Clone, Copy)]
struct TestLists<'a> {
    trials: &'a Option<PathBuf>,
    roots: &'a [PathBuf],
    enroll: &'a Option<PathBuf>,
}

/// One run of the sweep.
#[derive(Debug, Clone, Serialize)]
pub(super) struct SweepRow {
    pub(super) run: PathBuf,
    /// As `--methods` has it.
    pub(super) method: Option<String>,
    pub(super) target: Option<f64>,
    pub(super) settings: Vec<String>,
    /// `finished`, `skipped` (had finished before) or `failed`.
    pub(super) status: &'static str,
    /// Why it failed.
    pub(super) problem: Option<String>,
    pub(super) sparsity: Option<f64>,
    pub(super) lambda: Option<f64>,
    pub(super) eer: Option<f64>,
    /// 95 % of the resampled test sets have an EER in it.
    pub(super) eer_interval: Option<[f64; 2]>,
    pub(super) eer_out_of_domain: Option<f64>,
    /// Of training.
    pub(super) seconds: Option<f64>,
    /// Of the exported file, where methods are compared.
    pub(super) bytes: Option<u64>,
}

/// Trains what is not trained yet, and measures it.
pub(super) fn one(args: &Args, combination: &Combination, children: &Children) -> SweepRow {
    let run = args.out.join(combination.folder_name());
    let folder = RunFolder::new(&run);
    let last = || folder.last().state().ok();
    // A run with other settings in this folder is no reason to skip; `bregman train` will refuse to continue it and say
    // why.
    let asked = combination.experiment().ok();
    let target = asked.as_ref().and_then(|asked| asked.method.target());
    let same =
        || folder.experiment().is_ok_and(|saved| asked.is_some_and(|asked| asked.in_precision_of(&saved) == saved));
    let had_finished = last().is_some_and(|state| state.finished) && same();
    let mut row = SweepRow {
        run: run.clone(),
        method: combination.method.clone(),
        target,
        settings: combination.varied.clone(),
        status: if had_finished { "skipped" } else { "finished" },
        problem: None,
        sparsity: None,
        lambda: None,
        eer: None,
        eer_interval: None,
        eer_out_of_domain: None,
        seconds: None,
        bytes: None,
    };
    let device = args.place.device.to_string();
    let mut work = || -> Result<(), String> {
        if !had_finished {
            let mut train = program(args.jobs)?;
            train
                .arg("train")
                .args(&combination.recipe)
                .args(["--resume", "--json", "--device", &device, "--out"])
                .arg(&run);
            train.args(combination.settings.iter().flat_map(|setting| ["--set", setting]));
            finish(&mut train, &log_of(&run), children)?;
        }
        let chosen = folder.chosen().and_then(|checkpoint| checkpoint.state().ok());
        row.sparsity = chosen.as_ref().map(|state| state.sparsity);
        row.lambda = chosen.as_ref().and_then(RunState::mean_lambda);
        row.seconds = last().map(|state| state.seconds);
        let evaluate = |test: TestLists<'_>, domain: &str| -> Result<Value, String> {
            let Some(trials) = test.trials else { return Ok(Value::Null) };
            let mut evaluate = program(args.jobs)?;
            evaluate.arg("evaluate").arg(&run).args(["--json", "--device", &device, "--domain", domain]);
            evaluate.arg("--trials").arg(trials);
            for root in test.roots {
                evaluate.arg("--root").arg(root);
            }
            if let Some(map) = test.enroll {
                evaluate.arg("--enroll").arg(map);
            }
            args.cohort.pass_to(&mut evaluate);
            finish(&mut evaluate, &log_of(&run), children)
        };
        let other = TestLists { trials: &args.other_trials, roots: &args.other_roots, enroll: &args.other_enroll };
        row.eer_out_of_domain = evaluate(other, "out")?["eer"].as_f64();
        // Last, so that the run keeps the threshold of its own domain.
        let own = evaluate(TestLists { trials: &args.trials, roots: &args.roots, enroll: &args.enroll }, "in")?;
        row.eer = own["eer"].as_f64();
        row.eer_interval = serde_json::from_value(own["intervals"]["eer"].clone()).ok();
        if !args.methods.is_empty() {
            let export = |values: &str| {
                let mut export = program(args.jobs)?;
                export.arg("export").arg(&run).args(["--json", "--force", "--values", values]);
                finish(export.arg("-o").arg(run.join("model.breg")), &log_of(&run), children)
            };
            // a network that diverged may have weights that half precision cannot hold
            row.bytes = export("f16").or_else(|_| export("f32"))?["bytes"].as_u64();
        }
        Ok(())
    };
    if let Err(problem) = work() {
        (row.status, row.problem) = ("failed", Some(problem));
    }
    row
}
