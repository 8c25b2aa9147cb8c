//! The network that `evaluate`, `embed`, `enroll`, `identify` and `verify` use: of a run or checkpoint, executed by the
//! training engine on any device, or of a model file, executed by the runtime on the CPU.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bregman_audio::{RATE, check_speech};
use bregman_runtime::Model;
use bregman_speaker::score::{Embedder, Embedding, EmbeddingStore, Embeddings, embed_recording};
use bregman_speaker::{Error, Progress, content_hash};
use bregman_train::{CheckpointFolder, DeviceChoice, NetworkPool, RunFolder, ThresholdRecord, Trained};

use crate::device::DeviceArg;
use crate::failure::Failure;
use crate::output::note;

/// `--model` of the commands whose other arguments are recordings.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ModelArg {
    /// Run (its best checkpoint, or else its last), checkpoint, or model file (.breg)
    #[arg(long, visible_alias = "run", value_name = "MODEL")]
    pub(crate) model: PathBuf,
}

/// A network on disk that embeds speech.
pub(crate) struct SpeakerModel {
    /// Where it comes from.
    pub(crate) source: NetworkSource,
    /// Utterances are cut to so many seconds in their middle.
    pub(crate) max_seconds: f64,
    /// A hash of everything an embedding depends on but the audio.
    key: u128,
    /// Values of an embedding.
    pub(crate) dim: usize,
    /// Utterances of a corpus without speech.
    silent: Arc<AtomicUsize>,
}

/// Where a network comes from.
pub(crate) enum NetworkSource {
    Checkpoint(CheckpointModel),
    File(FileModel),
}

/// The network of a run or checkpoint.
pub(crate) struct CheckpointModel {
    /// The checkpoint: of a run, its best or else its last.
    pub(crate) checkpoint: CheckpointFolder,
    /// s(θ) of the checkpoint.
    pub(crate) sparsity: f64,
    /// Steps that it has seen.
    pub(crate) step: u64,
    /// Where its training corpus is.
    pub(crate) corpus: PathBuf,
    pool: NetworkPool,
}

/// The network of a model file.
pub(crate) struct FileModel {
    /// The file.
    pub(crate) path: PathBuf,
    model: Arc<Model>,
    opened_in: Duration,
    embedding_ns: Arc<AtomicU64>,
}

/// How long a model file took.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(crate) struct FileTimes {
    pub(crate) open_ms: f64,
    /// All embeddings computed so far.
    pub(crate) embed_ms: f64,
}

/// Whether `path` means a model file rather than a run or checkpoint, which are folders.
pub(crate) fn is_model_file(path: &Path) -> bool {
    path.is_file() || !path.exists() && path.extension().is_some_and(|extension| extension == "breg")
}

impl SpeakerModel {
    /// Opens a run, a checkpoint or a model file. A device other than the CPU is opened when the first embedding is
    /// asked for.
    pub(crate) fn open(path: &Path, max_seconds: f64, device: DeviceArg) -> Result<Self, Failure> {
        if max_seconds.is_nan() || max_seconds <= 0.0 {
            return Err(Failure::mistake(format!("--max-seconds {max_seconds}"), "pass a number of seconds above 0"));
        }
        if is_model_file(path) {
            Self::of_file(path, max_seconds, device)
        } else {
            Self::of_checkpoint(path, max_seconds, device)
        }
    }

    fn of_checkpoint(path: &Path, max_seconds: f64, device: DeviceArg) -> Result<Self, Failure> {
        let trained = Trained::load(path)?;
        let checkpoint = trained.checkpoint().clone();
        let weights = read(&checkpoint.model())?;
        let experiment = trained.experiment();
        let settings = format!("{:?}, middle {max_seconds} s", experiment.data.features);
        Ok(Self {
            max_seconds,
            key: content_hash([&weights, settings.as_bytes()]),
            dim: trained.model().outputs(),
            silent: Arc::default(),
            source: NetworkSource::Checkpoint(CheckpointModel {
                pool: NetworkPool::new(&device.find()?, checkpoint.path().to_owned()),
                checkpoint,
                sparsity: trained.sparsity()?,
                step: trained.state().step,
                corpus: experiment.data.root.clone(),
            }),
        })
    }

    fn of_file(path: &Path, max_seconds: f64, device: DeviceArg) -> Result<Self, Failure> {
        if let DeviceChoice::Cuda(_) = device.device {
            let hint = "leave it out, or pass the run that the file was exported from";
            return Err(Failure::mistake("--device: a model file runs on the CPU", hint));
        }
        let start = Instant::now();
        let model = Model::open(path).map_err(|error| Failure::from(error).in_file(path))?;
        let opened_in = start.elapsed();
        let settings = format!("middle {max_seconds} s");
        Ok(Self {
            max_seconds,
            key: content_hash([&read(path)?, settings.as_bytes()]),
            dim: model.embedding_size(),
            silent: Arc::default(),
            source: NetworkSource::File(FileModel {
                path: path.to_owned(),
                model: Arc::new(model),
                opened_in,
                embedding_ns: Arc::default(),
            }),
        })
    }

    /// A copy of the network for one thread; on a GPU, a share of one.
    pub(crate) fn load(&self) -> Result<Box<dyn Embedder>, Error> {
        match &self.source {
            NetworkSource::Checkpoint(checkpoint) => {
                checkpoint.pool.embedder().map_err(|error| Error::Network(error.to_string()))
            }
            NetworkSource::File(FileModel { model, embedding_ns, .. }) => {
                Ok(Box::new(RuntimeEmbedder { model: model.clone(), took_ns: embedding_ns.clone() }))
            }
        }
    }

