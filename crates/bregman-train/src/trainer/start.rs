//! How a run begins: anew, or from its last checkpoint.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bregman_base::files::{Lock, write_file};
use bregman_nn::TrainableModel;
use bregman_speaker::{AudioSource, BatchPosition};

use super::Trainer;
use super::data::{Data, Division};
use super::observer::Observer;
use super::ranks::{self, Books};
use super::schedule::LearningRate;
use super::selection::EpochSelection;
use super::teacher;
use crate::config::LrSchedule;
use crate::method::{Method, Survival};
use crate::run::log::Log;
use crate::run::{CheckpointFolder, EpochSums, RunFolder, RunState, checkpoint, format};
use crate::{Device, Error, Experiment, Open, Result, open_cpu};

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
        Self::on_corpora_on(open_cpu, experiment, run, train, validation, observer)
    }
}

impl<'a, B: Device> Trainer<'a, B> {
    /// A new run in the folder `run`, on the device that `open` opens.
    ///
    /// # Errors
    /// A run that is there already, a corpus or settings that do not fit, a device that cannot be had.
    pub fn new_on(open: impl Open<B>, experiment: Experiment, run: &Path, observer: &'a dyn Observer) -> Result<Self> {
        Self::new_locked_on(open, experiment, run, None, observer)
    }

    /// As [`Trainer::new_on`], in a folder that the leading rank may have locked already by [`RunFolder::lock_new`].
    ///
    /// # Errors
    /// As [`Trainer::new_on`].
    pub fn new_locked_on(
        open: impl Open<B>,
        experiment: Experiment,
        run: &Path,
        lock: Option<Lock>,
        observer: &'a dyn Observer,
    ) -> Result<Self> {
        let run = RunFolder::new(run);
        let device = open(experiment.train.precision)?;
        if device.ranks().leads() {
            run.refuse_started()?;
        }
        let data = Data::open(&experiment, &Division::of(device.ranks()), observer.preparing())?;
        Self::start(device, open, experiment, run, lock, data, observer)
    }

    /// As [`Trainer::on_corpora`], on the device that `open` opens.
    ///
    /// # Errors
    /// As [`Trainer::new_on`].
    pub fn on_corpora_on(
        open: impl Open<B>,
        experiment: Experiment,
        run: &Path,
        train: Arc<dyn AudioSource>,
        validation: Option<Arc<dyn AudioSource>>,
        observer: &'a dyn Observer,
    ) -> Result<Self> {
        let run = RunFolder::new(run);
        let device = open(experiment.train.precision)?;
        if device.ranks().leads() {
            run.refuse_started()?;
        }
        let division = Division::of(device.ranks());
        let data = Data::new(&experiment, &division, train, validation, observer.preparing())?;
        Self::start(device, open, experiment, run, None, data, observer)
    }

    /// Continues the run in the folder `run` from its last checkpoint, whatever device wrote it; from the beginning if
    /// there is none.
    ///
    /// # Errors
    /// No run there, another process that trains there, a checkpoint of another network, a corpus that is not the same
    /// any more, a log whose end is missing.
    pub fn resume_on(open: impl Open<B>, run: &Path, observer: &'a dyn Observer) -> Result<Self> {
        let run = RunFolder::new(run);
        if !run.is_started() {
            return Err(Error::checkpoint(run.path(), "holds no run: there is nothing to resume"));
        }
        let precision = resumed(&run)?.1.train.precision;
        let device = open(precision)?;
        let ranks = device.ranks().clone();
        ranks.meet()?; // all have read a folder that the leading rank puts in order now
        let lock = if ranks.leads() { Some(run.lock()?) } else { None };
        ranks.meet()?;
        let (last, mut experiment) = resumed(&run)?;
        let Some(last) = last else {
            let data = Data::open(&experiment, &Division::of(&ranks), observer.preparing())?;
            return Self::start(device, open, experiment, run, lock, data, observer);
        };
        let RunState { corpus, ranks: began_with, .. } = last.state()?;
        let data = Data::open(&experiment, &Division { ranks: ranks.clone(), began_with }, observer.preparing())?;
        if let Some(corpus) = corpus {
            corpus.check(&data.corpus, run.path())?;
        }
        let mut built = build(device, open, &mut experiment, &data, observer)?;
        let mut state = checkpoint::restore(&last, &mut built.model, &mut built.method)?;
        state.corpus = Some(data.corpus.clone());
        state.parameters = built.method.names();
        ranks.meet()?; // all have read the checkpoint that may be replaced now
        if ranks.leads() && run.experiment().is_err() {
            write_file(&run.config(), format::to_toml(&experiment))?;
        }
        let trainer = Self::continued(experiment, run, lock, data, built, state, observer)?;
        if ranks.leads() {
            trainer.settle()?;
        }
        Ok(trainer)
    }

