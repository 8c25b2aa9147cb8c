//! What a run logs while it trains: `metrics.jsonl`, one record per line, and a TensorBoard event file of the same
//! numbers.
//!
//! Both only grow. A checkpoint remembers their lengths, and a run that continues from it cuts off what came later.
//! They are synced before the checkpoint is written, so a log shorter than its checkpoint says was damaged later.

mod tensorboard;

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use bregman_base::files::append_after;
pub use tensorboard::TensorBoard;

use super::metrics::{epoch_line, start_line, step_line};
use super::{EpochRecord, RunFolder, StepRecord};
use crate::{Error, Result};

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
        let file = append_after(&path, length).map_err(|error| match error.source.kind() {
            ErrorKind::UnexpectedEof => Error::ShortLog { path: error.path, source: error.source },
            _ => error.into(),
        })?;
        Ok(Self { file, path, length })
    }

    /// Waits until it is on disk.
    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(Error::io(&self.path))
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

impl Log {
    /// Opens the logs of a run, cut off at what a checkpoint had seen of them.
    pub(crate) fn open(run: &RunFolder, logged: [u64; 2]) -> Result<Self> {
        let lines = Appended::open(run.metrics(), logged[0])?;
        let path = run.events();
        let events = Appended::open(path.clone(), logged[1])?;
        let events = if logged[1] == 0 { TensorBoard::begin(events) } else { Ok(TensorBoard::resume(events)) };
        let mut log = Self { lines, events: events.map_err(Error::io(&path))? };
        if logged[0] == 0 {
            log.line(&start_line())?;
        }
        Ok(log)
    }

    /// Bytes written so far, all of them on disk.
    pub(crate) fn synced(&self) -> Result<[u64; 2]> {
        let files = [&self.lines, self.events.get_ref()];
        files.iter().try_for_each(|file| file.sync())?;
        Ok(files.map(|file| file.length))
    }

    pub(crate) fn step(&mut self, record: &StepRecord) -> Result<()> {
        self.line(&step_line(record))?;
        let scalars = [
            ("train/loss", Some(record.loss)),
            ("train/accuracy", Some(record.accuracy)),
            ("control/lambda", record.lambda),
            ("control/sparsity", Some(record.sparsity)),
            ("control/epsilon", record.epsilon),
            ("control/survived", record.survived),
            ("train/lr", Some(record.lr)),
            ("train/margin", Some(record.margin)),
            ("train/gradient_norm", Some(record.gradient_norm)),
            ("train/utterances_per_second", Some(record.utterances_per_second)),
        ];
        self.scalars(record.step, scalars.into_iter().filter_map(|(tag, value)| Some((tag.to_owned(), value?))))
    }

    pub(crate) fn epoch(&mut self, record: &EpochRecord) -> Result<()> {
        self.line(&epoch_line(record))?;
        let validation = [
            ("validation/loss", record.validation_loss),
            ("validation/accuracy", record.validation_accuracy),
            ("validation/eer", record.eer),
        ];
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

    fn line(&mut self, text: &str) -> Result<()> {
        self.lines.write_all(text.as_bytes()).map_err(Error::io(&self.lines.path))
    }

    fn scalars(&mut self, step: u64, scalars: impl Iterator<Item = (String, f64)>) -> Result<()> {
        let written = self.events.scalars(step, &scalars.collect::<Vec<_>>());
        written.map_err(|source| Error::Io { path: self.events.get_ref().path.clone(), source })
    }
}
