//! A trained network as the evaluating commands use it: loaded, checked, and with the embeddings it has computed
//! before.

use std::path::{Path, PathBuf};

use bregman_speaker::score::{Embedder, Embedding, EmbeddingStore, Embeddings, embed_utterances};
use bregman_speaker::{Error, FileCorpus, Manifest, Progress, content_hash};
use bregman_train::{FoundDevice, NetworkPool, Trained};

use crate::failure::Failure;

/// A network on disk.
pub(crate) struct Network {
    /// The checkpoint: of a run, its best or else its last.
    pub(crate) checkpoint: PathBuf,
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
    pool: NetworkPool,
}

impl Network {
    /// Checks that `run` (a run or a checkpoint) can be loaded. The device is opened when the first embedding is asked
    /// for.
    pub(crate) fn open(run: &Path, max_seconds: f64, device: &FoundDevice) -> Result<Self, Failure> {
        if max_seconds.is_nan() || max_seconds <= 0.0 {
            return Err(Failure::mistake(format!("--max-seconds {max_seconds}"), "pass a number of seconds above 0"));
        }
        let trained = Trained::load(run)?;
        let checkpoint = trained.folder().to_owned();
        let weights = checkpoint.join("model.safetensors");
        let weights =
            std::fs::read(&weights).map_err(|error| Failure::failed(format!("{}: {error}", weights.display())))?;
        let experiment = trained.experiment();
        let settings = format!("{:?}, middle {max_seconds} s", experiment.data.features);
        let key = content_hash([&weights, settings.as_bytes()]);
        let pool = NetworkPool::new(device, checkpoint.clone());
        Ok(Self {
            checkpoint,
            sparsity: trained.state().sparsity,
            step: trained.state().step,
            corpus: experiment.data.root.clone(),
            max_seconds,
            key,
            dim: trained.model().outputs(),
            pool,
        })
    }

    /// A copy of the network for one thread; on a GPU, a share of one.
    pub(crate) fn load(&self) -> Result<Box<dyn Embedder>, Error> {
        self.pool.embedder().map_err(|error| Error::Network(error.to_string()))
    }

    /// The folder of the run.
    pub(crate) fn run(&self) -> &Path {
        self.checkpoint.parent().unwrap_or(Path::new("."))
    }

    /// Names the network in files that hold its embeddings.
    pub(crate) fn name(&self) -> String {
        format!("{:032x}", self.key)
    }

    /// The embeddings known so far, in the run's folder; kept in memory where that cannot be written.
    pub(crate) fn store(&self) -> EmbeddingStore {
        let path = self.run().join("embeddings").join(self.name() + ".f32");
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
