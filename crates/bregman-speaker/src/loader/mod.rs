//! Batches for the trainer, computed ahead by worker threads.
//!
//! ```text
//! plan (which cuts) ─▶ cuts (audio ─▶ features) ─┬─────────▶ workers (order, batches ahead) ─▶ trainer
//!                                                └─▶ cache ─▶┘
//! ```
//!
//! Batch b of epoch e is a function of (seed, e, b): threads decide *when* it is computed, never what is in it. A
//! position is therefore two numbers, and a run that resumes there sees exactly the same batches. Memory is bounded: at
//! most `ahead` batches exist between the workers and the trainer. A cut that cannot be read is replaced by another one
//! drawn from the same seed, so batches keep their size; the file is counted and reported.

mod cache;
mod cuts;
mod features;
mod order;
mod plan;
mod workers;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

pub use cache::FeatureCache;
pub use cuts::{CutReader, CutSource, Cuts, Waveforms};
pub use features::Extractor;
pub use order::Order;
pub use plan::CutConfig;
pub use workers::Batches;

use crate::Rng;
use crate::{Error, Result};

/// How batches are made.
///
/// | field | default | meaning | range |
/// | --- | --- | --- | --- |
/// | `batch` | 256 | cuts per batch | ≥ 1 |
/// | `order` | shuffled | see [`Order`] | |
/// | `drop_last` | true | drop the last batch of an epoch if it is not full | |
/// | `seed` | 1 | | any |
/// | `workers` | cores | threads that prepare batches | 1 … 1024 |
/// | `ahead` | workers + 2 | batches being computed or waiting | ≥ 1 |
/// | `strict` | false | fail on the first unreadable file | |
/// | `part` | [0, 1] | of several that divide each batch, which one this is, and of how many | number < count ≤ `batch` |
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoaderConfig {
    /// Cuts per batch.
    pub batch: usize,
    /// Order of an epoch.
    pub order: Order,
    /// Drop a last batch that is not full.
    pub drop_last: bool,
    /// Seed of order and augmentation.
    pub seed: u64,
    /// Threads that prepare batches.
    pub workers: usize,
    /// Batches being computed or waiting; `None` for `workers` + 2.
    pub ahead: Option<usize>,
    /// Fail on the first unreadable file instead of taking another cut.
    pub strict: bool,
    /// Of several processes that divide each batch among them: the number of this one, and how many there are.
    pub part: [usize; 2],
}

impl Default for LoaderConfig {
    fn default() -> Self {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            batch: 256,
            order: Order::Shuffled,
            drop_last: true,
            seed: 1,
            workers,
            ahead: None,
            strict: false,
            part: [0, 1],
        }
    }
}

/// Where a run is: the next batch to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct BatchPosition {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Batch in the epoch, from 0.
    pub batch: u64,
}

/// One batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// [cuts, frames, bins], row-major; of [`Waveforms`] [cuts, samples, 1].
    pub features: Vec<f32>,
    /// Class of each cut.
    pub labels: Vec<u32>,
    /// Number of each cut in its source.
    pub cuts: Vec<u32>,
    /// Cuts, frames, bins.
    pub shape: [usize; 3],
    /// Cuts of the whole batch, of which these are a [part](LoaderConfig::part).
    pub whole: usize,
    /// Which batch this is.
    pub position: BatchPosition,
    /// The position after this batch.
    pub next: BatchPosition,
}

impl Batch {
    /// The part of the whole batch that these cuts are.
    pub fn share(&self) -> f32 {
        self.cuts.len() as f32 / self.whole as f32
    }

    /// True for the last batch of its epoch.
    pub fn is_last(&self) -> bool {
        self.next.epoch != self.position.epoch
    }
}

/// A file that was skipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// The file.
    pub name: String,
    /// Why it could not be read.
    pub problem: String,
    /// How many of its cuts were requested.
    pub times: usize,
}

/// Makes batches from cuts; [`Loader::batches`] starts the workers.
pub struct Loader {
    inner: Arc<BatchMaker>,
}

/// Computes single batches; shared by the worker threads.
struct BatchMaker {
    source: Arc<dyn CutSource>,
    config: LoaderConfig,
    skipped: Mutex<BTreeMap<String, (String, usize)>>,
}

/// Replacements tried for one unreadable cut before giving up.
const MAX_REPLACEMENTS: u64 = 32;

