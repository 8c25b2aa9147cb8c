//! The loop: epochs, batches, loss, learning rate, checkpoints, and which epoch is the best.

use bregman_tensor::Precision;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::error::require;

/// The loop.
///
/// | setting | default | purpose | range |
/// | --- | --- | --- | --- |
/// | `epochs` | 20 | passes over the corpus | 1 … 10⁶ |
/// | `batch` | 256 | cuts per step of each rank | 2 … 2²⁰ |
/// | `lr` | the optimizer's: 0.1 LinBreg and SGD, 0.01 AdaBreg, 0.001 AdamW | learning rate τ | > 0 |
/// | `schedule` | plateau for Bregman methods from 10 epochs on, exponential for the others | see [`LrSchedule`] | |
/// | `clip` | 1 for Bregman methods, off for the others | largest norm of the gradient; `inf` for none | > 0 |
/// | `precision` | bf16 on a GPU, f32 on a CPU | in training; embeddings are always computed in f32 | f32, tf32, bf16 |
/// | `save_every` | 0 | steps between checkpoints beside those of each epoch; 0 for none | |
/// | `log_every` | 1 | steps between lines in `metrics.jsonl` | ≥ 1 |
/// | `early_stop` | off | stop after this many epochs without a better one | ≥ 1 |
/// | `deterministic` | false | two runs on a GPU are equal to the bit, as on a CPU; slower | |
/// | `divide_optimizer` | false | each rank keeps a part of duals and moments; otherwise all ranks keep all | |
/// | `fixed_norms` | false | batch norms keep the statistics of `init`; otherwise they take each batch's | |
/// | `joint_norms` | false | batch norms over the batches of all ranks; otherwise each rank its own | |
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainConfig {
    /// Passes over the corpus.
    pub epochs: u64,
    /// Cuts per step of each rank.
    pub batch: usize,
    /// Learning rate; `None` for the optimizer's own.
    pub lr: Option<f64>,
    /// Its movement; `None` for the method's own.
    pub schedule: Option<LrSchedule>,
    /// Largest norm of the gradient.
    pub clip: Option<f32>,
    /// Number format; `None` for the device's own. A run that has begun always says.
    pub precision: Option<Precision>,
    /// Steps between checkpoints within an epoch.
    pub save_every: u64,
    /// Steps between logged steps.
    pub log_every: u64,
    /// Patience in epochs.
    pub early_stop: Option<u64>,
    /// Two runs on a GPU are equal to the bit. Left out of files where it is off.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deterministic: bool,
    /// Where several ranks train: each keeps a part of duals and moments, and steps the weights of that part.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub divide_optimizer: bool,
    /// Batch norms keep the statistics that they begin with. Left out of files where it is off.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fixed_norms: bool,
    /// Where several ranks train: batch norms over all their batches together. Left out of files where it is off.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub joint_norms: bool,
}

/// More than any run has.
const MOST_EPOCHS: u64 = 1_000_000;

/// More cuts than the memory of any device holds.
const MOST_CUTS: usize = 1 << 20;

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            epochs: 20,
            batch: 256,
            lr: None,
            schedule: None,
            clip: None,
            precision: None,
            save_every: 0,
            log_every: 1,
            early_stop: None,
            deterministic: false,
            divide_optimizer: false,
            fixed_norms: false,
            joint_norms: false,
        }
    }
}

impl TrainConfig {
    pub(super) fn check(&self) -> Result<()> {
        let epochs = format!("1 to {MOST_EPOCHS}");
        require((1..=MOST_EPOCHS).contains(&self.epochs), "train.epochs", self.epochs, epochs)?;
        let batch = format!("2 to {MOST_CUTS}: batch norm compares the examples of a batch");
        require((2..=MOST_CUTS).contains(&self.batch), "train.batch", self.batch, batch)?;
        require(self.log_every >= 1, "train.log_every", self.log_every, "1 or more")?;
        require(self.early_stop != Some(0), "train.early_stop", 0, "1 or more epochs")?;
        let positive = |field, value: Option<f64>| match value {
            Some(value) => require(value > 0.0 && value.is_finite(), field, value, "a number > 0"),
            None => Ok(()),
        };
        positive("train.lr", self.lr)?;
        let clip = self.clip.unwrap_or(f32::INFINITY);
        require(clip > 0.0, "train.clip", clip, "a number > 0, or inf for none")?;
        self.schedule.map_or(Ok(()), |schedule| schedule.check())
    }
}

/// How the learning rate moves.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum LrSchedule {
    /// Not at all.
    Constant {},
    /// Times `factor` at the first epoch without improvement after `patience` such epochs, down to `floor`: PyTorch's
    /// `ReduceLROnPlateau`.
    Plateau {
        /// What it is multiplied with.
        #[serde(default = "quarter")]
        factor: f64,
        /// Epochs without improvement that are tolerated.
        #[serde(default = "two")]
        patience: u64,
        /// Lowest learning rate.
        #[serde(default = "floor")]
        floor: f64,
    },
    /// A linear start over `warmup` epochs, and an exponential way to `last` times the learning rate at the end.
    Exponential {
        /// Epochs of the linear start.
        #[serde(default = "one")]
        warmup: f64,
        /// Share of the learning rate that is left at the end.
        #[serde(default = "last")]
        last: f64,
    },
    /// A linear start over `warmup` epochs, and then half a cosine down to `last` times the learning rate at the end:
    /// the schedule under which STR, AC/DC and MEST were published.
    Cosine {
        /// Epochs of the linear start.
        #[serde(default = "one")]
        warmup: f64,
        /// Share of the learning rate that is left at the end.
        #[serde(default)]
        last: f64,
    },
}

