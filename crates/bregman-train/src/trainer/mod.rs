//! The loop: batches, gradients, steps, checkpoints; `epoch` has what happens at the end of each.

pub(crate) mod average;
pub(crate) mod data;
pub(crate) mod observer;
pub(crate) mod schedule;
pub(crate) mod selection;

mod epoch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bregman::topology::RunClock;
use bregman_nn::{Input, Model};
use bregman_speaker::{AudioSource, Batch, BatchPosition, Skipped};
use bregman_tensor::{Cpu, Margin};

use crate::config::FeaturesBy;
use crate::method::{Method, MethodStep};
use crate::run::checkpoint::{self, CONFIG, State, Sums};
use crate::run::folder;
use crate::run::log::{Log, StepRecord};
use crate::trainer::data::Data;
use crate::trainer::observer::Observer;
use crate::trainer::schedule::{LearningRate, margin_at};
use crate::trainer::selection::Selection;
use crate::{Device, Error, Experiment, Open, Result, open_cpu};

/// An experiment in progress.
pub struct Trainer<'a, B: Device = Cpu> {
    experiment: Experiment,
    run: PathBuf,
    data: Data,
    model: Model<B>,
    method: Method<B>,
    state: State,
    log: Log,
    observer: &'a dyn Observer,
    /// Seconds of earlier sittings.
    before: f64,
    began: Instant,
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
pub struct Outcome {
    /// Why it stopped.
    pub ending: Ending,
    /// Where it stood.
    pub state: State,
    /// Files that could not be read.
    pub skipped: Vec<Skipped>,
}

impl<'a> Trainer<'a> {
    /// A new run in the folder `run`, on the CPU.
    ///
    /// # Errors
    /// A run that is there already, a corpus or settings that do not fit.
    pub fn new(experiment: Experiment, run: &Path, observer: &'a dyn Observer) -> Result<Self> {
        Self::new_on(open_cpu, experiment, run, observer)
    }

    /// Continues the run in the folder `run` on the CPU, see [`Trainer::resume_on`].
    ///
    /// # Errors
    /// As [`Trainer::resume_on`].
    pub fn resume(run: &Path, observer: &'a dyn Observer) -> Result<Self> {
        Self::resume_on(open_cpu, run, observer)
    }

    /// As [`Trainer::new`], on corpora that are open already instead of the recipe's.
    ///
    /// # Errors
    /// As [`Trainer::new`].
    pub fn on_corpora(
        experiment: Experiment,
        run: &Path,
        train: Arc<dyn AudioSource>,
        validation: Option<Arc<dyn AudioSource>>,
        observer: &'a dyn Observer,
    ) -> Result<Self> {
        refuse_existing(run)?;
        let data = Data::new(&experiment, train, validation, observer.preparing())?;
        Self::start(open_cpu, experiment, run, data, observer)
    }
}

impl<'a, B: Device> Trainer<'a, B> {
    /// A new run in the folder `run`, on the device that `open` opens.
    ///
    /// # Errors
    /// A run that is there already, a corpus or settings that do not fit, a device that cannot be had.
    pub fn new_on(open: impl Open<B>, experiment: Experiment, run: &Path, observer: &'a dyn Observer) -> Result<Self> {
        refuse_existing(run)?;
        let data = Data::open(&experiment, observer.preparing())?;
        Self::start(open, experiment, run, data, observer)
    }

    /// Continues the run in the folder `run` from its last checkpoint, whatever device wrote it; from the beginning if
    /// there is none.
    ///
    /// # Errors
    /// No run there, a checkpoint of another network, a corpus that changed its size.
    pub fn resume_on(open: impl Open<B>, run: &Path, observer: &'a dyn Observer) -> Result<Self> {
        if !run.join(CONFIG).is_file() {
            return Err(Error::checkpoint(run, "holds no run: there is nothing to resume"));
        }
        let Some(last) = folder::present(&run.join(LAST)) else {
            let experiment = checkpoint::read_experiment(run)?;
            let data = Data::open(&experiment, observer.preparing())?;
            return Self::start(open, experiment, run, data, observer);
        };
        let mut experiment = checkpoint::read_experiment(&last)?;
        let data = Data::open(&experiment, observer.preparing())?;
        let (mut model, mut method) = build(open, &mut experiment, &data, observer)?;
        let state = checkpoint::restore(&last, &mut model, &mut method)?;
        let log = Log::open(run, state.logged)?;
        let before = state.seconds;
        Ok(Self {
            experiment,
            run: run.to_owned(),
            data,
            model,
            method,
            state,
            log,
            observer,
            before,
            began: Instant::now(),
        })
    }

