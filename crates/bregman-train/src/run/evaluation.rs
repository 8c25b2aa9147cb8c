//! What a checkpoint scored on a trial list, kept in `evaluations/` of its run.

use std::path::PathBuf;

use bregman_base::files::write_file;
use bregman_speaker::score::EvaluationReport;
use serde::{Deserialize, Serialize};

use super::{RunFolder, format};
use crate::{Error, Result};

/// Whether a test set is of the corpus that the network was trained on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TestDomain {
    /// Trained on this corpus.
    In,
    /// Trained on another.
    Out,
}

/// What a checkpoint scored on a trial list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvaluationRecord {
    /// Name of the test set in tables and charts.
    pub test: String,
    /// Whether it is of the training corpus.
    pub domain: TestDomain,
    /// The checkpoint.
    pub checkpoint: PathBuf,
    /// Steps that the checkpoint has seen.
    pub step: u64,
    /// s(θ) of the checkpoint.
    pub sparsity: f64,
    /// The error rates.
    #[serde(flatten)]
    pub report: EvaluationReport,
}

impl EvaluationRecord {
    /// Keeps it in the run, one file per test set, scoring and checkpoint.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save(&self, run: &RunFolder) -> Result<()> {
        let plain = |letter: char| if letter.is_alphanumeric() || "._-".contains(letter) { letter } else { '-' };
        let checkpoint = self.checkpoint.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{}.{}.{checkpoint}.json", self.test, self.report.scoring);
        let folder = run.evaluations();
        let file = folder.join(name.chars().map(plain).collect::<String>());
        std::fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        Ok(write_file(&file, format::to_json_line(self))?)
    }

    /// The evaluations of a run in the order of their file names, and what is wrong with those that cannot be read.
    pub fn read_all(run: &RunFolder) -> (Vec<Self>, Vec<Error>) {
        let entries = std::fs::read_dir(run.evaluations()).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut files: Vec<PathBuf> =
            entries.filter(|path| path.extension().is_some_and(|kind| kind == "json")).collect();
        files.sort();
        let (mut read, mut unreadable) = (Vec::new(), Vec::new());
        for file in files {
            match format::read_json(&file) {
                Ok(evaluation) => read.push(evaluation),
                Err(error) => unreadable.push(error),
            }
        }
        (read, unreadable)
    }
}