fn quarter() -> f64 {
    0.25
}
fn two() -> u64 {
    2
}
fn floor() -> f64 {
    1e-6
}
fn one() -> f64 {
    1.0
}
fn last() -> f64 {
    5e-4
}

impl LrSchedule {
    /// The paper's for Bregman methods.
    pub fn plateau() -> Self {
        Self::Plateau { factor: quarter(), patience: two(), floor: floor() }
    }

    /// The paper's for dense and pruned networks; `last` is WeSpeaker's (0.1 to 5e-5).
    pub fn exponential() -> Self {
        Self::Exponential { warmup: one(), last: last() }
    }

    /// Its name in a recipe.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Constant {} => "constant",
            Self::Plateau { .. } => "plateau",
            Self::Exponential { .. } => "exponential",
            Self::Cosine { .. } => "cosine",
        }
    }

    fn check(self) -> Result<()> {
        let warmup_is_valid = |warmup: f64| {
            let valid = warmup >= 0.0 && warmup.is_finite();
            require(valid, "train.schedule.warmup", warmup, "a number of epochs ≥ 0")
        };
        match self {
            Self::Constant {} => Ok(()),
            Self::Plateau { factor, patience, floor } => {
                require(factor > 0.0 && factor < 1.0, "train.schedule.factor", factor, "a number in (0, 1)")?;
                require(patience >= 1, "train.schedule.patience", patience, "1 or more epochs")?;
                require(floor >= 0.0 && floor.is_finite(), "train.schedule.floor", floor, "a number ≥ 0")
            }
            Self::Exponential { warmup, last } => {
                warmup_is_valid(warmup)?;
                require(last > 0.0 && last <= 1.0, "train.schedule.last", last, "a share in (0, 1]")
            }
            Self::Cosine { warmup, last } => {
                warmup_is_valid(warmup)?;
                require((0.0..=1.0).contains(&last), "train.schedule.last", last, "a share in [0, 1]")
            }
        }
    }
}

/// AAM-softmax.
///
/// | setting | default | purpose | range |
/// | --- | --- | --- | --- |
/// | `scale` | 32 | inverse temperature of the cosines | > 0 |
/// | `margin` | 0.2 | final margin in radians | [0, 1.5] |
/// | `hold` | 0.1 | share of the run with margin 0 | [0, 1] |
/// | `rise` | 0.1 | share of the run over which it grows | [0, 1] |
/// | `distance` | none | with a `teacher`: labels count, too, and the distance to it so much | > 0 |
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossConfig {
    /// Inverse temperature.
    pub scale: f32,
    /// Final margin.
    pub margin: f32,
    /// Share of the run without margin.
    pub hold: f64,
    /// Share of the run over which it grows.
    pub rise: f64,
    /// Weight of the distance to a teacher beside the loss of labels; `None` for the distance alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distance: Option<f32>,
}

impl Default for LossConfig {
    fn default() -> Self {
        Self { scale: 32.0, margin: 0.2, hold: 0.1, rise: 0.1, distance: None }
    }
}

impl LossConfig {
    pub(super) fn check(&self) -> Result<()> {
        require(self.scale > 0.0 && self.scale.is_finite(), "loss.scale", self.scale, "a number > 0")?;
        require((0.0..=1.5).contains(&self.margin), "loss.margin", self.margin, "0 to 1.5 radians")?;
        require((0.0..=1.0).contains(&self.hold), "loss.hold", self.hold, "a share in [0, 1]")?;
        require((0.0..=1.0).contains(&self.rise), "loss.rise", self.rise, "a share in [0, 1]")?;
        let distance = self.distance.unwrap_or(1.0);
        require(distance > 0.0 && distance.is_finite(), "loss.distance", distance, "a number > 0")
    }
}

/// Which epoch is the best.
///
/// | setting | default | purpose | range |
/// | --- | --- | --- | --- |
/// | `metric` | loss | of the validation set: `loss` or `accuracy` | |
/// | `tolerance` | 0.01 | only epochs this close to the target count, with at most 1.6 × its weights | (0, 1] |
/// | `average` | 0 (off) | also write `average/`, the mean of this many best epochs | 0, or 2 … 20 |
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SelectConfig {
    /// What is compared.
    pub metric: Metric,
    /// ζ.
    pub tolerance: f64,
    /// Best epochs to average.
    pub average: usize,
}

impl Default for SelectConfig {
    fn default() -> Self {
        Self { metric: Metric::Loss, tolerance: 0.01, average: 0 }
    }
}

impl SelectConfig {
    pub(super) fn check(&self) -> Result<()> {
        require(
            self.tolerance > 0.0 && self.tolerance <= 1.0,
            "select.tolerance",
            self.tolerance,
            "a share in (0, 1]",
        )?;
        require(
            self.average == 0 || (2..=20).contains(&self.average),
            "select.average",
            self.average,
            "0 (off), or 2 to 20 epochs",
        )
    }
}

/// What of the validation set is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Cross-entropy without margin, lower is better.
    #[default]
    Loss,
    /// Share of cuts whose speaker scored best, higher is better.
    Accuracy,
}
