//! Shards: a corpus of a million files as some hundred tar files (the WebDataset and WeSpeaker convention).
//!
//! Each utterance is two members, `KEY.spk` with the speaker's name and `KEY.EXT` with the audio, in an order shuffled
//! by the seed, so that reading front to back already mixes speakers. `index.csv` tells where every audio member lies,
//! which gives random access and a globally shuffled epoch as well; without it (shards from elsewhere) the tar headers
//! are walked once.

mod index;
mod read;
mod tar;
mod write;

pub use read::ShardCorpus;
pub use write::{ShardConfig, ShardFormat, Sharded, shard};
