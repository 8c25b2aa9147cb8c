//! Experiments: from a recipe to a trained network on disk.
//!
//! ```text
//! recipe (TOML) ─▶ Experiment ─▶ Trainer ─┬─▶ RUN/last, RUN/best          checkpoints, see `checkpoint`
//!                                         ├─▶ RUN/metrics.jsonl           one object per step and epoch
//!                                         └─▶ RUN/events.out.tfevents.…   the same for TensorBoard
//! RUN ─▶ Trained ─▶ embeddings
//! RUN, or a checkpoint of WeSpeaker ─▶ Deployable ─▶ ONNX, safetensors, a model file
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

#[cfg(test)]
extern crate self as bregman_train; // what unit tests share with those in tests/ calls it by its name

pub mod config;
mod error;
mod method;
mod run;
mod trained;
mod trainer;

#[cfg(feature = "mpi")]
pub use bregman_tensor::Mpi;
#[cfg(feature = "cuda")]
pub use bregman_tensor::NcclRanks;
pub use bregman_tensor::{Device, DeviceChoice, FoundDevice, OnDevice, Open, Precision, Ranks, on_device, open_cpu};
pub use config::Experiment;
pub use error::{Error, Result};
pub use method::{Method, MethodStep, Survival};
pub use run::{
    CheckpointFolder, CommandRecord, CorpusRecord, EpochRecord, EpochSums, EvaluationRecord, LayerRecord,
    MetricsRecord, RUN_FORMAT, RunFolder, RunState, StepRecord, TensorBoard, TestDomain, ThresholdRecord,
    UtteranceList, read_metrics,
};
pub use trained::Trained;
pub use trained::deploy::Deployable;
pub use trained::inspect::Inspection;
pub use trained::shared::{NetworkPool, NetworkShare, SharedNetworks};
pub use trainer::observer::Observer;
pub use trainer::schedule::{LearningRate, margin_at};
pub use trainer::selection::{BestEpoch, EpochSelection};
pub use trainer::trials::EpochTrials;
pub use trainer::{Ending, Trainer, TrainingOutcome};