    /// As [`SpeakerModel::load`], for the utterances of a corpus: those without speech are embedded, so that no trial
    /// of a list is lost, and counted for [`SpeakerModel::note_silence`].
    pub(crate) fn load_for_corpus(&self) -> Result<SilenceCounter, Error> {
        Ok(SilenceCounter { network: self.load()?, silent: self.silent.clone() })
    }

    /// Warns of utterances without speech.
    pub(crate) fn note_silence(&self) {
        let silent = self.silent.load(Ordering::Relaxed);
        if silent > 0 {
            note(
                &format!("{silent} utterances have no speech in them"),
                &"their embeddings say nothing about a speaker",
            );
        }
    }

    /// Names the network in files that hold its embeddings.
    pub(crate) fn name(&self) -> String {
        format!("{:032x}", self.key)
    }

    /// The threshold inside a model file, or that of the run's last evaluation of this network.
    pub(crate) fn calibrated(&self) -> Result<Option<bregman_runtime::Threshold>, Failure> {
        Ok(match &self.source {
            NetworkSource::Checkpoint(checkpoint) => ThresholdRecord::read(&checkpoint.run(), &self.name())?
                .map(|found| bregman_runtime::Threshold { cosine: found.cosine, eer: Some(found.eer), trials: None }),
            NetworkSource::File(file) => file.model.calibration().cloned(),
        })
    }

    /// The user's threshold, or else that of the model file or run.
    pub(crate) fn threshold(&self, asked: Option<f64>) -> Result<f64, Failure> {
        if let Some(asked) = asked {
            return Ok(asked);
        }
        let (path, problem, hint) = match &self.source {
            NetworkSource::Checkpoint(checkpoint) => (
                checkpoint.run().path().to_owned(),
                "no threshold is known for this network",
                "pass --threshold, or find one on trials of your own: bregman evaluate RUN --trials T --root DIR",
            ),
            NetworkSource::File(file) => (
                file.path.clone(),
                "the model has no threshold",
                "pass --threshold, or calibrate the model: bregman export RUN -o model.breg --trials T --root DIR",
            ),
        };
        let unknown = || Failure::mistake(format!("{}: {problem}", path.display()), hint);
        self.calibrated()?.map(|threshold| threshold.cosine).ok_or_else(unknown)
    }

    /// The embeddings known so far: of a run those in its folder, of a model file none.
    pub(crate) fn store(&self) -> EmbeddingStore {
        let NetworkSource::Checkpoint(checkpoint) = &self.source else { return EmbeddingStore::in_memory() };
        let path = checkpoint.run().embeddings(&self.name());
        EmbeddingStore::open(&path, self.dim).unwrap_or_else(|error| {
            note("embeddings are not kept", &error);
            EmbeddingStore::in_memory()
        })
    }

    /// How long opening and embedding took so far, of a model file.
    pub(crate) fn file_times(&self) -> Option<FileTimes> {
        let NetworkSource::File(file) = &self.source else { return None };
        let embed_ms = file.embedding_ns.load(Ordering::Relaxed) as f64 / 1e6;
        Some(FileTimes { open_ms: 1e3 * file.opened_in.as_secs_f64(), embed_ms })
    }

    /// The embeddings of some recordings, computed now; one that cannot be read or has no speech in it is an error.
    pub(crate) fn embed_files(&self, files: &[PathBuf], progress: &dyn Progress) -> Result<Vec<Embedding>, Failure> {
        let mut network = self.load()?;
        progress.begin(files.len());
        let embed = |file: &PathBuf| {
            let embedding = embed_recording(file, self.max_seconds, &mut network);
            progress.step();
            let hint = "pass a readable audio file with speech in it";
            embedding.map_err(|error| Failure::mistake(error.to_string(), hint))
        };
        files.iter().map(embed).collect()
    }

    /// One embedding for a speaker: the mean of the utterances, each weighted by its duration.
    pub(crate) fn average(&self, utterances: &[Embedding]) -> Result<Vec<f32>, Failure> {
        let values = utterances.iter().flat_map(|utterance| utterance.values.iter().copied()).collect();
        let rows = Embeddings::new(self.dim, values)?.normalize();
        Ok(rows.averages(&[(0..rows.len()).collect()], |row| f64::from(utterances[row].seconds)).row(0).to_vec())
    }
}

impl CheckpointModel {
    /// The folder of the run.
    pub(crate) fn run(&self) -> RunFolder {
        self.checkpoint.run().unwrap_or(RunFolder::new("."))
    }
}

impl FileModel {
    /// Share of zeros among the weights in the file. The file has no classifier, so this is not the sparsity s(θ) that
    /// training controls.
    pub(crate) fn zeros_in_file(&self) -> f64 {
        self.model.zeros_in_file()
    }
}

/// A network that counts the utterances without speech.
pub(crate) struct SilenceCounter {
    network: Box<dyn Embedder>,
    silent: Arc<AtomicUsize>,
}

impl Embedder for SilenceCounter {
    fn embed(&mut self, samples: &mut [f32]) -> Result<Vec<f32>, String> {
        let silent = check_speech(samples, RATE).is_err();
        let embedding = self.network.embed(samples)?;
        self.silent.fetch_add(usize::from(silent), Ordering::Relaxed);
        Ok(embedding)
    }
}

/// A model of the runtime, shared between threads.
pub(crate) struct RuntimeEmbedder {
    model: Arc<Model>,
    took_ns: Arc<AtomicU64>,
}

impl RuntimeEmbedder {
    pub(crate) fn new(model: Arc<Model>) -> Self {
        Self { model, took_ns: Arc::default() }
    }
}

impl Embedder for RuntimeEmbedder {
    fn embed(&mut self, samples: &mut [f32]) -> Result<Vec<f32>, String> {
        let start = Instant::now();
        let embedding = self.model.embed(samples).map_err(|error| error.to_string());
        self.took_ns.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        embedding
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
}
