//! Other speakers, against whom scores are normalised.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use bregman_speaker::score::CohortSource;
use bregman_speaker::{AudioSource, open_corpus};

use crate::failure::Failure;

/// The paper's.
const TOP_N: usize = 600;

/// The cohort of an evaluation.
#[derive(Debug, clap::Args)]
pub(super) struct CohortArgs {
    /// Manifest or shards of other speakers, such as the training set
    #[arg(long, value_name = "MANIFEST")]
    cohort: Option<PathBuf>,
    /// Use at most so many utterances of each cohort speaker [default: all]
    #[arg(long, value_name = "N", requires = "cohort")]
    cohort_utterances: Option<usize>,
    /// Normalise with the best N cohort scores [default with --cohort: 600]
    #[arg(long, value_name = "N")]
    as_norm: Option<usize>,
    /// Subtract the mean of the cohort from all embeddings
    #[arg(long)]
    pub(super) center: bool,
}

impl CohortArgs {
    /// Opens the cohort, if there is one.
    pub(super) fn open(&self) -> Result<Option<Arc<dyn AudioSource>>, Failure> {
        self.check()?;
        Ok(self.cohort.as_deref().map(|path| open_corpus(path, None)).transpose()?)
    }

    /// Refuses options that contradict each other.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let needs = if self.as_norm.is_some() { Some("--as-norm") } else { self.center.then_some("--center") };
        match (&self.cohort, needs) {
            (None, Some(option)) => {
                let hint = "pass --cohort with the manifest of other speakers, for example the training set";
                Err(Failure::mistake(format!("{option} needs a cohort"), hint))
            }
            _ if self.cohort_utterances == Some(0) => Err(Failure::mistake("--cohort-utterances 0", "pass 1 or more")),
            _ => Ok(()),
        }
    }

    /// How `source`, the cohort that was opened, is used.
    pub(super) fn of<'a>(&self, source: &'a dyn AudioSource) -> CohortSource<'a> {
        CohortSource {
            source,
            per_speaker: self.cohort_utterances.unwrap_or(usize::MAX),
            center: self.center,
            as_norm: self.as_norm.or((!self.center).then_some(TOP_N)),
        }
    }

    /// The same options for another call of this program.
    pub(super) fn pass_to(&self, command: &mut Command) {
        if let Some(path) = &self.cohort {
            command.arg("--cohort").arg(path);
        }
        for (option, number) in [("--cohort-utterances", self.cohort_utterances), ("--as-norm", self.as_norm)] {
            if let Some(number) = number {
                command.arg(option).arg(number.to_string());
            }
        }
        if self.center {
            command.arg("--center");
        }
    }
}
