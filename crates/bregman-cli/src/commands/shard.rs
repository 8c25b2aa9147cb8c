//! `bregman shard`: a manifest's audio in tar shards.

use std::path::PathBuf;

use bregman_speaker::{FileCorpus, Manifest, ShardConfig, ShardFormat, shard};
use clap::ValueEnum;

use super::options::WorkArgs;
use crate::Outcome;
use crate::output::{Bar, print, print_json, unreadable};

/// Pack a corpus into tar shards.
///
/// A million small files become some hundred large ones (WebDataset / WeSpeaker: KEY.spk and KEY.wav members), with an
/// index for random access. Training reads the folder in place of a manifest. A run that was killed keeps its complete
/// shards.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bregman shard vox2.csv --out vox2-shards
  bregman shard vox2.csv --out vox2-shards --audio original --per-shard 8192")]
pub(crate) struct Args {
    /// Manifest of the corpus
    manifest: PathBuf,
    /// Folder for the shards
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Decoded 16 kHz 16-bit samples (fast to read), or the bytes of each file (small)
    #[arg(long, value_enum, default_value = "pcm")]
    audio: Kept,
    /// Utterances per shard
    #[arg(long, value_name = "N", default_value_t = 4096)]
    per_shard: usize,
    /// Order of the utterances
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Stop at the first unreadable file
    #[arg(long)]
    strict: bool,
    /// Replace existing shards
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    work: WorkArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kept {
    Pcm,
    Original,
}

pub(crate) fn run(args: Args) -> Outcome {
    args.work.use_threads()?;
    let manifest = Manifest::read(&args.manifest, None)?;
    let config = ShardConfig {
        out: args.out,
        per_shard: args.per_shard,
        format: match args.audio {
            Kept::Pcm => ShardFormat::Pcm,
            Kept::Original => ShardFormat::Original,
        },
        seed: args.seed,
        strict: args.strict,
        force: args.force,
    };
    let bar = Bar::new("packing");
    let made = shard(&FileCorpus(manifest), &config, &bar)?;
    drop(bar);
    if args.work.json {
        return print_json(&made);
    }
    let mut text = format!(
        "shards      {}\nutterances  {}\nsize        {:.1} MB\n{}",
        made.shards,
        made.utterances,
        made.bytes as f64 / 1e6,
        unreadable(&made.unreadable)
    );
    if made.resumed > 0 {
        text += &format!("\n{} shards kept from a run that was stopped\n", made.resumed);
    }
    print(&format!("{text}\nwrote {}\n", config.out.display()))
}
