//! What a sweep runs and tests: said by a file, or by options.

use std::path::{Path, PathBuf};
use std::process::Command;

use bregman_base::files::read_text;
use bregman_train::TestDomain;
use serde::Deserialize;

use super::Args;
use crate::failure::Failure;

/// The largest plan.
const MOST_PLAN: u64 = 1 << 20;

/// Runs, the lists they are tested on, and the one they are compared with.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    /// Recipe of all runs, by names or as files.
    #[serde(default)]
    pub(super) recipe: Vec<PathBuf>,
    /// Settings of all runs, as `--set` takes them.
    #[serde(default)]
    pub(super) set: Vec<String>,
    /// Every run once with each.
    #[serde(default)]
    pub(super) seeds: Vec<u64>,
    /// The method that the others are compared with, on the same trials.
    #[serde(default)]
    pub(super) baseline: Option<String>,
    /// What is run.
    pub(super) runs: Vec<Runs>,
    /// What each run is tested on.
    #[serde(default)]
    pub(super) tests: Vec<Test>,
}

/// Every method with every target and setting.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Runs {
    /// What tells them from others in the table.
    pub(super) name: Option<String>,
    /// More of the recipe, such as the network.
    pub(super) recipe: Vec<PathBuf>,
    /// Methods by recipe; the recipe's own without one.
    pub(super) methods: Vec<String>,
    /// Sparsities, for methods that have one.
    pub(super) targets: Vec<f64>,
    /// More settings.
    pub(super) set: Vec<String>,
}

/// A trial list, and how its utterances are heard.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Test {
    /// Its name in tables and charts; the program finds one.
    #[serde(default)]
    pub(super) name: Option<String>,
    pub(super) trials: PathBuf,
    pub(super) roots: Vec<PathBuf>,
    #[serde(default)]
    pub(super) enroll: Option<PathBuf>,
    pub(super) domain: TestDomain,
    /// The options of `bregman evaluate`.
    #[serde(default)]
    pub(super) max_seconds: Option<f64>,
    #[serde(default)]
    pub(super) noise: Option<f64>,
    #[serde(default)]
    pub(super) room: Option<f64>,
}

impl Plan {
    pub(super) fn of(args: &Args) -> Result<Self, Failure> {
        match &args.plan {
            Some(file) => Self::read(file),
            None => Ok(Self::from_options(args)),
        }
    }

    fn read(file: &Path) -> Result<Self, Failure> {
        let text = read_text(file, MOST_PLAN).map_err(|error| Failure::failed(error.to_string()))?;
        let plan: Self = toml::from_str(&text).map_err(|error| {
            Failure::mistake(
                format!("{}: {}", file.display(), error.to_string().trim_end()),
                "see bregman sweep --help",
            )
        })?;
        let names: Vec<&String> = plan.tests.iter().filter_map(|test| test.name.as_ref()).collect();
        match names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
            Some((_, name)) => Err(Failure::mistake(
                format!("{}: two tests are called {name}", file.display()),
                "give each [[tests]] a name of its own",
            )),
            None => Ok(plan),
        }
    }

    fn from_options(args: &Args) -> Self {
        let test = |trials: &Option<PathBuf>, roots: &[PathBuf], enroll: &Option<PathBuf>, domain| {
            let (roots, enroll) = (roots.to_vec(), enroll.clone());
            trials.clone().map(|trials| Test {
                name: None,
                trials,
                roots,
                enroll,
                domain,
                max_seconds: None,
                noise: None,
                room: None,
            })
        };
        let own = test(&args.trials, &args.roots, &args.enroll, TestDomain::In);
        let other = test(&args.other_trials, &args.other_roots, &args.other_enroll, TestDomain::Out);
        let runs = Runs { methods: args.methods.clone(), targets: args.targets.clone(), ..Runs::default() };
        Self {
            recipe: args.recipe.clone(),
            set: args.settings.clone(),
            seeds: vec![],
            baseline: args.baseline.clone(),
            runs: vec![runs],
            tests: own.into_iter().chain(other).collect(),
        }
    }

    /// Whether methods are compared, and so exported.
    pub(super) fn compares(&self) -> bool {
        self.runs.iter().any(|runs| !runs.methods.is_empty())
    }
}

impl Test {
    /// As options of `bregman evaluate`.
    pub(super) fn pass_to(&self, evaluate: &mut Command) {
        let domain = if self.domain == TestDomain::In { "in" } else { "out" };
        evaluate.args(["--domain", domain]).arg("--trials").arg(&self.trials);
        for root in &self.roots {
            evaluate.arg("--root").arg(root);
        }
        if let Some(map) = &self.enroll {
            evaluate.arg("--enroll").arg(map);
        }
        if let Some(name) = &self.name {
            evaluate.arg("--name").arg(name);
        }
        for (option, value) in [("--max-seconds", self.max_seconds), ("--noise", self.noise), ("--room", self.room)] {
            if let Some(value) = value {
                evaluate.arg(option).arg(value.to_string());
            }
        }
    }
}
