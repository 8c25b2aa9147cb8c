//! The training loop: batches, gradients, steps, checkpoints.
//!
//! | module | what is in it |
//! | --- | --- |
//! | `start` | a new run, and one that continues from its last checkpoint |
//! | `step` | one step, in two halves: on a GPU its numbers are read while that works on the next one |
//! | `ranks` | what several processes that train one network agree on |
//! | `teacher` | the network that a run starts from, and the one that it follows |
//! | `masks` | the masks before the first step |
//! | `epoch` | the end of an epoch: validation, its record, the best checkpoint |
//! | `data` | the corpus as training and validation batches |
//! | `schedule` | learning rate and margin over a run |
//! | `selection` | which epoch is the best |
//! | `average` | the average of the best epochs |
//! | `trials` | the equal error rate after every epoch |
//! | `observer` | receives progress |

pub(crate) mod average;
pub(crate) mod data;
pub(crate) mod observer;
pub(crate) mod schedule;
pub(crate) mod selection;

mod epoch;
mod masks;
mod ranks;
mod start;
mod step;
mod teacher;
pub(crate) mod trials;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bregman::topology::RunClock;
use bregman_nn::{Input, TrainableModel};
use bregman_speaker::{Batch, Skipped};
use bregman_tensor::{Cpu, Margin, Ranks};

use crate::method::Method;
use crate::run::{CheckpointFolder, RunFolder, RunState, checkpoint};
use crate::trainer::data::Data;
use crate::trainer::observer::Observer;
use crate::trainer::ranks::Books;
use crate::trainer::schedule::margin_at;
use crate::trainer::step::BegunStep;
use crate::{Device, Experiment, Result};

/// An experiment in progress.
pub struct Trainer<'a, B: Device = Cpu> {
    experiment: Experiment,
    run: RunFolder,
    data: Data,
    model: TrainableModel<B>,
    teacher: Option<TrainableModel<B>>,
    trials: Option<trials::EpochTrials>,
    method: Method<B>,
    state: RunState,
    ranks: Ranks,
    /// The log and the lock of the run folder: the leading rank's alone.
    books: Option<Books>,
    observer: &'a dyn Observer,
    /// Seconds of earlier sittings.
    before: f64,
    began: Instant,
    /// When the last step was over.
    ended: Instant,
}

/// Why training stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All epochs are done.
    Finished,
    /// No better epoch for as long as the recipe's patience.
    EarlyStop,
    /// Somebody asked; [`Trainer::resume`] continues.
    Interrupted,
}

/// How training went.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainingOutcome {
    /// Why it stopped.
    pub ending: Ending,
    /// Where it stood.
    pub state: RunState,
    /// Files that could not be read.
    pub skipped: Vec<Skipped>,
}

