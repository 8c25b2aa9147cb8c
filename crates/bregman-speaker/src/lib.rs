//! Speaker-verification corpora, from audio on disk to batches of features, and from embeddings to error rates.
//!
//! ```text
//! folder on disk ─▶ corpus ─▶ prepare ─▶ manifest ─▶ source ─▶ loader ─▶ batches
//!                              synth ───────┘        ▲  │
//!                                                    │  └▶ score ─▶ EER, minDCF
//!                                        shard (tar) ┘
//! ```
//!
//! | folder | what is inside |
//! | --- | --- |
//! | `corpus/` | layouts of VoxCeleb, CN-Celeb, Kaldi, CSV and plain folders: which utterances are there |
//! | `prepare/` | durations measured, unreadable files listed, the manifest and its summary written |
//! | `manifest/` | lists that name utterances: manifests, class labels, validation split, trials and enrollment maps |
//! | `source/` | audio by utterance number, from files or memory; subsets |
//! | `shard/` | a corpus packed into tar files, and audio read from them |
//! | `synth/` | synthetic voices, for the demo and the tests |
//! | `loader/` | cuts, their features, the order of an epoch, batches from worker threads, the feature cache |
//! | `diarize/` | who spoke when: windows, clustering, RTTM, the diarization error rate |
//! | `score/` | embeddings, cosine and AS-norm scores, DET curve, EER, minDCF, confidence intervals |
//!
//! ```
//! use std::sync::Arc;
//! use bregman_speaker::{BatchPosition, CutConfig, Cuts, Loader, LoaderConfig, SynthConfig, SynthCorpus};
//!
//! // `open_corpus` opens a manifest or a folder of shards; this corpus consists of synthetic voices in memory.
//! let config = SynthConfig { speakers: 4, utterances: 4, held_out: 1, ..SynthConfig::default() };
//! let (train, _test) = SynthCorpus::new(config)?.in_memory();
//! let speakers = bregman_speaker::AudioSource::manifest(&train).speakers();
//! let cuts = Cuts::new(Arc::new(train), &speakers, CutConfig::default())?;
//! let loader = Loader::new(Arc::new(cuts), LoaderConfig { batch: 4, workers: 2, ..LoaderConfig::default() })?;
//! for batch in loader.batches(BatchPosition::default())?.take(3) {
//!     let batch = batch?;
//!     assert_eq!(batch.shape, [4, 301, 80]);
//!     // … a training step; save `batch.next` to resume exactly here.
//! }
//! # Ok::<(), bregman_speaker::Error>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod corpus;
pub mod diarize;
mod error;
mod files;
mod loader;
mod manifest;
mod prepare;
mod progress;
pub mod score;
mod shard;
mod source;
mod synth;

pub use bregman_base::Rng;
pub use bregman_base::hash::content_hash;
pub use corpus::{Corpus, CorpusPart};
pub use error::{Error, Result};
pub use loader::{
    Batch, BatchPosition, Batches, CutConfig, CutReader, CutSource, Cuts, Extractor, FeatureCache, Loader,
    LoaderConfig, Order, Skipped, Waveforms,
};
pub use manifest::names::{AUDIO_EXTENSIONS, NameIndex};
pub use manifest::split::split;
pub use manifest::trials::{Enrollments, ResolvedTrials, Trial, Trials};
pub use manifest::{Manifest, Speakers, Utterance};
pub use prepare::summary::{CorpusSummary, LengthClass};
pub use prepare::{PrepareConfig, Prepared, Unreadable, prepare};
pub use progress::Progress;
pub use shard::{ShardConfig, ShardCorpus, ShardFormat, Sharded, shard};
pub use source::degraded::{Degradation, DegradedAudio};
pub use source::listed::ListedAudio;
pub use source::subset::Subset;
pub use source::{AudioSource, FileCorpus, MemoryCorpus, open_corpus};
pub use synth::{SynthConfig, SynthCorpus};
