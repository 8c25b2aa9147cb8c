//! The score above which two utterances count as one speaker: found by an evaluation, kept in the run for decisions.

use std::path::PathBuf;

use bregman_base::files::write_file;
use serde::{Deserialize, Serialize};

use super::{RunFolder, format};
use crate::Result;

/// A threshold for cosines, and where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThresholdRecord {
    /// Misses and false alarms were equally frequent here.
    pub cosine: f64,
    /// How frequent.
    pub eer: f64,
    /// The trial list.
    pub trials: PathBuf,
    /// Names the network and the settings of its embeddings: a threshold holds for these only.
    pub network: String,
}

impl ThresholdRecord {
    /// Replaces the threshold of the run.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save(&self, run: &RunFolder) -> Result<()> {
        Ok(write_file(&run.threshold(), format::to_json(self))?)
    }

    /// The threshold of the run for this network; `None` where it was not evaluated.
    ///
    /// # Errors
    /// A file that cannot be understood or is of a newer format.
    pub fn read(run: &RunFolder, network: &str) -> Result<Option<Self>> {
        let file = run.threshold();
        if !file.exists() {
            return Ok(None);
        }
        Ok(Some(format::read_json::<Self>(&file)?).filter(|threshold| threshold.network == network))
    }
}