impl<B: Device> Trainer<'_, B> {
    /// Trains until the end, or until `stop` is set: then after the present step, with a checkpoint.
    ///
    /// # Errors
    /// A loss or gradient that is not finite, audio that cannot be read, a disk that is full.
    pub fn run(mut self, stop: &AtomicBool) -> Result<TrainingOutcome> {
        let (total, epochs) = (self.total_steps(), self.experiment.train.epochs);
        self.observer.plan(&self.experiment.plan(total, self.batches_per_round()));
        self.observer.begin(self.state.step, total);
        self.began = Instant::now();
        if self.state.step == 0 && !self.start_masks(stop)? {
            return Ok(self.outcome(Ending::Interrupted));
        }
        self.check_ranks()?;
        let mut batches = self.data.train.batches(self.state.position)?;
        let (mut upcoming, mut staged) = (None, false);
        // on a GPU: the step before, whose numbers are read while the next pass is on its way
        let mut begun: Option<BegunStep<B>> = None;
        while self.state.position.epoch < epochs && !self.state.finished {
            if self.method.before_step(&self.clock(), &mut self.model)? {
                self.model.refresh()?;
            }
            self.model.set_extent(self.method.extent(&self.clock()));
            let batch =
                upcoming.take().or_else(|| batches.next()).expect("the stream of training batches has no end")?;
            if !staged {
                self.model.stage(input(&batch))?;
            }
            let (began, labels, margin) = (Instant::now(), labels(&batch), self.margin());
            teacher::follow(&mut self.teacher, &mut self.model, &batch)?;
            self.take_part(&batch);
            self.model.launch(&labels, margin)?;
            if let Some(before) = begun.take() {
                batches.recycle(self.end_step(before)?.1);
            }
            // the next batch is fetched and copied while the device works on this one; what is wrong with it is said in
            // its own turn
            upcoming = if batch.next.epoch < epochs { batches.next() } else { None };
            staged = matches!(&upcoming, Some(Ok(next)) if self.model.stage(input(next)).is_ok());
            let asked = stop.load(Ordering::Relaxed);
            let (last, next) = (batch.is_last(), batch.next);
            let (step, agreed) = self.begin_step(batch, labels, margin, began, asked)?;
            self.state.position = next;
            let save_every = self.experiment.train.save_every;
            let saving = save_every > 0 && self.state.step.is_multiple_of(save_every);
            if self.runs_ahead() && !(last || saving || stop.load(Ordering::Relaxed)) {
                begun = Some(step);
                continue;
            }
            let (record, batch) = self.end_step(step)?;
            batches.recycle(batch);
            let stopping = if self.ranks.is_alone() { stop.load(Ordering::Relaxed) } else { agreed };
            if self.state.step.is_multiple_of(ranks::CHECK_EVERY) {
                self.check_ranks()?;
            }
            if last {
                self.end_epoch(&record)?;
            } else if stopping || saving {
                self.save(&self.run.last())?;
            }
            if stopping && !self.state.finished {
                return Ok(self.outcome(Ending::Interrupted));
            }
        }
        let ending = if self.state.position.epoch < epochs { Ending::EarlyStop } else { Ending::Finished };
        Ok(self.outcome(ending))
    }

    /// Steps of the whole run.
    pub fn total_steps(&self) -> u64 {
        self.data.train.batches_per_epoch() * self.experiment.train.epochs
    }

    /// The experiment.
    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// Where the run stands.
    fn clock(&self) -> RunClock {
        let position = self.state.position;
        RunClock { step: self.state.step, total: self.total_steps(), epoch: position.epoch, batch: position.batch }
    }

    /// The loss of the present step.
    fn margin(&self) -> Margin {
        let margin = margin_at(&self.experiment.loss, self.state.step as f64 / self.total_steps() as f64);
        Margin { scale: self.experiment.loss.scale, margin, easy: false }
    }

    fn save(&mut self, to: &CheckpointFolder) -> Result<()> {
        let arrays = self.method.arrays()?; // all ranks take part where each has its own
        let Some(books) = &mut self.books else { return Ok(()) };
        self.state.lambda.clone_from(&self.method.optimizer().state().lambda);
        self.state.loops = self.method.loops().to_vec();
        self.state.logged = books.log.synced()?;
        self.state.seconds = self.before + self.began.elapsed().as_secs_f64();
        let optimizer = (self.method.optimizer().groups().params(), &*arrays, self.method.grown());
        checkpoint::save(to, &self.model, optimizer, &self.state, &self.experiment)
    }

    fn seconds(&self) -> f64 {
        self.before + self.began.elapsed().as_secs_f64()
    }

    fn outcome(self, ending: Ending) -> TrainingOutcome {
        TrainingOutcome { ending, state: self.state, skipped: self.data.train.skipped() }
    }
}

fn input(batch: &Batch) -> Input<'_> {
    let [cuts, frames, _] = batch.shape;
    Input { values: &batch.features, batch: cuts, frames }
}

fn labels(batch: &Batch) -> Vec<usize> {
    batch.labels.iter().map(|&label| label as usize).collect()
}