    fn start(
        device: B,
        open: impl Open<B>,
        mut experiment: Experiment,
        run: RunFolder,
        lock: Option<Lock>,
        data: Data,
        observer: &'a dyn Observer,
    ) -> Result<Self> {
        let ranks = device.ranks().clone();
        let built = build(device, open, &mut experiment, &data, observer)?;
        let method = &built.method;
        ranks.meet()?; // all have seen that there is nothing here yet
        let lock = match lock {
            None if ranks.leads() => Some(run.lock_new()?), // another process may have been faster
            lock => lock,
        };
        if ranks.leads() {
            write_file(&run.config(), format::to_toml(&experiment))?;
        }
        let schedule = experiment.train.schedule.unwrap_or_else(LrSchedule::exponential);
        let state = RunState {
            step: 0,
            position: BatchPosition::default(),
            classes: data.classes,
            parameters: method.names(),
            lambda: method.optimizer().state().lambda.clone(),
            loops: method.loops().to_vec(),
            lr: LearningRate::new(schedule, experiment.base_lr()),
            selection: EpochSelection::default(),
            sums: EpochSums::default(),
            sparsity: method.sparsity(),
            survival: Survival::default(),
            logged: [0; 2],
            finished: false,
            seconds: 0.0,
            ranks: ranks.size(),
            corpus: Some(data.corpus.clone()),
        };
        Self::continued(experiment, run, lock, data, built, state, observer)
    }

    /// The run from where `state` stands.
    fn continued(
        experiment: Experiment,
        run: RunFolder,
        lock: Option<Lock>,
        data: Data,
        Built { mut model, teacher, method }: Built<B>,
        state: RunState,
        observer: &'a dyn Observer,
    ) -> Result<Self> {
        if experiment.train.fixed_norms {
            let (device, params) = model.parts_mut();
            params.fix_norms(device)?;
        }
        let (ranks, before, began) = (model.backend().ranks().clone(), state.seconds, Instant::now());
        let books = match lock {
            Some(lock) => Some(Books { log: Log::open(&run, state.logged)?, _lock: lock }),
            None => None,
        };
        Ok(Self {
            experiment,
            run,
            data,
            model,
            teacher,
            trials: None,
            method,
            state,
            ranks,
            books,
            observer,
            before,
            began,
            ended: began,
        })
    }
}

/// The checkpoint to continue from, if there is one, and what is trained.
fn resumed(run: &RunFolder) -> Result<(Option<CheckpointFolder>, Experiment)> {
    let last = furthest(run)?;
    let experiment = last.as_ref().map_or_else(|| run.experiment(), CheckpointFolder::experiment)?;
    Ok((last, experiment))
}

/// The last checkpoint, unless a process was killed when it had written that of a best epoch and not yet the last one.
fn furthest(run: &RunFolder) -> Result<Option<CheckpointFolder>> {
    let (last, best) = (run.last().whole(), run.best().whole());
    let (Some(last), Some(best)) = (&last, &best) else { return Ok(last.or(best)) };
    let reached = last.state()?.step;
    Ok(Some(if best.state().is_ok_and(|best| best.step > reached) { best } else { last }.clone()))
}

/// What a run computes with.
struct Built<B: Device> {
    model: TrainableModel<B>,
    teacher: Option<TrainableModel<B>>,
    method: Method<B>,
}

/// Builds on the device, which computes in the recipe's precision or else in its own: the experiment then names it.
fn build<B: Device>(
    mut device: B,
    open: impl Open<B>,
    experiment: &mut Experiment,
    data: &Data,
    observer: &dyn Observer,
) -> Result<Built<B>> {
    experiment.train.precision.get_or_insert(device.precision());
    observer.device(&ranks::introduction(&device, data), device.precision());
    device.set_deterministic(experiment.train.deterministic);
    if experiment.train.joint_norms {
        device.join_norms()?;
    }
    if experiment.train.divide_optimizer {
        device.divide_optimizer()?;
    }
    let mut model = teacher::network(device, experiment, data.classes)?;
    let teacher = teacher::teacher(&open, experiment)?;
    let total = data.train.batches_per_epoch() * experiment.train.epochs;
    let method = Method::new(experiment, &mut model, total)?;
    Ok(Built { model, teacher, method })
}
