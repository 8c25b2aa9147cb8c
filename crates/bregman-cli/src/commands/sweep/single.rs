//! One run of a sweep: trained, evaluated, and where methods are compared exported.

use std::path::PathBuf;

use bregman_train::{EvaluationRecord, RunFolder, RunState, TestDomain};
use serde::Serialize;

use super::Args;
use super::combinations::Combination;
use super::plan::{Plan, Test};
use super::processes::{Children, finish, log_of, program};

/// One run of the sweep.
#[derive(Debug, Clone, Serialize)]
pub(super) struct SweepRow {
    pub(super) run: PathBuf,
    /// The name of its group in the plan.
    pub(super) group: Option<String>,
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
    /// One of each test, in the order of the plan; a run's folder has them too.
    #[serde(skip)]
    pub(super) evaluations: Vec<EvaluationRecord>,
    /// Its recipe without the method.
    #[serde(skip)]
    pub(super) shared_recipe: Vec<PathBuf>,
}

impl SweepRow {
    /// The settings that tell it from other runs of its method: not its seed, not its target.
    pub(super) fn other_settings(&self) -> impl Iterator<Item = &String> {
        let other = |setting: &&String| !setting.starts_with("seed=") && !setting.starts_with("method.target=");
        self.settings.iter().filter(other)
    }
}

/// Trains what is not trained yet, and measures it.
pub(super) fn one(args: &Args, plan: &Plan, combination: &Combination, children: &Children) -> SweepRow {
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
        group: combination.group.clone(),
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
        evaluations: vec![],
        shared_recipe: combination.shared_recipe().to_vec(),
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
        let evaluate = |test: &Test| -> Result<EvaluationRecord, String> {
            let mut evaluate = program(args.jobs)?;
            evaluate.arg("evaluate").arg(&run).args(["--json", "--device", &device]);
            test.pass_to(&mut evaluate);
            args.cohort.pass_to(&mut evaluate);
            let printed = finish(&mut evaluate, &log_of(&run), children)?;
            serde_json::from_value(printed).map_err(|error| format!("its evaluation cannot be read: {error}"))
        };
        // The last one leaves its threshold in the run: that of its own domain.
        let mut order: Vec<usize> = (0..plan.tests.len()).collect();
        order.sort_by_key(|&at| (plan.tests[at].domain == TestDomain::In, std::cmp::Reverse(at)));
        let mut evaluated =
            order.iter().map(|&at| Ok((at, evaluate(&plan.tests[at])?))).collect::<Result<Vec<_>, String>>()?;
        evaluated.sort_by_key(|&(at, _)| at);
        row.evaluations = evaluated.into_iter().map(|(_, record)| record).collect();
        let first = |domain| row.evaluations.iter().find(|record| record.domain == domain);
        row.eer_out_of_domain = first(TestDomain::Out).map(|record| record.report.rates.eer);
        if let Some(rates) = first(TestDomain::In).map(|record| &record.report.rates) {
            row.eer = Some(rates.eer);
            row.eer_interval = rates.intervals.as_ref().map(|intervals| intervals.eer);
        }
        if plan.compares() {
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
