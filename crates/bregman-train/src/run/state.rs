//! Where a run stands, apart from its arrays: `state.json` of a checkpoint.

use bregman::controller::LoopState;
use bregman_speaker::BatchPosition;
use serde::{Deserialize, Serialize};

use super::CorpusRecord;
use crate::method::Survival;
use crate::trainer::schedule::LearningRate;
use crate::trainer::selection::EpochSelection;

/// Where a run stands, apart from its arrays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    /// Steps taken.
    pub step: u64,
    /// The next batch.
    pub position: BatchPosition,
    /// Speakers told apart.
    pub classes: usize,
    /// The names of the tensors, for others who read this: in the order of `lambda`, and of the control loops where
    /// each layer has its own. Unknown to runs from before this was kept, until they are saved again.
    #[serde(default)]
    pub parameters: Vec<String>,
    /// λ of every tensor.
    pub lambda: Vec<f64>,
    /// Control loops.
    pub loops: Vec<LoopState>,
    /// Learning rate.
    pub lr: LearningRate,
    /// Best epoch.
    pub selection: EpochSelection,
    /// Sums over the epoch so far.
    pub sums: EpochSums,
    /// s(θ).
    pub sparsity: f64,
    /// What became of the weights that exchanges of masks grew.
    #[serde(default)]
    pub survival: Survival,
    /// Bytes of `metrics.jsonl` and of the event file at this point.
    pub logged: [u64; 2],
    /// Whether the run is over.
    pub finished: bool,
    /// Seconds of training so far.
    pub seconds: f64,
    /// Ranks that it began with: its batches have `train.batch` cuts for each of them, however many there are now.
    #[serde(default = "one")]
    pub ranks: usize,
    /// What it is trained on; unknown to runs from before this was kept.
    #[serde(default)]
    pub corpus: Option<CorpusRecord>,
}

/// More than any run counts, and few enough to be added: up to here an f64 has every whole number.
const MOST: u64 = 1 << 53;
/// More than any run began with.
const MOST_RANKS: u64 = 1 << 16;

fn one() -> usize {
    1
}

impl RunState {
    /// Refuses counts that no run comes to.
    pub(crate) fn check(&self) -> Result<(), String> {
        let counts = [
            ("step", self.step, 0..=MOST),
            ("position.epoch", self.position.epoch, 0..=MOST),
            ("position.batch", self.position.batch, 0..=MOST),
            ("sums.correct", self.sums.correct, 0..=MOST),
            ("sums.cuts", self.sums.cuts, 0..=MOST),
            ("selection.waited", self.selection.waited, 0..=MOST),
            ("lr.waited", self.lr.waited, 0..=MOST),
            ("ranks", self.ranks as u64, 1..=MOST_RANKS),
        ];
        match counts.into_iter().find(|(_, count, range)| !range.contains(count)) {
            None => Ok(()),
            Some((name, count, range)) => {
                Err(format!("{name} = {count}: expected {} to {}", range.start(), range.end()))
            }
        }
    }

    /// λ, the mean over control loops; `None` where λ is not controlled.
    pub fn mean_lambda(&self) -> Option<f64> {
        let loops = self.loops.len();
        (loops > 0).then(|| self.loops.iter().map(|state| state.lambda).sum::<f64>() / loops as f64)
    }
}

/// Sums over the steps of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct EpochSums {
    /// Σ loss·cuts.
    pub loss: f64,
    /// Cuts whose speaker scored best.
    pub correct: u64,
    /// Cuts.
    pub cuts: u64,
}

impl EpochSums {
    pub(crate) fn add(&mut self, outcome: bregman_nn::BatchOutcome, cuts: usize) {
        self.loss += f64::from(outcome.loss) * cuts as f64;
        self.correct += outcome.correct as u64;
        self.cuts += cuts as u64;
    }

    /// Mean loss and accuracy.
    pub(crate) fn means(&self) -> (f64, f64) {
        let cuts = self.cuts.max(1) as f64;
        (self.loss / cuts, self.correct as f64 / cuts)
    }
}
