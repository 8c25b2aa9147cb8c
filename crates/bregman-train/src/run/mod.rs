//! The folder of a run on disk. Each file in it is written and read by one type, and carries a format number.
//!
//! | module | what is in it |
//! | --- | --- |
//! | `paths` | [`RunFolder`] and [`CheckpointFolder`]: where each file is |
//! | `format` | the format number of all files, and what happens with a newer one |
//! | `records` | one step, epoch, layer: the records of `metrics.jsonl` |
//! | `metrics` | reading `metrics.jsonl` |
//! | `log` | writing `metrics.jsonl` and the TensorBoard event file |
//! | `state` | where a run stands, `state.json` of a checkpoint |
//! | `corpus` | which utterances a run is trained on, part of its state |
//! | `checkpoint` | saving and restoring a checkpoint |
//! | `command` | the command that started a run, `command.json` |
//! | `evaluation` | what a checkpoint scored on a trial list, `evaluations/*.json` |
//! | `threshold` | the score above which two utterances are of one speaker, `threshold.json` |

pub(crate) mod checkpoint;
pub(crate) mod command;
pub(crate) mod corpus;
pub(crate) mod evaluation;
pub(crate) mod format;
pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod paths;
pub(crate) mod records;
pub(crate) mod state;
pub(crate) mod threshold;

pub use command::CommandRecord;
pub use corpus::{CorpusRecord, UtteranceList};
pub use evaluation::{EvaluationRecord, TestDomain};
pub use format::RUN_FORMAT;
pub use log::TensorBoard;
pub use metrics::{MetricsRecord, read_metrics};
pub use paths::{CheckpointFolder, RunFolder};
pub use records::{EpochRecord, LayerRecord, StepRecord};
pub use state::{EpochSums, RunState};
pub use threshold::ThresholdRecord;
