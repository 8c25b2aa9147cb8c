//! The score above which two utterances count as one speaker: what `evaluate` found, kept in the run for `verify` and
//! `identify`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// A threshold for cosines, and where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Threshold {
    /// Misses and false alarms were equally frequent here.
    pub(crate) cosine: f64,
    /// How frequent.
    pub(crate) eer: f64,
    /// On these trials.
    pub(crate) trials: PathBuf,
    /// The network, as [`crate::network::Network::name`] says.
    pub(crate) network: String,
}

fn file(run: &Path) -> PathBuf {
    run.join("threshold.json")
}

impl Threshold {
    /// Keeps it in the run; one that cannot be kept is told.
    pub(crate) fn save(&self, run: &Path) {
        let file = file(run);
        if let Err(error) = serde_json::to_string_pretty(self)
            .map_err(std::io::Error::from)
            .and_then(|text| std::fs::write(&file, text))
        {
            eprintln!("note: the threshold is not kept: {}: {error}", file.display());
        }
    }

    /// The threshold of `run` for this network, if it was evaluated.
    pub(crate) fn of(run: &Path, network: &str) -> Option<Self> {
        let text = std::fs::read_to_string(file(run)).ok()?;
        serde_json::from_str(&text).ok().filter(|threshold: &Self| threshold.network == network)
    }

    /// The user's threshold, or else that of the run.
    pub(crate) fn choose(asked: Option<f64>, run: &Path, network: &str) -> Result<f64, Failure> {
        asked.or_else(|| Self::of(run, network).map(|threshold| threshold.cosine)).ok_or_else(|| {
            let hint =
                "pass --threshold, or find one on trials of your own: bregman evaluate RUN --trials T --root DIR";
            Failure::mistake(format!("{}: no threshold is known for this network", run.display()), hint)
        })
    }
}
