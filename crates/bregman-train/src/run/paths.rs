//! Where the files of a run are. Nobody else joins their names.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use bregman_base::files::{Lock, present_folder, read_text, remove_temporaries, settle_folder};

use super::format;
use crate::{Error, Experiment, Result, RunState};

/// The folder of a run.
///
/// ```text
/// config.toml                       the resolved recipe                      Experiment
/// command.json                      the command that started the run         CommandRecord
/// metrics.jsonl                     every step and epoch                     MetricsRecord
/// events.out.tfevents.0.bregman     the same for TensorBoard
/// last/  best/  average/            checkpoints                              CheckpointFolder
/// top/epoch-N.safetensors           weights of the epochs to average
/// evaluations/TEST.….json           error rates of a checkpoint on a test    EvaluationRecord
/// threshold.json                    the threshold found by an evaluation     ThresholdRecord
/// embeddings/NETWORK.f32            embeddings computed so far               EmbeddingStore
/// train.lock                        the process that trains here, meanwhile  Lock
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFolder(PathBuf);

/// The folder of a checkpoint: of a run, or copied elsewhere.
///
/// ```text
/// model.safetensors      weights and batch-norm statistics, names of WeSpeaker's state_dict
/// optimizer.safetensors  NAME.p, NAME.m, NAME.v (f32), NAME.mask (bool): the optimizer's arrays
/// state.json             where the run stands                                RunState
/// config.toml            the resolved recipe                                 Experiment
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointFolder(PathBuf);