impl Loader {
    /// Checks the settings against the source.
    pub fn new(source: Arc<dyn CutSource>, config: LoaderConfig) -> Result<Self> {
        let wrong = |field, value: usize, expected| Err(Error::Setting { field, value: value.to_string(), expected });
        if config.batch == 0 {
            return wrong("batch", 0, "1 or more");
        }
        if !(1..=1024).contains(&config.workers) {
            return wrong("workers", config.workers, "1 to 1024");
        }
        if config.ahead == Some(0) {
            return wrong("ahead", 0, "1 or more");
        }
        let [part, parts] = config.part;
        if part >= parts || parts > config.batch {
            return wrong("batch", config.batch, "at least as many cuts as there are processes that divide a batch");
        }
        let inner = BatchMaker { source, config, skipped: Mutex::default() };
        if inner.batches_per_epoch() == 0 {
            return wrong(
                "batch",
                inner.config.batch,
                "at most the number of cuts in the corpus, or drop_last = false",
            );
        }
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The source of the cuts.
    pub fn source(&self) -> &Arc<dyn CutSource> {
        &self.inner.source
    }

    /// Cuts in a whole batch.
    pub fn batch(&self) -> usize {
        self.inner.config.batch
    }

    /// Batches in each epoch.
    pub fn batches_per_epoch(&self) -> u64 {
        self.inner.batches_per_epoch()
    }

    /// Starts the workers. The stream continues from epoch to epoch; dropping it stops the workers.
    pub fn batches(&self, from: BatchPosition) -> Result<Batches> {
        if from.batch >= self.batches_per_epoch() {
            let value = from.batch.to_string();
            return Err(Error::Setting {
                field: "position.batch",
                value,
                expected: "a batch of this loader's epoch; was the batch size changed?",
            });
        }
        Batches::start(self.inner.clone(), from, u64::MAX)
    }

    /// The batches of one epoch from its start; nothing is prepared beyond it.
    pub fn epoch(&self, epoch: u64) -> Result<Batches> {
        Batches::start(self.inner.clone(), BatchPosition { epoch, batch: 0 }, self.batches_per_epoch())
    }

    /// Files that could not be read so far, by name.
    pub fn skipped(&self) -> Vec<Skipped> {
        let skipped = self.inner.skipped.lock().unwrap_or_else(PoisonError::into_inner);
        skipped
            .iter()
            .map(|(name, (problem, times))| Skipped { name: name.clone(), problem: problem.clone(), times: *times })
            .collect()
    }
}

impl BatchMaker {
    fn batches_per_epoch(&self) -> u64 {
        let cuts = self.source.labels().len();
        (if self.config.drop_last { cuts / self.config.batch } else { cuts.div_ceil(self.config.batch) }) as u64
    }

    /// The position of the next batch.
    fn after(&self, BatchPosition { epoch, batch }: BatchPosition) -> BatchPosition {
        if batch + 1 < self.batches_per_epoch() {
            BatchPosition { epoch, batch: batch + 1 }
        } else {
            BatchPosition { epoch: epoch + 1, batch: 0 }
        }
    }

    /// Computes one batch; `buffer` is the memory of a batch no longer needed.
    fn batch(
        &self,
        reader: &mut dyn CutReader,
        order: &[u32],
        position: BatchPosition,
        mut buffer: Vec<f32>,
    ) -> Result<Batch> {
        let (start, [part, parts]) = (position.batch as usize * self.config.batch, self.config.part);
        let whole = order.len().min(start + self.config.batch) - start;
        let [first, end] = [part, part + 1].map(|part| start + whole * part / parts);
        let mut cuts = order[first..end].to_vec();
        let [frames, bins] = self.source.shape();
        buffer.resize(cuts.len() * frames * bins, 0.0);
        let mut labels = Vec::with_capacity(cuts.len());
        for (at, (cut, out)) in cuts.iter_mut().zip(buffer.chunks_exact_mut(frames * bins)).enumerate() {
            let mut rng = Rng::keyed(&[self.config.seed, 8, position.epoch, (first + at) as u64]);
            labels.push(self.read_or_replace(reader, cut, &mut rng, out)?);
        }
        Ok(Batch {
            features: buffer,
            labels,
            shape: [cuts.len(), frames, bins],
            cuts,
            whole,
            position,
            next: self.after(position),
        })
    }

    fn read_or_replace(
        &self,
        reader: &mut dyn CutReader,
        cut: &mut u32,
        rng: &mut Rng,
        out: &mut [f32],
    ) -> Result<u32> {
        let mut attempts = 0;
        loop {
            match reader.read(*cut as usize, rng.bits(), out) {
                Err(Error::Unreadable { utterance, problem }) if !self.config.strict && attempts < MAX_REPLACEMENTS => {
                    let mut skipped = self.skipped.lock().unwrap_or_else(PoisonError::into_inner);
                    skipped.entry(utterance).or_insert((problem, 0)).1 += 1;
                    drop(skipped);
                    attempts += 1;
                    *cut = rng.below(self.source.labels().len()) as u32;
                }
                result => return result,
            }
        }
    }
}
