//! `bregman synth`: a corpus of synthetic voices.

use std::path::PathBuf;

use bregman_speaker::{CorpusSummary, SynthConfig, SynthCorpus};
use serde::Serialize;

use super::options::WriteArgs;
use crate::Outcome;
use crate::output::{Bar, print, print_json, summary};

/// Generate a corpus of synthetic voices.
///
/// Source-filter voices speak random syllables in sessions with their own room, channel and noise. The last speakers
/// are held out for testing, with trial lists. The same seed gives the same corpus.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Writes SPEAKER/SESSION-NUMBER.wav, train.csv, and for the held-out speakers test.csv, trials.txt, enroll.map, \
trials_multi.txt.

Examples:
  bregman synth --out voices
  bregman synth --speakers 200 --utterances 20 --held-out 40 --seed 7 --out voices")]
pub(crate) struct Args {
    /// Number of speakers, those held out included
    #[arg(long, default_value_t = SynthConfig::default().speakers)]
    speakers: usize,
    /// Utterances per speaker
    #[arg(long, default_value_t = SynthConfig::default().utterances)]
    utterances: usize,
    /// Utterances per recording session
    #[arg(long, default_value_t = SynthConfig::default().per_session)]
    per_session: usize,
    /// Speakers kept for testing [default: a fifth]
    #[arg(long)]
    held_out: Option<usize>,
    /// Shortest and longest utterance in seconds
    #[arg(long, num_args = 2, value_names = ["MIN", "MAX"], default_values_t = SynthConfig::default().seconds)]
    seconds: Vec<f64>,
    /// Size of the vocabulary; 0 for any syllables
    #[arg(long, value_name = "N", default_value_t = SynthConfig::default().syllables)]
    syllables: usize,
    /// How much rooms, channels, noise and moods differ between sessions: 0 (a studio) to 1 (hard)
    #[arg(long, value_name = "SHARE", default_value_t = SynthConfig::default().distortion)]
    distortion: f64,
    /// Seed of all randomness
    #[arg(long, default_value_t = SynthConfig::default().seed)]
    seed: u64,
    /// Folder to write
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    write: WriteArgs,
}

#[derive(Serialize)]
struct Made {
    out: PathBuf,
    train: CorpusSummary,
    test: CorpusSummary,
}

pub(crate) fn run(args: Args) -> Outcome {
    args.write.work.use_threads()?;
    let corpus = SynthCorpus::new(SynthConfig {
        speakers: args.speakers,
        utterances: args.utterances,
        per_session: args.per_session,
        held_out: args.held_out.unwrap_or(args.speakers / 5),
        seconds: [args.seconds[0], args.seconds[1]],
        syllables: args.syllables,
        distortion: args.distortion,
        seed: args.seed,
    })?;
    let bar = Bar::new("speaking");
    let (train, test) = corpus.write(&args.out, args.write.force, &bar)?;
    drop(bar);
    let made = Made { out: args.out, train: CorpusSummary::of(&train), test: CorpusSummary::of(&test) };
    if args.write.work.json {
        return print_json(&made);
    }
    let held_out = format!("{} speakers, {} utterances held out for testing", made.test.speakers, made.test.utterances);
    print(&format!("{}\n{held_out}\n\nwrote {}\n", summary(&made.train), made.out.join("train.csv").display()))
}