impl RunFolder {
    /// The run in the folder `path`, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The run that `path` means: that around a checkpoint, or the folder itself.
    pub fn around(path: &Path) -> Self {
        CheckpointFolder::new(path)
            .run()
            .filter(|_| CheckpointFolder::new(path).is_present())
            .unwrap_or(Self::new(path))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The resolved recipe.
    pub fn config(&self) -> PathBuf {
        self.0.join("config.toml")
    }

    /// The command that started the run.
    pub fn command(&self) -> PathBuf {
        self.0.join("command.json")
    }

    /// The log of steps and epochs.
    pub fn metrics(&self) -> PathBuf {
        self.0.join("metrics.jsonl")
    }

    /// The log for TensorBoard, which recognises it by `tfevents`.
    pub fn events(&self) -> PathBuf {
        self.0.join("events.out.tfevents.0.bregman")
    }

    /// The checkpoint from which the run continues.
    pub fn last(&self) -> CheckpointFolder {
        CheckpointFolder(self.0.join("last"))
    }

    /// The checkpoint of the best epoch.
    pub fn best(&self) -> CheckpointFolder {
        CheckpointFolder(self.0.join("best"))
    }

    /// The average of the best epochs.
    pub fn average(&self) -> CheckpointFolder {
        CheckpointFolder(self.0.join("average"))
    }

    /// The folder of the weights to be averaged.
    pub fn top(&self) -> PathBuf {
        self.0.join("top")
    }

    /// The weights of an epoch that will be averaged.
    pub fn top_epoch(&self, epoch: u64) -> PathBuf {
        self.top().join(format!("epoch-{epoch}.safetensors"))
    }

    /// The folder of evaluations.
    pub fn evaluations(&self) -> PathBuf {
        self.0.join("evaluations")
    }

    /// The threshold found by the last evaluation.
    pub fn threshold(&self) -> PathBuf {
        self.0.join("threshold.json")
    }

    /// The embeddings that the network of this name has computed so far.
    pub fn embeddings(&self, network: &str) -> PathBuf {
        self.0.join("embeddings").join(format!("{network}.f32"))
    }

    /// Whether there is a run here that can be resumed, if only from its beginning. A recipe that cannot be read, such
    /// as one that a full disk left empty, is no run unless there is a checkpoint with it.
    pub fn is_started(&self) -> bool {
        self.last().whole().is_some()
            || self.best().whole().is_some()
            || matches!(self.experiment(), Ok(_) | Err(Error::NewerFormat { .. }))
    }

    /// Refuses a folder with a run that can be resumed.
    pub(crate) fn refuse_started(&self) -> Result<()> {
        if self.is_started() { Err(Error::Exists(self.0.clone())) } else { Ok(()) }
    }

    /// Keeps other processes from starting a run here: for a new one that needs files of its own in the folder first.
    ///
    /// # Errors
    /// A run that is there already, and a process that trains here.
    pub fn lock_new(&self) -> Result<Lock> {
        self.refuse_started()?;
        let lock = self.lock()?;
        self.refuse_started()?;
        Ok(lock)
    }

    /// Keeps other processes from training here, and removes what killed ones left half written.
    pub(crate) fn lock(&self) -> Result<Lock> {
        std::fs::create_dir_all(&self.0).map_err(Error::io(&self.0))?;
        let lock = Lock::take(&self.0.join("train.lock")).map_err(|error| match error.source.kind() {
            ErrorKind::ResourceBusy => Error::Busy { run: self.0.clone(), problem: error.source.to_string() },
            _ => error.into(),
        })?;
        remove_temporaries(&self.0)?;
        for checkpoint in [self.last(), self.best(), self.average()] {
            settle_folder(&checkpoint.0)?;
        }
        Ok(lock)
    }

    /// Whether any file of a run is here.
    pub fn is_present(&self) -> bool {
        let files = [self.config(), self.metrics(), self.command(), self.evaluations()];
        files.iter().any(|file| file.exists()) || self.last().0.exists() || self.best().0.exists()
    }

    /// The checkpoint that stands for the run: its best, or else its last.
    pub fn chosen(&self) -> Option<CheckpointFolder> {
        [self.best(), self.last()].iter().filter_map(CheckpointFolder::whole).find(CheckpointFolder::is_present)
    }

    /// Where the run stood when it last saved itself, if that can be read.
    pub fn last_state(&self) -> Option<RunState> {
        let checkpoints = [self.last().whole(), self.best().whole()];
        checkpoints.into_iter().flatten().find_map(|checkpoint| checkpoint.state().ok())
    }

    /// What it trains.
    ///
    /// # Errors
    /// A recipe that is missing or cannot be understood.
    pub fn experiment(&self) -> Result<Experiment> {
        read_experiment(&self.config())
    }

    /// The files that a report is made of, those that exist and those that may come.
    pub fn reported(&self) -> Vec<PathBuf> {
        let evaluations = std::fs::read_dir(self.evaluations()).into_iter().flatten().flatten();
        [self.metrics(), self.config(), self.command(), self.last().state_file(), self.best().state_file()]
            .into_iter()
            .chain(evaluations.map(|entry| entry.path()))
            .collect()
    }
}

impl CheckpointFolder {
    /// The checkpoint in the folder `path`, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The checkpoint that `path` means: itself, or the best of a run, or its last where none was chosen.
    ///
    /// # Errors
    /// A path that is neither.
    pub fn find(path: &Path) -> Result<Self> {
        let own = Self::new(path);
        let found = if own.is_present() { Some(own) } else { RunFolder::new(path).chosen() };
        found.ok_or_else(|| {
            let problem = if path.exists() {
                "is neither a run nor a checkpoint: no best/, no last/, no state.json"
            } else {
                "does not exist"
            };
            Error::checkpoint(path, problem)
        })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The run it belongs to: the folder around it.
    pub fn run(&self) -> Option<RunFolder> {
        self.0.parent().map(RunFolder::new)
    }

    /// Weights and batch-norm statistics.
    pub fn model(&self) -> PathBuf {
        self.0.join("model.safetensors")
    }

    /// The optimizer's arrays.
    pub fn optimizer(&self) -> PathBuf {
        self.0.join("optimizer.safetensors")
    }

    /// The file of [`CheckpointFolder::state`].
    pub fn state_file(&self) -> PathBuf {
        self.0.join("state.json")
    }

    /// The resolved recipe.
    pub fn config(&self) -> PathBuf {
        self.0.join("config.toml")
    }

    /// Whether a checkpoint is here.
    pub fn is_present(&self) -> bool {
        self.state_file().is_file()
    }

    /// The checkpoint itself, or where a process was killed while it replaced it, the old one.
    pub fn whole(&self) -> Option<Self> {
        present_folder(&self.0).map(Self)
    }

    /// Where the run stood.
    ///
    /// # Errors
    /// A file that is missing, cannot be understood or is of a newer format, counts that no run comes to.
    pub fn state(&self) -> Result<RunState> {
        let state: RunState = format::read_json(&self.state_file())?;
        state.check().map_err(|problem| Error::checkpoint(&self.state_file(), problem))?;
        Ok(state)
    }

    /// What it was trained with.
    ///
    /// # Errors
    /// As [`RunFolder::experiment`].
    pub fn experiment(&self) -> Result<Experiment> {
        read_experiment(&self.config())
    }
}

fn read_experiment(file: &Path) -> Result<Experiment> {
    let text = read_text(file, format::MOST_BYTES)?;
    Experiment::parse(&text, &file.display().to_string(), &[] as &[&str])
}
