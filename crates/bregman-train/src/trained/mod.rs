//! A trained network with its front end: from samples to embeddings.

pub(crate) mod deploy;
mod front_end;
pub(crate) mod inspect;
pub(crate) mod shared;

use std::path::Path;

use bregman_nn::{Checkpoint, Input, TrainableModel};
use bregman_speaker::Extractor;
use bregman_speaker::score::Embedder;
use bregman_tensor::{Backend, Cpu, Precision};

use crate::run::{CheckpointFolder, RunState};
use crate::{Error, Experiment, Open, Result, open_cpu};

/// A network in evaluation mode, with the filterbank it was trained on.
///
/// It computes in f32, whatever it was trained in: an embedding is a property of the network, not of the machine. Those
/// of two devices differ by rounding alone, by less than 1e-4 of their length.
///
/// ```no_run
/// # fn main() -> Result<(), bregman_train::Error> {
/// let mut trained = bregman_train::Trained::load("runs/first".as_ref())?;
/// let samples = vec![0.0f32; 3 * 16_000];
/// let embedding = trained.embed(&samples)?;
/// # Ok(())
/// # }
/// ```
pub struct Trained<B: Backend = Cpu> {
    model: TrainableModel<B>,
    extractor: Extractor,
    experiment: Experiment,
    state: RunState,
    checkpoint: CheckpointFolder,
}

impl Trained {
    /// Loads a run (its best checkpoint, or its last where none was within the tolerance) or a checkpoint, on the CPU.
    ///
    /// # Errors
    /// A path that is neither, or a checkpoint of another architecture.
    pub fn load(path: &Path) -> Result<Self> {
        Self::load_on(&open_cpu, path)
    }
}

impl<B: Backend> Trained<B> {
    /// As [`Trained::load`], on the device that `open` opens.
    ///
    /// # Errors
    /// As [`Trained::load`], and a device that cannot be had.
    pub fn load_on(open: &impl Open<B>, path: &Path) -> Result<Self> {
        let checkpoint = CheckpointFolder::find(path)?;
        let (experiment, state) = (checkpoint.experiment()?, checkpoint.state()?);
        let features = experiment.data.features.fbank();
        let architecture = experiment.architecture();
        let classes = experiment.classes(state.classes);
        let mut model = TrainableModel::new(open(Some(Precision::F32))?, &architecture, classes, experiment.seed)?;
        let file = checkpoint.model();
        model.load(&Checkpoint::read(&file)?).map_err(|error| Error::checkpoint(&file, error.to_string()))?;
        Ok(Self { model, extractor: Extractor::new(&features)?, experiment, state, checkpoint })
    }

    /// The embedding of one utterance at 16 kHz, not normalised.
    ///
    /// # Errors
    /// An utterance shorter than one frame.
    pub fn embed(&mut self, samples: &[f32]) -> Result<Vec<f32>> {
        self.embed_in_place(&mut samples.to_vec())
    }

    fn embed_in_place(&mut self, samples: &mut [f32]) -> Result<Vec<f32>> {
        let frames = self.extractor.frames(samples.len());
        let features = self.extractor.extract(samples, 0);
        Ok(self.model.embed(Input { values: &features.data, batch: 1, frames })?)
    }

    /// The embedding of features (frames × bins) computed by a [`Trained::front_end`].
    ///
    /// # Errors
    /// Too few frames.
    pub fn embed_features(&mut self, values: &[f32], frames: usize) -> Result<Vec<f32>> {
        Ok(self.model.embed(Input { values, batch: 1, frames })?)
    }

    /// Another copy of its front end, for a thread that computes features while the network is busy.
    ///
    /// # Errors
    /// None; the result is that of [`Extractor::new`].
    pub fn front_end(&self) -> Result<Extractor> {
        Ok(Extractor::new(&self.experiment.data.features.fbank())?)
    }

    /// The network.
    pub fn model(&self) -> &TrainableModel<B> {
        &self.model
    }

    /// What it was trained with.
    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// Where its run stood.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// The checkpoint it was loaded from.
    pub fn checkpoint(&self) -> &CheckpointFolder {
        &self.checkpoint
    }
}

impl<B: Backend> Embedder for Trained<B> {
    fn embed(&mut self, samples: &mut [f32]) -> Result<Vec<f32>, String> {
        self.embed_in_place(samples).map_err(|error| error.to_string())
    }
}
