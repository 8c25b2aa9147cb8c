//! Shards: a corpus of a million files as some hundred tar files (the WebDataset and WeSpeaker convention).
//!
//! Each utterance is two members, `KEY.spk` with the speaker's name and `KEY.EXT` with the audio, in an order shuffled
//! by the seed, so that sequential reading already mixes speakers. `index.csv` holds the offset of every audio member,
//! for random access and a globally shuffled epoch; without it (shards written by other tools) the tar headers are
//! scanned once.

mod index;
mod read;
mod tar;
#[cfg(test)]
mod tests;
mod write;

pub use read::ShardCorpus;
pub use write::{ShardConfig, ShardFormat, Sharded, shard};
