//! What is logged of a step and of an epoch: one line of `metrics.jsonl` each.
//!
//! JSON has no NaN: it is written as `null` and read back as NaN. A field that an older program did not write is read
//! as NaN, or as empty.

use serde::{Deserialize, Deserializer, Serialize};

/// One step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Steps taken, this one included.
    pub step: u64,
    /// Epoch, from 1.
    #[serde(default)]
    pub epoch: u64,
    /// Training loss of the batch, with the margin.
    #[serde(default = "nan", deserialize_with = "number")]
    pub loss: f64,
    /// Training accuracy of the batch.
    #[serde(default = "nan", deserialize_with = "number")]
    pub accuracy: f64,
    /// λ, where there is one.
    pub lambda: Option<f64>,
    /// s(θ).
    #[serde(default = "nan", deserialize_with = "number")]
    pub sparsity: f64,
    /// s*, where there is one.
    pub target: Option<f64>,
    /// ε = s* − s(θ).
    pub epsilon: Option<f64>,
    /// Where masks were exchanged in this step: the share of the weights grown by the exchange before that are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survived: Option<f64>,
    /// τ.
    #[serde(default = "nan", deserialize_with = "number")]
    pub lr: f64,
    /// Margin.
    #[serde(default = "nan", deserialize_with = "number")]
    pub margin: f64,
    /// ℓ2 norm of the gradient before clipping.
    #[serde(default = "nan", deserialize_with = "number")]
    pub gradient_norm: f64,
    /// Cuts per second.
    #[serde(default = "nan", deserialize_with = "number")]
    pub utterances_per_second: f64,
}

/// One epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// Steps taken.
    pub step: u64,
    /// Epoch, from 1.
    pub epoch: u64,
    /// Mean training loss, with the margin.
    #[serde(default = "nan", deserialize_with = "number")]
    pub train_loss: f64,
    /// Mean training accuracy.
    #[serde(default = "nan", deserialize_with = "number")]
    pub train_accuracy: f64,
    /// Validation loss without margin, where there is a validation set.
    pub validation_loss: Option<f64>,
    /// Validation accuracy.
    pub validation_accuracy: Option<f64>,
    /// Equal error rate, where the run is scored on trials after every epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eer: Option<f64>,
    /// λ, where there is one (the mean over loops).
    pub lambda: Option<f64>,
    /// s(θ).
    #[serde(default = "nan", deserialize_with = "number")]
    pub sparsity: f64,
    /// s* of the run, where there is one.
    pub target: Option<f64>,
    /// Whether the sparsity is close enough to the target for this epoch to be chosen.
    #[serde(default)]
    pub admitted: bool,
    /// Learning rate of the last step.
    #[serde(default = "nan", deserialize_with = "number")]
    pub lr: f64,
    /// Seconds of training so far.
    #[serde(default = "nan", deserialize_with = "number")]
    pub seconds: f64,
    /// Sparsity of the layers whose names begin alike.
    #[serde(default)]
    pub groups: Vec<(String, f64)>,
    /// Every controlled weight tensor.
    #[serde(default)]
    pub layers: Vec<LayerRecord>,
    /// Weight tensors in which every weight is zero. Written as `dead` before there was a format number.
    #[serde(default, alias = "dead")]
    pub all_zero: Vec<String>,
}

/// One controlled weight tensor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerRecord {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Share of zeros.
    #[serde(default = "nan", deserialize_with = "number")]
    pub sparsity: f64,
    /// Weights that are not zero. Written as `live` before there was a format number.
    #[serde(alias = "live")]
    pub nonzero: u64,
    /// Frobenius norm.
    #[serde(default = "nan", deserialize_with = "number")]
    pub norm: f64,
}

impl LayerRecord {
    /// All its weights.
    #[expect(clippy::len_without_is_empty, reason = "no layer is empty")]
    pub fn len(&self) -> u64 {
        self.shape.iter().product::<usize>() as u64
    }
}

fn nan() -> f64 {
    f64::NAN
}

/// A number, or NaN where JSON has `null`.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}
