//! A loaded model: from samples to embeddings.

use std::time::Duration;

use bregman_network::Architecture;

use crate::file::{Contents, Source, Threshold};
use crate::kernels::{Instructions, KernelCosts, Tuning};
use crate::layer_info::{LayerInfo, describe};
#[cfg(feature = "audio")]
use crate::network::Incremental;
use crate::network::{Execution, Network, Workspace};
use crate::session::{Session, SessionPool};
use crate::team::Team;
use crate::{Error, FrontEnd, Result};

/// How to execute a model.
///
/// | field | default | meaning |
/// | --- | --- | --- |
/// | `threads` | 1 | threads for one utterance, or utterances at a time for a batch; 0 for every core |
/// | `instructions` | the widest | SIMD instructions |
/// | `tuning` | measured | whether kernels are chosen by what they cost on this CPU; no embedding depends on it |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Threads, at most 1024; 0 for every core.
    pub threads: usize,
    /// SIMD instructions.
    pub instructions: Instructions,
    /// By which costs kernels are chosen.
    pub tuning: Tuning,
}

impl Default for Options {
    fn default() -> Self {
        Self { threads: 1, instructions: Instructions::best(), tuning: Tuning::default() }
    }
}

/// More than any machine has cores: thousands take longer to start than to embed.
const MAX_THREADS: usize = 1024;

/// A model, ready to embed. It is shared between threads by reference; each call takes its own memory from a pool that
/// grows to the number of calls at a time, and after that allocates nothing but its result and, on several threads,
/// some words that these share.
///
/// ```no_run
/// let model = bregman_runtime::Model::open("model.breg")?;
/// let samples = vec![0.1f32; 3 * 16_000]; // mono, 16 kHz
/// let embedding = model.embed(&samples)?;
/// println!("{} values, accept above {:?}", embedding.len(), model.threshold());
/// # Ok::<(), bregman_runtime::Error>(())
/// ```
pub struct Model {
    network: Network,
    architecture: Architecture,
    fewest_frames: usize,
    front_end: FrontEnd,
    threshold: Option<Threshold>,
    layers: Vec<LayerInfo>,
    arch: pulp::Arch,
    pool: Option<rayon::ThreadPool>,
    threads: usize,
    sessions: SessionPool,
    /// The fewest samples, and how many make a second.
    #[cfg(feature = "audio")]
    shortest: (usize, u32),
}

impl Model {
    /// Opens a model file, with the default [`Options`].
    ///
    /// # Errors
    /// A file that cannot be read, is no model or was altered.
    #[cfg(not(target_family = "wasm"))]
    pub fn open(path: impl AsRef<std::path::Path>) -> Result<Self> {
        Self::open_with(path, &Options::default())
    }

    /// Opens a model file.
    ///
    /// # Errors
    /// As [`Model::open`], and threads that cannot be started.
    #[cfg(not(target_family = "wasm"))]
    pub fn open_with(path: impl AsRef<std::path::Path>, options: &Options) -> Result<Self> {
        Self::from_source(&Source::file(path.as_ref(), crate::file::MAX_BYTES)?, options)
    }

