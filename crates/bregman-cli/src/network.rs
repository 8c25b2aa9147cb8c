//! A trained network as the evaluating commands use it: loaded, checked, and with the embeddings it has computed
//! before.

use std::path::{Path, PathBuf};

use bregman_speaker::score::{Embedder, Embedding, EmbeddingStore, Embeddings, embed_utterances};
use bregman_speaker::{Error, FileCorpus, Manifest, Progress, content_hash};
#[cfg(feature = "cuda")]
use bregman_tensor::cuda::Cuda;
use bregman_train::{CheckpointFolder, RunFolder, ThresholdRecord, Trained};
#[cfg(feature = "cuda")]
use bregman_train::{SharedNetworks, config::PrecisionKind};

use crate::device::{DeviceName, Place};
use crate::failure::Failure;

/// A network on disk.
pub(crate) struct Network {
    /// The checkpoint: of a run, its best or else its last.
    pub(crate) checkpoint: CheckpointFolder,
    /// s(θ) of the checkpoint.
    pub(crate) sparsity: f64,
    /// Steps that it has seen.
    pub(crate) step: u64,
    /// Where its training corpus is.
    pub(crate) corpus: PathBuf,
    /// The beginning of each utterance that counts.
    pub(crate) max_seconds: f64,
    /// Everything an embedding depends on but the audio, hashed.
    key: u128,
    dim: usize,
    place: Place,
    #[cfg(feature = "cuda")]
    on_gpu: SharedNetworks<Cuda>,
}

impl Network {
    /// Checks that `run` (a run or a checkpoint) can be loaded. The device is opened when the first embedding is asked
    /// for.
    pub(crate) fn open(run: &Path, max_seconds: f64, device: DeviceName) -> Result<Self, Failure> {
        if max_seconds.is_nan() || max_seconds <= 0.0 {
            return Err(Failure::mistake(format!("--max-seconds {max_seconds}"), "pass a number of seconds above 0"));
        }
        let trained = Trained::load(run)?;
        let checkpoint = trained.checkpoint().clone();
        let weights = checkpoint.model();
        let weights =
            std::fs::read(&weights).map_err(|error| Failure::failed(format!("{}: {error}", weights.display())))?;
        let experiment = trained.experiment();
        let settings = format!("{:?}, middle {max_seconds} s", experiment.data.features);
        let key = content_hash([&weights, settings.as_bytes()]);
        Ok(Self {
            checkpoint,
            sparsity: trained.state().sparsity,
            step: trained.state().step,
            corpus: experiment.data.root.clone(),
            max_seconds,
            key,
            dim: trained.model().outputs(),
            place: device.resolve()?,
            #[cfg(feature = "cuda")]
            on_gpu: SharedNetworks::default(),
        })
    }

    /// A copy of the network for one thread; on a GPU, a share of one.
    pub(crate) fn load(&self) -> Result<Box<dyn Embedder>, Error> {
        let loaded: Result<Box<dyn Embedder>, bregman_train::Error> = match self.place {
            Place::Cpu => Trained::load(self.checkpoint.path()).map(|network| Box::new(network) as _),
            #[cfg(feature = "cuda")]
            Place::Cuda(ordinal) => {
                let open = |precision: PrecisionKind| Ok(Cuda::open(ordinal, precision.into())?);
                self.on_gpu.join(|| Trained::load_on(open, self.checkpoint.path())).map(|share| Box::new(share) as _)
            }
        };
        loaded.map_err(|error| Error::Network(error.to_string()))
    }

    /// The folder of the run.
    pub(crate) fn run(&self) -> RunFolder {
        self.checkpoint.run().unwrap_or(RunFolder::new("."))
    }

    /// Names the network in files that hold its embeddings.
    pub(crate) fn name(&self) -> String {
        format!("{:032x}", self.key)
    }

    /// The user's threshold, or else that of the run.
    pub(crate) fn threshold(&self, asked: Option<f64>) -> Result<f64, Failure> {
        let known = || ThresholdRecord::read(&self.run(), &self.name()).map(|known| known.map(|known| known.cosine));
        asked.map_or_else(known, |asked| Ok(Some(asked)))?.ok_or_else(|| {
            let hint =
                "pass --threshold, or find one on trials of your own: bregman evaluate RUN --trials T --root DIR";
            Failure::mistake(format!("{}: no threshold is known for this network", self.run().path().display()), hint)
        })
    }

    /// The embeddings known so far, in the run's folder; kept in memory where that cannot be written.
    pub(crate) fn store(&self) -> EmbeddingStore {
        let path = self.run().embeddings(&self.name());
        EmbeddingStore::open(&path, self.dim).unwrap_or_else(|error| {
            eprintln!("note: embeddings are not kept: {error}");
            EmbeddingStore::in_memory()
        })
    }

    /// The embeddings of some files; one that cannot be read is an error.
    pub(crate) fn embed_files(&self, files: &[PathBuf], progress: &dyn Progress) -> Result<Vec<Embedding>, Failure> {
        let source = FileCorpus(Manifest::of_paths(files));
        let all: Vec<usize> = (0..files.len()).collect();
        let embedded = embed_utterances(&source, &all, self.max_seconds, || self.load(), &self.store(), progress)?;
        match embedded.unreadable.first() {
            Some(file) => Err(Failure::mistake(
                format!("{}: {}", file.path, file.problem),
                "pass a readable audio file with speech in it",
            )),
            None => Ok(embedded.embeddings.into_iter().flatten().collect()),
        }
    }

    /// One embedding for a speaker: the mean of the utterances, each weighted by its duration.
    pub(crate) fn average(&self, utterances: &[Embedding]) -> Result<Vec<f32>, Failure> {
        let values = utterances.iter().flat_map(|utterance| utterance.values.iter().copied()).collect();
        let rows = Embeddings::new(self.dim, values)?.normalize();
        Ok(rows.averages(&[(0..rows.len()).collect()], |row| f64::from(utterances[row].seconds)).row(0).to_vec())
    }
}
