//! Speaker-verification corpora, from whatever is on disk to batches of features.
//!
//! ```text
//! tree on disk ─▶ corpus ─▶ prepare ─▶ manifest ─┬─────────────▶ audio source ─▶ cuts ─▶ loader ─▶ batches
//!                                     synthetic ─┤                    ▲            │        ▲
//!                                                └─▶ shards (tar) ────┘            └▶ cache ┘
//! ```
#![deny(unsafe_code)] // one exception, with its reason: `mmap`

mod corpus;
mod error;
mod files;
mod journal;
mod loader;
mod manifest;
mod mmap;
mod names;
mod prepare;
mod progress;
mod rng;
mod shard;
mod source;
mod split;
mod summary;
mod synth;
mod trials;

pub use corpus::{Corpus, Part};
pub use error::{Error, Result};
pub use loader::{Batch, Batches, CutConfig, CutReader, CutSource, Cuts, FeatureCache, Loader, LoaderConfig, Order, Position, Skipped};
pub use manifest::{Manifest, Speakers, Utterance};
pub use names::{AUDIO_EXTENSIONS, NameIndex};
pub use prepare::{PrepareConfig, Prepared, Unreadable, prepare};
pub use progress::Progress;
pub use rng::Rng;
pub use shard::{ShardConfig, ShardCorpus, ShardFormat, Sharded, shard};
pub use source::{AudioSource, FileCorpus, MemoryCorpus};
pub use split::split;
pub use summary::{LengthClass, Summary};
pub use synth::{SynthConfig, SynthCorpus};
pub use trials::{Enrollments, ResolvedTrials, Trial, Trials};
