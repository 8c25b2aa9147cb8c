//! What a run writes about itself: `metrics.jsonl`, one object per line, and a TensorBoard event file of the same
//! numbers.
//!
//! Both only grow. A checkpoint remembers their lengths, and a run that continues from it cuts off what came later.

mod tensorboard;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

pub use tensorboard::TensorBoard;

use crate::{Error, Result};

/// One step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepRecord {
    /// Steps taken, this one included.
    pub step: u64,
    /// Epoch, from 1.
    pub epoch: u64,
    /// Training loss of the batch, with the margin.
    pub loss: f64,
    /// Training accuracy of the batch.
    pub accuracy: f64,
    /// λ, where there is one.
    pub lambda: Option<f64>,
    /// s(θ).
    pub sparsity: f64,
    /// s*, where there is one.
    pub target: Option<f64>,
    /// ε = s* − s(θ).
    pub epsilon: Option<f64>,
    /// τ.
    pub lr: f64,
    /// Margin.
    pub margin: f64,
    /// ℓ2 norm of the gradient before clipping.
    pub gradient_norm: f64,
    /// Cuts per second.
    pub utterances_per_second: f64,
}

/// One epoch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EpochRecord {
    /// Steps taken.
    pub step: u64,
    /// Epoch, from 1.
    pub epoch: u64,
    /// Mean training loss, with the margin.
    pub train_loss: f64,
    /// Mean training accuracy.
    pub train_accuracy: f64,
    /// Validation loss without margin, where there is a validation set.
    pub validation_loss: Option<f64>,
    /// Validation accuracy.
    pub validation_accuracy: Option<f64>,
    /// λ, where there is one (the mean over loops).
    pub lambda: Option<f64>,
    /// s(θ).
    pub sparsity: f64,
    /// s* of the run, where there is one.
    pub target: Option<f64>,
    /// Whether the sparsity is close enough to the target for this epoch to be chosen.
    pub admitted: bool,
    /// Learning rate of the last step.
    pub lr: f64,
    /// Seconds of training so far.
    pub seconds: f64,
    /// Sparsity of each group of layers.
    pub groups: Vec<(String, f64)>,
    /// Every weight tensor.
    pub layers: Vec<LayerRecord>,
    /// Weight tensors without a live weight.
    pub dead: Vec<String>,
}

/// One weight tensor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerRecord {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Share of zeros.
    pub sparsity: f64,
    /// Weights that are not zero.
    pub live: u64,
    /// Frobenius norm.
    pub norm: f64,
}

impl LayerRecord {
    /// All its weights.
    #[expect(clippy::len_without_is_empty, reason = "no layer is empty")]
    pub fn len(&self) -> u64 {
        self.shape.iter().product::<usize>() as u64
    }
}

/// The two files.
pub(crate) struct Log {
    lines: Appended,
    events: TensorBoard<Appended>,
}

/// A file that grows, with its length.
pub(crate) struct Appended {
    file: File,
    path: PathBuf,
    length: u64,
}

impl Appended {
    /// Opens `path` and cuts it off at `length`.
    fn open(path: PathBuf, length: u64) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(&path).map_err(Error::io(&path))?;
        file.set_len(length).map_err(Error::io(&path))?;
        Ok(Self { file, path, length })
    }
}

impl Write for Appended {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// TensorBoard recognises event files by this part of their name.
const EVENTS: &str = "events.out.tfevents.0.bregman";

impl Log {
    /// Opens the logs of a run, cut off at what a checkpoint had seen of them.
    pub(crate) fn open(run: &Path, logged: [u64; 2]) -> Result<Self> {
        let lines = Appended::open(run.join("metrics.jsonl"), logged[0])?;
        let path = run.join(EVENTS);
        let events = Appended::open(path.clone(), logged[1])?;
        let events = if logged[1] == 0 { TensorBoard::begin(events) } else { Ok(TensorBoard::resume(events)) };
        Ok(Self { lines, events: events.map_err(Error::io(&path))? })
    }

    /// Bytes written so far.
    pub(crate) fn lengths(&self) -> [u64; 2] {
        [self.lines.length, self.events.get_ref().length]
    }

    pub(crate) fn step(&mut self, record: &StepRecord) -> Result<()> {
        self.line("step", record)?;
        let scalars = [
            ("train/loss", Some(record.loss)),
            ("train/accuracy", Some(record.accuracy)),
            ("control/lambda", record.lambda),
            ("control/sparsity", Some(record.sparsity)),
            ("control/epsilon", record.epsilon),
            ("train/lr", Some(record.lr)),
            ("train/margin", Some(record.margin)),
            ("train/gradient_norm", Some(record.gradient_norm)),
            ("train/utterances_per_second", Some(record.utterances_per_second)),
        ];
        self.scalars(record.step, scalars.into_iter().filter_map(|(tag, value)| Some((tag.to_owned(), value?))))
    }

    pub(crate) fn epoch(&mut self, record: &EpochRecord) -> Result<()> {
        self.line("epoch", record)?;
        let validation =
            [("validation/loss", record.validation_loss), ("validation/accuracy", record.validation_accuracy)];
        let validation = validation.into_iter().filter_map(|(tag, value)| Some((tag.to_owned(), value?)));
        let groups = record.groups.iter().map(|(name, sparsity)| (format!("group_sparsity/{name}"), *sparsity));
        let layers = record.layers.iter().flat_map(|layer| {
            [
                (format!("layer_sparsity/{}", layer.name), layer.sparsity),
                (format!("layer_norm/{}", layer.name), layer.norm),
            ]
        });
        self.scalars(record.step, validation.chain(groups).chain(layers))
    }

    fn line(&mut self, kind: &'static str, record: &impl Serialize) -> Result<()> {
        #[derive(Serialize)]
        struct Line<'a, T> {
            kind: &'static str,
            #[serde(flatten)]
            record: &'a T,
        }
        let mut text = serde_json::to_string(&Line { kind, record }).expect("records are plain data");
        text.push('\n');
        self.lines.write_all(text.as_bytes()).map_err(Error::io(&self.lines.path))
    }

    fn scalars(&mut self, step: u64, scalars: impl Iterator<Item = (String, f64)>) -> Result<()> {
        let written = self.events.scalars(step, &scalars.collect::<Vec<_>>());
        written.map_err(|source| Error::Io { path: self.events.get_ref().path.clone(), source })
    }
}
