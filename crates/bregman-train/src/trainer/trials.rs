//! Trials that a run is scored on after every epoch.

use std::sync::Arc;

use bregman_runtime::{Model, ValueFormat};
use bregman_speaker::score::{Bootstrap, Embedder, EmbeddingStore, Evaluation};
use bregman_speaker::{AudioSource, ResolvedTrials};

use super::Trainer;
use crate::trained::deploy::model_file;
use crate::{Device, Error, Result};

/// Trials, and the audio that they name. They are scored as the exported network would score them, by the runtime on
/// the CPU, and nothing in the run depends on the result.
pub struct EpochTrials {
    /// The utterances of the trials.
    pub source: Arc<dyn AudioSource>,
    /// Trials by utterance number.
    pub trials: ResolvedTrials,
    /// The middle of each utterance, up to this length, is embedded.
    pub max_seconds: f64,
}

impl<'a, B: Device> Trainer<'a, B> {
    /// Scores the network on these trials after every epoch; the record and the log have its equal error rate.
    pub fn with_trials(mut self, trials: EpochTrials) -> Self {
        self.trials = Some(trials);
        self
    }

    /// The equal error rate of the network as it is now, on the rank that keeps the books.
    pub(super) fn equal_error_rate(&self) -> Result<Option<f64>> {
        let (Some(trials), Some(_)) = (&self.trials, &self.books) else { return Ok(None) };
        let failed = |error: bregman_runtime::Error| Error::checkpoint(self.run.path(), error.to_string());
        let features = self.experiment.data.features.fbank();
        let file = model_file(self.experiment.architecture(), &features, &self.model.state()?).map_err(failed)?;
        let model = file.to_bytes(ValueFormat::F32).and_then(|bytes| Model::from_bytes(&bytes)).map_err(failed)?;
        let evaluation = Evaluation {
            source: &*trials.source,
            trials: &trials.trials,
            cohort: None,
            max_seconds: trials.max_seconds,
            bootstrap: Bootstrap { replicates: 0, seed: 1 },
            strict: false,
        };
        let scored = evaluation.run(|| Ok(Network(&model)), &EmbeddingStore::in_memory(), &())?;
        Ok(Some(scored.report.rates.eer))
    }
}

struct Network<'a>(&'a Model);

impl Embedder for Network<'_> {
    fn embed(&mut self, samples: &mut [f32]) -> Result<Vec<f32>, String> {
        self.0.embed(samples).map_err(|error| error.to_string())
    }
}