    /// Reads a model from the bytes of its file, with the default [`Options`].
    ///
    /// # Errors
    /// Bytes that are no model, or were altered.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::from_bytes_with(bytes, &Options::default())
    }

    /// Reads a model from the bytes of its file.
    ///
    /// # Errors
    /// As [`Model::from_bytes`], and threads that cannot be started.
    pub fn from_bytes_with(bytes: &[u8], options: &Options) -> Result<Self> {
        Self::from_source(&Source::memory(bytes)?, options)
    }

    fn from_source(source: &Source, options: &Options) -> Result<Self> {
        if options.threads > MAX_THREADS {
            return Err(Error::Threads(format!(
                "{} were asked for, at most {MAX_THREADS} make sense",
                options.threads
            )));
        }
        let Options { threads, instructions, tuning } = *options;
        let arch = instructions.arch().ok_or(Error::Instructions(instructions))?;
        let decoded = Contents::parse(source).and_then(|contents| {
            let (network, costs) = Network::new(&contents, None, &KernelCosts::of(instructions, tuning))?;
            let layers = describe(&contents, &costs);
            Ok((contents, network, layers))
        });
        let (contents, network, layers) = source.settle(decoded)?;
        let threads = if threads == 0 { std::thread::available_parallelism().map_or(1, Into::into) } else { threads };
        let pool = || {
            rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .map_err(|error| Error::Threads(error.to_string()))
        };
        let pool = if threads > 1 { Some(pool()?) } else { None };
        let Contents { architecture, front_end, threshold, .. } = contents;
        let session = Session::new(&network, &front_end, &architecture)?; // checks the front end
        Ok(Self {
            network,
            architecture,
            fewest_frames: architecture.fewest_frames(),
            front_end,
            threshold,
            layers,
            arch,
            pool,
            threads,
            #[cfg(feature = "audio")]
            shortest: (session.extractor.shortest(), session.extractor.rate()),
            sessions: SessionPool::new(session),
        })
    }

    /// The embedding of one utterance: mono samples at [`Model::rate`], nominally in [−1, 1]. Silence has one, too,
    /// which says nothing about a speaker: `bregman_audio::check_speech` refuses it.
    ///
    /// # Errors
    /// Audio shorter than [`Model::shortest`], or with NaN or infinity in it.
    #[cfg(feature = "audio")]
    pub fn embed(&self, samples: &[f32]) -> Result<Vec<f32>> {
        let mut embedding = vec![0.0; self.embedding_size()];
        self.embed_into(samples, &mut embedding)?;
        Ok(embedding)
    }

    /// As [`Model::embed`], into an existing slice of [`Model::embedding_size`] values.
    ///
    /// # Errors
    /// As [`Model::embed`].
    ///
    /// # Panics
    /// If `embedding` has another length.
    #[cfg(feature = "audio")]
    pub fn embed_into(&self, samples: &[f32], embedding: &mut [f32]) -> Result<()> {
        self.embed_on(self.threads, samples, embedding)
    }

    /// The embedding of features: frames × bins, as the model's front end makes them.
    ///
    /// # Errors
    /// No whole number of frames, fewer than the network takes, or NaN or infinity among them.
    pub fn embed_features(&self, features: &[f32]) -> Result<Vec<f32>> {
        let mut embedding = vec![0.0; self.embedding_size()];
        self.embed_features_into(features, &mut embedding)?;
        Ok(embedding)
    }

    /// As [`Model::embed_features`], into an existing slice of [`Model::embedding_size`] values.
    ///
    /// # Errors
    /// As [`Model::embed_features`].
    ///
    /// # Panics
    /// If `embedding` has another length.
    pub fn embed_features_into(&self, features: &[f32], embedding: &mut [f32]) -> Result<()> {
        self.with_session(|session| self.forward(self.threads, &mut session.workspace, features, embedding))
    }

    /// The embeddings of many utterances, as many at a time as there are threads, each on one: the fastest way through
    /// a list.
    #[cfg(feature = "audio")]
    pub fn embed_batch(&self, utterances: &[&[f32]]) -> Vec<Result<Vec<f32>>> {
        use rayon::prelude::*;
        let embed = |samples: &&[f32]| {
            let mut embedding = vec![0.0; self.embedding_size()];
            self.embed_on(1, samples, &mut embedding)?;
            Ok(embedding)
        };
        match &self.pool {
            Some(pool) => pool.install(|| utterances.par_iter().with_max_len(1).map(embed).collect()),
            None => utterances.iter().map(embed).collect(),
        }
    }

    /// The time that each layer takes of an embedding of `features`, in the order of [`Model::layers`].
    ///
    /// # Errors
    /// As [`Model::embed_features`].
    pub fn profile(&self, features: &[f32]) -> Result<Vec<Duration>> {
        self.check(features)?;
        let mut times = vec![Duration::ZERO; self.layers.len()];
        let mut embedding = vec![0.0; self.embedding_size()];
        let mut run = Execution { arch: self.arch, team: None, times: Some(&mut times) };
        self.with_session(|session| {
            self.network.forward(&mut run, &mut session.workspace, features, &mut embedding);
            Ok(())
        })?;
        Ok(times)
    }

    /// Cosines above it are accepted as the same speaker; `None` where the model was not calibrated.
    pub fn threshold(&self) -> Option<f64> {
        self.threshold.as_ref().map(|threshold| threshold.cosine)
    }

    /// The threshold with what it was found on.
    pub fn calibration(&self) -> Option<&Threshold> {
        self.threshold.as_ref()
    }

    /// The network.
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// The front end's settings.
    pub fn front_end(&self) -> &FrontEnd {
        &self.front_end
    }

    /// Samples per second that [`Model::embed`] wants.
    #[cfg(feature = "audio")]
    pub fn rate(&self) -> u32 {
        self.shortest.1
    }

    /// The fewest samples that [`Model::embed`] takes.
    #[cfg(feature = "audio")]
    pub fn shortest(&self) -> usize {
        self.shortest.0
    }

    /// Values of an embedding.
    pub fn embedding_size(&self) -> usize {
        self.architecture.embedding()
    }

    /// Every layer with weights.
    pub fn layers(&self) -> &[LayerInfo] {
        &self.layers
    }

    /// All weights in the file.
    pub fn weights(&self) -> usize {
        self.layers.iter().map(LayerInfo::weights).sum()
    }

    /// Those of them that are not zero.
    pub fn nonzero(&self) -> usize {
        self.layers.iter().map(|layer| layer.nonzero).sum()
    }

    /// Share of zeros among the weights in the file. A file has no classifier, and rounding may have made zeros of tiny
    /// weights, so this is not the sparsity s(θ) that training controls.
    pub fn zeros_in_file(&self) -> f64 {
        1.0 - self.nonzero() as f64 / self.weights() as f64
    }

    /// Threads in use.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Bytes of weights and, as far as calls have needed them until now, of activations.
    pub fn memory(&self) -> usize {
        self.sessions.bytes() + self.layers.iter().map(|layer| layer.memory).sum::<usize>()
    }

    fn check(&self, features: &[f32]) -> Result<()> {
        let bins = self.architecture.features;
        if features.is_empty() || !features.len().is_multiple_of(bins) {
            return Err(Error::Features { values: features.len(), bins });
        }
        let (frames, fewest) = (features.len() / bins, self.fewest_frames());
        if frames < fewest {
            return Err(Error::TooFewFrames { frames, fewest });
        }
        if features.iter().any(|value| !value.is_finite()) { Err(Error::NotFinite) } else { Ok(()) }
    }

    #[cfg(feature = "audio")]
    fn embed_on(&self, threads: usize, samples: &[f32], embedding: &mut [f32]) -> Result<()> {
        self.with_session(|Session { workspace, extractor }| {
            self.forward(threads, workspace, extractor.features(samples)?, embedding)
        })
    }

    fn forward(
        &self,
        threads: usize,
        workspace: &mut Workspace,
        features: &[f32],
        embedding: &mut [f32],
    ) -> Result<()> {
        assert_eq!(embedding.len(), self.embedding_size(), "length of the embedding");
        self.check(features)?;
        self.execute(threads, |network, run| network.forward(run, workspace, features, embedding));
        Ok(())
    }

    /// Calls `work` with the network and how to execute it on `threads` threads.
    pub(crate) fn execute<T: Send>(
        &self,
        threads: usize,
        work: impl FnOnce(&Network, &mut Execution) -> T + Send,
    ) -> T {
        let work = |team: Option<&Team>| work(&self.network, &mut Execution { arch: self.arch, team, times: None });
        match self.pool.as_ref().filter(|_| threads > 1) {
            Some(pool) => Team::of(pool, |team| work(Some(team))),
            None => work(None),
        }
    }

    /// Calls `work` with memory for one execution.
    #[cfg(feature = "audio")]
    pub(crate) fn with_workspace<T>(&self, work: impl FnOnce(&mut Workspace) -> T) -> Result<T> {
        self.with_session(|session| Ok(work(&mut session.workspace)))
    }

    /// The fewest frames of features that the network takes.
    pub(crate) fn fewest_frames(&self) -> usize {
        self.fewest_frames
    }

    #[cfg(feature = "audio")]
    pub(crate) fn incremental(&self, frames: usize) -> Incremental {
        Incremental::new(&self.network, self.architecture.features, frames)
    }

    fn with_session<T>(&self, work: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
        self.sessions.with(|| Session::new(&self.network, &self.front_end, &self.architecture), work)
    }
}
