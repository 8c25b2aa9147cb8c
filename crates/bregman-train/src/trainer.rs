//! The loop: batches, gradients, steps, epochs, checkpoints.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bregman::Sparsity;
use bregman_nn::{Input, Model};
use bregman_speaker::{AudioSource, Batch, Position, Skipped};
use bregman_tensor::{Cpu, Margin};

use crate::checkpoint::{self, CONFIG, State, Sums};
use crate::config::FeaturesBy;
use crate::data::Data;
use crate::log::{EpochRecord, LayerRecord, Log, StepRecord};
use crate::method::{self, Method, MethodStep};
use crate::observer::Observer;
use crate::schedule::{LearningRate, margin_at};
use crate::selection::{Best, Selection};
use crate::{Device, Error, Experiment, Open, Result, average, device, folder};

/// An experiment in progress.
pub struct Trainer<'a, B: Device = Cpu> {
    experiment: Experiment,
    run: PathBuf,
    data: Data,
    model: Model<B>,
    method: Box<dyn Method<B>>,
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
        Self::new_on(device::cpu, experiment, run, observer)
    }

    /// Continues the run in the folder `run` on the CPU, see [`Trainer::resume_on`].
    ///
    /// # Errors
    /// As [`Trainer::resume_on`].
    pub fn resume(run: &Path, observer: &'a dyn Observer) -> Result<Self> {
        Self::resume_on(device::cpu, run, observer)
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
        Self::start(device::cpu, experiment, run, data, observer)
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

    /// Continues the run in the folder `run` from its last checkpoint, whatever device wrote it; from the beginning if there is none.
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
        let experiment = checkpoint::read_experiment(&last)?;
        let data = Data::open(&experiment, observer.preparing())?;
        let (mut model, mut method) = build(open, &experiment, &data)?;
        let state = checkpoint::restore(&last, &mut model, &mut *method)?;
        let log = Log::open(run, state.logged)?;
        let before = state.seconds;
        Ok(Self { experiment, run: run.to_owned(), data, model, method, state, log, observer, before, began: Instant::now() })
    }

    fn start(open: impl Open<B>, experiment: Experiment, run: &Path, data: Data, observer: &'a dyn Observer) -> Result<Self> {
        let (model, method) = build(open, &experiment, &data)?;
        std::fs::create_dir_all(run).map_err(Error::io(run))?;
        let config = run.join(CONFIG);
        std::fs::write(&config, experiment.to_toml()).map_err(Error::io(&config))?;
        let schedule = experiment.train.schedule.unwrap_or_else(|| experiment.method.default_schedule());
        let state = State {
            step: 0,
            position: Position::default(),
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
        Ok(Self { experiment, run: run.to_owned(), data, model, method, state, log, observer, before: 0.0, began: Instant::now() })
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
            let epoch = self.state.position.epoch;
            if self.state.position.batch == 0 && self.method.begin_epoch(epoch, &mut self.model)? {
                self.model.refresh()?;
            }
            let batch = upcoming.take().or_else(|| batches.next()).expect("the stream of training batches has no end")?;
            if !staged {
                self.model.stage(input(&batch))?;
            }
            let (began, labels, margin) = (Instant::now(), labels(&batch), self.margin());
            self.model.launch(&labels, margin)?;
            // the next batch is fetched and copied while the device works on this one; what is wrong with it is said in its own turn
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
            } else if stopping || self.experiment.train.save_every > 0 && self.state.step.is_multiple_of(self.experiment.train.save_every) {
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
        let MethodStep { lambda, sparsity, target } = match self.method.step(batch.position.epoch, &mut self.model, lr) {
            Err(Error::Method(error @ bregman::Error::NonFinite { .. })) => return Err(self.not_finite(error.to_string())),
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

    /// Validates, records, chooses, saves.
    fn end_epoch(&mut self, last: &StepRecord) -> Result<()> {
        let (train_loss, train_accuracy) = std::mem::take(&mut self.state.sums).means();
        let validation = self.validate()?;
        let (loss, accuracy) = validation.unwrap_or((train_loss, train_accuracy));
        let (sparsity, target) = (last.sparsity, self.experiment.method.target());
        let select = self.experiment.select;
        let admitted = select.admits(sparsity, target);
        let candidate = Best { epoch: last.epoch, loss, accuracy, sparsity };
        let best = admitted && self.state.selection.offer(&select, candidate);
        if admitted {
            self.state.lr.observe(select.score(&candidate).0);
        }
        self.keep_top(last.epoch)?;
        let record = self.epoch_record(last, (train_loss, train_accuracy), validation, admitted);
        if !record.dead.is_empty() {
            let names = record.dead.join(", ");
            self.observer.warning(&format!(
                "epoch {}: nothing lives in {names}; start with more live inputs (method.initial_inputs), or protect it with a λ-scale below 1 \
                 (method.groups) or a ceiling (method.layers.limits)",
                last.epoch
            ));
        }
        if !admitted && let Some(unrest) = self.method.unrest() {
            self.observer.warning(&format!("epoch {}: {unrest}", last.epoch));
        }
        self.log.epoch(&record)?;
        self.observer.epoch(&record, best);
        let patience = self.experiment.train.early_stop;
        self.state.finished = self.state.position.epoch >= self.experiment.train.epochs
            || patience.is_some_and(|patience| self.state.selection.best.is_some() && self.state.selection.waited >= patience);
        self.save()?;
        if best {
            checkpoint::copy(&self.run.join(LAST), &self.run.join(BEST))?;
        }
        if self.state.finished && self.state.selection.top.len() > 1 { self.average() } else { Ok(()) }
    }

    /// Keeps the weights of the epochs that will be averaged, and no others.
    fn keep_top(&self, epoch: u64) -> Result<()> {
        let (folder, top) = (self.run.join(TOP), &self.state.selection.top);
        if !top.iter().any(|best| best.epoch == epoch) {
            return Ok(());
        }
        std::fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        self.model.state()?.write(&top_file(&self.run, epoch))?;
        for entry in std::fs::read_dir(&folder).map_err(Error::io(&folder))? {
            let path = entry.map_err(Error::io(&folder))?.path();
            if !top.iter().any(|best| top_file(&self.run, best.epoch) == path) {
                std::fs::remove_file(&path).map_err(Error::io(&path))?;
            }
        }
        Ok(())
    }

    /// Writes the checkpoint `average`: the mean of the best epochs, otherwise as `best`.
    fn average(&self) -> Result<()> {
        let files: Vec<PathBuf> = self.state.selection.top.iter().map(|best| top_file(&self.run, best.epoch)).collect();
        let params = self.method.optimizer().groups().params();
        let weights: Vec<_> = params.iter().filter(|param| param.role.is_weight()).cloned().collect();
        let mean = average::average(&files, &weights)?;
        checkpoint::copy_with_model(&self.run.join(BEST), &self.run.join(AVERAGE), &mean)
    }

    /// Loss without margin and accuracy on the validation set.
    fn validate(&mut self) -> Result<Option<(f64, f64)>> {
        let Some(loader) = &self.data.validation else { return Ok(None) };
        let margin = Margin { scale: self.experiment.loss.scale, margin: 0.0, easy: false };
        let mut sums = Sums::default();
        let mut batches = loader.epoch(0)?;
        while let Some(batch) = batches.next().transpose()? {
            sums.add(self.model.evaluate(input(&batch), &labels(&batch), margin)?, batch.shape[0]);
            batches.recycle(batch);
        }
        Ok(Some(sums.means()))
    }

    fn epoch_record(&self, last: &StepRecord, train: (f64, f64), validation: Option<(f64, f64)>, admitted: bool) -> EpochRecord {
        let optimizer = self.method.optimizer();
        let account = Sparsity::new(optimizer.groups(), optimizer.stats());
        let layers = layers(&*self.method);
        EpochRecord {
            step: last.step,
            epoch: last.epoch,
            train_loss: train.0,
            train_accuracy: train.1,
            validation_loss: validation.map(|(loss, _)| loss),
            validation_accuracy: validation.map(|(_, accuracy)| accuracy),
            lambda: last.lambda,
            sparsity: last.sparsity,
            target: self.experiment.method.target(),
            admitted,
            lr: last.lr,
            seconds: self.seconds(),
            groups: layer_groups(&layers),
            layers,
            dead: account.dead().into_iter().map(str::to_owned).collect(),
        }
    }

    fn save(&mut self) -> Result<()> {
        self.state.lambda.clone_from(&self.method.optimizer().state().lambda);
        self.state.loops = self.method.loops().to_vec();
        self.state.logged = self.log.lengths();
        self.state.seconds = self.seconds();
        checkpoint::save(&self.run.join(LAST), &self.model, &*self.method, &self.state, &self.experiment)
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
const TOP: &str = "top";

fn input(batch: &Batch) -> Input<'_> {
    let [cuts, frames, _] = batch.shape;
    Input { values: &batch.features, batch: cuts, frames }
}

fn labels(batch: &Batch) -> Vec<usize> {
    batch.labels.iter().map(|&label| label as usize).collect()
}

fn top_file(run: &Path, epoch: u64) -> PathBuf {
    run.join(TOP).join(format!("epoch-{epoch}.safetensors"))
}

fn refuse_existing(run: &Path) -> Result<()> {
    if run.join(CONFIG).exists() || folder::present(&run.join(LAST)).is_some() { Err(Error::Exists(run.to_owned())) } else { Ok(()) }
}

fn build<B: Device>(open: impl Open<B>, experiment: &Experiment, data: &Data) -> Result<(Model<B>, Box<dyn Method<B>>)> {
    let architecture = experiment.model.architecture(experiment.data.features.bins);
    let device = open(experiment.train.precision)?;
    let mut model = Model::new(device, &architecture, Some(data.classes), experiment.seed)?;
    if experiment.data.features_by == FeaturesBy::Device {
        model.set_filterbank(experiment.data.features.tables()?)?;
    }
    let total = data.train.batches_per_epoch() * experiment.train.epochs;
    let method = method::build(&experiment.method, &mut model, total, experiment.base_lr(), experiment.seed)?;
    Ok((model, method))
}

/// Every weight tensor.
fn layers<B: Device>(method: &dyn Method<B>) -> Vec<LayerRecord> {
    let optimizer = method.optimizer();
    let weights = optimizer.groups().params().iter().zip(optimizer.stats()).filter(|(param, _)| param.role.is_weight());
    weights
        .map(|(param, stats)| LayerRecord {
            name: param.name.clone(),
            shape: param.shape.clone(),
            sparsity: stats.sparsity(),
            live: stats.live(),
            norm: stats.norm(),
        })
        .collect()
}

/// Sparsity of the layers whose names begin alike, such as all of `layer2`.
fn layer_groups(layers: &[LayerRecord]) -> Vec<(String, f64)> {
    let mut groups: Vec<(&str, u64, u64)> = Vec::new();
    for layer in layers {
        let name = layer.name.split('.').next().unwrap_or(&layer.name);
        match groups.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, live, total)) => (*live, *total) = (*live + layer.live, *total + layer.len()),
            None => groups.push((name, layer.live, layer.len())),
        }
    }
    groups.into_iter().map(|(name, live, total)| (name.to_owned(), 1.0 - live as f64 / total.max(1) as f64)).collect()
}
