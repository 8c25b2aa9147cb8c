//! Evaluations kept in their run, `RUN/evaluations/NAME.json`: what `bregman evaluate` prints, for `bregman report` and
//! `bregman plot`.

use std::path::{Path, PathBuf};

use bregman_speaker::score::{EvaluationReport, Rates};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::network::Network;

/// Whether a test set is of the corpus that the network was trained on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Domain {
    /// Trained on this corpus
    In,
    /// Trained on another
    Out,
}

/// What was evaluated on what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Subject {
    /// Name of the test set in tables and charts.
    pub(crate) test: String,
    pub(crate) domain: Domain,
    pub(crate) checkpoint: PathBuf,
    /// Steps that the checkpoint has seen.
    pub(crate) step: u64,
    /// s(θ) of the checkpoint.
    pub(crate) sparsity: f64,
}

/// What is written.
#[derive(Debug, Serialize)]
pub(crate) struct Evaluated<'a> {
    #[serde(flatten)]
    pub(crate) subject: &'a Subject,
    #[serde(flatten)]
    pub(crate) report: &'a EvaluationReport,
}

/// What is read back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Evaluation {
    #[serde(flatten)]
    pub(crate) subject: Subject,
    #[serde(flatten)]
    pub(crate) rates: Rates,
    pub(crate) scoring: String,
    pub(crate) trials: u64,
    pub(crate) targets: u64,
    pub(crate) speakers: u64,
    pub(crate) left_out: u64,
}

/// The folder of a run's evaluations.
const FOLDER: &str = "evaluations";

impl Subject {
    /// A network on a trial list; `name` and `domain` where the user has said them.
    pub(crate) fn new(
        network: &Network,
        list: &Path,
        root: &Path,
        name: Option<String>,
        domain: Option<Domain>,
    ) -> Self {
        let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let word =
            |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned()).unwrap_or_default();
        let named = || format!("{} {}", word(whole(root).file_name()), word(list.file_stem())).trim().to_owned();
        let seen = if whole(root) == whole(&network.corpus) { Domain::In } else { Domain::Out };
        Self {
            test: name.unwrap_or_else(named),
            domain: domain.unwrap_or(seen),
            checkpoint: network.checkpoint.clone(),
            step: network.step,
            sparsity: network.sparsity,
        }
    }
}

impl Evaluated<'_> {
    /// Keeps it in the run, one file per test set, scoring and checkpoint; one that cannot be kept is told.
    pub(crate) fn save(&self, run: &Path) {
        let plain = |letter: char| if letter.is_alphanumeric() || "._-".contains(letter) { letter } else { '-' };
        let checkpoint = self.subject.checkpoint.file_name().unwrap_or_default().to_string_lossy();
        let name: String =
            format!("{}.{}.{checkpoint}.json", self.subject.test, self.report.scoring).chars().map(plain).collect();
        let (folder, file) = (run.join(FOLDER), run.join(FOLDER).join(name));
        let write = |text| std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&file, text));
        if let Err(error) = serde_json::to_string(self).map_err(std::io::Error::from).and_then(write) {
            eprintln!("note: the evaluation is not kept: {}: {error}", file.display());
        }
    }
}

impl Evaluation {
    /// The evaluations of a run in the order of their file names, and the files that could not be read.
    pub(crate) fn of_run(run: &Path) -> (Vec<Self>, Vec<String>) {
        let entries = std::fs::read_dir(run.join(FOLDER)).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut files: Vec<PathBuf> =
            entries.filter(|path| path.extension().is_some_and(|kind| kind == "json")).collect();
        files.sort();
        let (mut read, mut broken) = (Vec::new(), Vec::new());
        for file in files {
            match std::fs::read(&file).map_err(|error| error.to_string()).and_then(|text| parse(&text)) {
                Ok(evaluation) => read.push(evaluation),
                Err(problem) => broken.push(format!("{}: {problem}", file.display())),
            }
        }
        (read, broken)
    }
}

fn parse(text: &[u8]) -> Result<Evaluation, String> {
    serde_json::from_slice(text).map_err(|error| error.to_string())
}
