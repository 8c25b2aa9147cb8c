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

mod average;
mod checkpoint;
pub mod config;
mod data;
mod deploy;
mod device;
mod error;
mod folder;
mod inspect;
mod log;
mod method;
mod observer;
mod schedule;
mod selection;
mod shared;
mod trained;
mod trainer;

pub use checkpoint::State;
pub use config::Experiment;
pub use deploy::Deployable;
pub use device::{Device, Open, cpu};
pub use error::{Error, Result};
pub use inspect::Inspection;
pub use log::{EpochRecord, LayerRecord, StepRecord, TensorBoard};
pub use method::{Method, MethodStep};
pub use observer::Observer;
pub use schedule::{LearningRate, margin_at};
pub use selection::{Best, Selection};
pub use shared::{Share, Shared};
pub use trained::{Trained, checkpoint_folder};
pub use trainer::{Ending, Outcome, Trainer};
