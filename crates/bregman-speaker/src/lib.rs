//! Speaker-verification corpora, from whatever is on disk to batches of features.
//!
//! ```text
//! tree on disk ─▶ corpus ─▶ prepare ─▶ manifest ─┬─────────────▶ audio source ─▶ cuts ─▶ loader ─▶ batches
//!                                     synthetic ─┤                    ▲            │        ▲
//!                                                └─▶ shards (tar) ────┘            └▶ cache ┘
//! ```
//!
//! ```
//! use std::sync::Arc;
//! use bregman_speaker::{CutConfig, Cuts, Loader, LoaderConfig, Position, SynthConfig, SynthCorpus};
//!
//! // Any corpus will do: `open_corpus` takes a manifest or a folder of shards; this one is made of synthetic voices in memory.
//! let config = SynthConfig { speakers: 4, utterances: 4, held_out: 1, ..SynthConfig::default() };
//! let (train, _test) = SynthCorpus::new(config)?.in_memory();
//! let speakers = bregman_speaker::AudioSource::manifest(&train).speakers();
//! let cuts = Cuts::new(Arc::new(train), &speakers, CutConfig::default())?;
//! let loader = Loader::new(Arc::new(cuts), LoaderConfig { batch: 4, workers: 2, ..LoaderConfig::default() })?;
//! for batch in loader.batches(Position::default())?.take(3) {
//!     let batch = batch?;
//!     assert_eq!(batch.shape, [4, 301, 80]);
//!     // … a training step; `batch.next` is what to save to resume exactly here.
//! }
//! # Ok::<(), bregman_speaker::Error>(())
//! ```
#![forbid(unsafe_code)]

mod corpus;
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
pub use corpus::{Corpus, Part};
pub use error::{Error, Result};
pub use loader::{
    Batch, Batches, CutConfig, CutReader, CutSource, Cuts, FeatureCache, Loader, LoaderConfig, Order, Position,
    Skipped, Waveforms,
};
pub use manifest::names::{AUDIO_EXTENSIONS, NameIndex};
pub use manifest::{Manifest, Speakers, Utterance};
pub use prepare::split::split;
pub use prepare::summary::{LengthClass, Summary};
pub use prepare::{PrepareConfig, Prepared, Unreadable, prepare};
pub use progress::Progress;
pub use score::trials::{Enrollments, ResolvedTrials, Trial, Trials};
pub use shard::{ShardConfig, ShardCorpus, ShardFormat, Sharded, shard};
pub use source::extract::Extractor;
pub use source::subset::Subset;
pub use source::{AudioSource, FileCorpus, MemoryCorpus, open_corpus};
pub use synth::{SynthConfig, SynthCorpus};