    fn start(
        open: impl Open<B>,
        mut experiment: Experiment,
        run: &Path,
        data: Data,
        observer: &'a dyn Observer,
    ) -> Result<Self> {
        let (model, method) = build(open, &mut experiment, &data, observer)?;
        std::fs::create_dir_all(run).map_err(Error::io(run))?;
        let config = run.join(CONFIG);
        std::fs::write(&config, experiment.to_toml()).map_err(Error::io(&config))?;
        let schedule = experiment.train.schedule.unwrap_or_else(|| experiment.method.default_schedule());
        let state = State {
            step: 0,
            position: BatchPosition::default(),
            classes: data.classes,
            lambda: method.optimizer().state().lambda.clone(),
            loops: method.loops().to_vec(),
            lr: LearningRate::new(schedule, experiment.base_lr()),
            selection: Selection::default(),
            sums: Sums::default(),
            sparsity: method.sparsity(),
            logged: [0; 2],
            finished: false,
            seconds: 0.0,
        };
        let log = Log::open(run, state.logged)?;
        Ok(Self {
            experiment,
            run: run.to_owned(),
            data,
            model,
            method,
            state,
            log,
            observer,
            before: 0.0,
            began: Instant::now(),
        })
    }

    /// Trains until the end, or until `stop` is set: then after the present step, with a checkpoint.
    ///
    /// # Errors
    /// A loss or gradient that is not finite, audio that cannot be read, a disk that is full.
    pub fn run(mut self, stop: &AtomicBool) -> Result<Outcome> {
        let (total, epochs) = (self.total_steps(), self.experiment.train.epochs);
        self.observer.begin(self.state.step, total);
        self.began = Instant::now();
        let mut batches = self.data.train.batches(self.state.position)?;
        let (mut upcoming, mut staged) = (None, false);
        while self.state.position.epoch < epochs && !self.state.finished {
            if self.method.before_step(&self.clock(), &mut self.model)? {
                self.model.refresh()?;
            }
            let batch =
                upcoming.take().or_else(|| batches.next()).expect("the stream of training batches has no end")?;
            if !staged {
                self.model.stage(input(&batch))?;
            }
            let (began, labels, margin) = (Instant::now(), labels(&batch), self.margin());
            self.model.launch(&labels, margin)?;
            // the next batch is fetched and copied while the device works on this one; what is wrong with it is said in
            // its own turn
            upcoming = if batch.next.epoch < epochs { batches.next() } else { None };
            staged = matches!(&upcoming, Some(Ok(next)) if self.model.stage(input(next)).is_ok());
            let record = self.step(&batch, &labels, margin, began)?;
            self.observer.step(&record);
            if self.state.step.is_multiple_of(self.experiment.train.log_every) {
                self.log.step(&record)?;
            }
            self.state.position = batch.next;
            let last = batch.is_last();
            batches.recycle(batch);
            let stopping = stop.load(Ordering::Relaxed);
            if last {
                self.end_epoch(&record)?;
            } else if stopping
                || self.experiment.train.save_every > 0
                    && self.state.step.is_multiple_of(self.experiment.train.save_every)
            {
                self.save()?;
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

    /// Waits for the gradients of this batch, on which work began then, and takes the step.
    fn step(&mut self, batch: &Batch, labels: &[usize], margin: Margin, began: Instant) -> Result<StepRecord> {
        let cuts = batch.shape[0];
        let (step, total) = (self.state.step, self.total_steps());
        let outcome = self.model.outcome()?;
        if !outcome.loss.is_finite() {
            self.model.check_finite(true);
            let what = match self.model.gradients(input(batch), labels, margin) {
                Err(error) => error.to_string(),
                Ok(_) => format!("the loss is {}", outcome.loss),
            };
            return Err(self.not_finite(what));
        }
        let gradient_norm = self.model.clip_gradients(self.experiment.train.clip.unwrap_or(f32::INFINITY))?;
        let lr = self.state.lr.at(step, total, self.data.train.batches_per_epoch());
        let MethodStep { lambda, sparsity, target } = match self.method.step(&self.clock(), &mut self.model, lr) {
            Err(Error::Method(error @ bregman::Error::NonFinite { .. })) => {
                return Err(self.not_finite(error.to_string()));
            }
            result => result?,
        };
        self.model.refresh()?;
        self.state.step += 1;
        self.state.sparsity = sparsity;
        self.state.sums.add(outcome, cuts);
        Ok(StepRecord {
            step: self.state.step,
            epoch: batch.position.epoch + 1,
            loss: f64::from(outcome.loss),
            accuracy: outcome.correct as f64 / cuts as f64,
            lambda,
            sparsity,
            target,
            epsilon: target.map(|target| target - sparsity),
            lr,
            margin: f64::from(margin.margin),
            gradient_norm: f64::from(gradient_norm),
            utterances_per_second: cuts as f64 / began.elapsed().as_secs_f64().max(1e-9),
        })
    }

    fn save(&mut self) -> Result<()> {
        self.state.lambda.clone_from(&self.method.optimizer().state().lambda);
        self.state.loops = self.method.loops().to_vec();
        self.state.logged = self.log.lengths();
        self.state.seconds = self.seconds();
        checkpoint::save(&self.run.join(LAST), &self.model, &self.method, &self.state, &self.experiment)
    }

    fn seconds(&self) -> f64 {
        self.before + self.began.elapsed().as_secs_f64()
    }

    fn outcome(self, ending: Ending) -> Outcome {
        Outcome { ending, state: self.state, skipped: self.data.train.skipped() }
    }

    fn not_finite(&self, what: String) -> Error {
        Error::NotFinite {
            step: self.state.step + 1,
            epoch: self.state.position.epoch + 1,
            what,
            last: folder::present(&self.run.join(LAST)),
        }
    }
}

/// Names of the checkpoints of a run.
pub(crate) const LAST: &str = "last";
pub(crate) const BEST: &str = "best";
const AVERAGE: &str = "average";

fn input(batch: &Batch) -> Input<'_> {
    let [cuts, frames, _] = batch.shape;
    Input { values: &batch.features, batch: cuts, frames }
}

fn labels(batch: &Batch) -> Vec<usize> {
    batch.labels.iter().map(|&label| label as usize).collect()
}

fn refuse_existing(run: &Path) -> Result<()> {
    if run.join(CONFIG).exists() || folder::present(&run.join(LAST)).is_some() {
        Err(Error::Exists(run.to_owned()))
    } else {
        Ok(())
    }
}

/// Opens the device, in the recipe's precision or else the device's own, which the experiment then names.
fn build<B: Device>(
    open: impl Open<B>,
    experiment: &mut Experiment,
    data: &Data,
    observer: &dyn Observer,
) -> Result<(Model<B>, Method<B>)> {
    let device = open(experiment.train.precision)?;
    experiment.train.precision.get_or_insert(device.precision());
    observer.device(&device.description(), device.precision());
    let mut model = Model::new(device, &experiment.architecture(), Some(data.classes), experiment.seed)?;
    if experiment.data.features_by == FeaturesBy::Device {
        model.set_filterbank(experiment.data.features.tables()?)?;
    }
    let total = data.train.batches_per_epoch() * experiment.train.epochs;
    let method = Method::new(&experiment.method, &mut model, total, experiment.base_lr(), experiment.seed)?;
    Ok((model, method))
}
