//! `bregman verify`: are two recordings of one speaker?

use std::path::PathBuf;

use bregman_speaker::score::cosine;
use serde::Serialize;

use super::options::{RecordingArgs, ThresholdArg};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::network::{FileTimes, ModelArg};
use crate::output::{Bar, print, print_json};

/// Decide whether two recordings are of the same speaker.
///
/// The score is the cosine of their embeddings. The threshold is that of the model file, or of the last `bregman
/// evaluate` of the run, where misses and false alarms are equally frequent; another use may want another.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bregman verify enroll.wav test.wav --model model.breg
  bregman verify a.wav b.wav --model runs/first
  bregman verify a.wav b.wav --model runs/first --threshold 0.5 --json

Exit code: 0 for the same speaker, 3 for another one.")]
pub(crate) struct Args {
    /// One recording
    first: PathBuf,
    /// The other
    second: PathBuf,
    #[command(flatten)]
    network: ModelArg,
    #[command(flatten)]
    threshold: ThresholdArg,
    #[command(flatten)]
    recordings: RecordingArgs,
}

#[derive(Debug, Serialize)]
struct Verdict {
    same: bool,
    score: f64,
    threshold: f64,
    /// Of a model file.
    #[serde(flatten)]
    times: Option<FileTimes>,
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    let network = args.recordings.open(&args.network)?;
    let threshold = args.threshold.of(&network)?;
    let embeddings = network.embed_files(&[args.first, args.second], &Bar::new("embedding"))?;
    let score = cosine(&embeddings[0].values, &embeddings[1].values);
    let verdict = Verdict { same: score > threshold, score, threshold, times: network.file_times() };
    let answer = if verdict.same { Exit::Done } else { Exit::No };
    if args.recordings.json {
        return print_json(&verdict).map(|()| answer);
    }
    let Verdict { same, score, threshold, times } = verdict;
    let times = times.map_or(String::new(), |times| {
        format!(", {:.1} ms to open the model and {:.1} ms to embed", times.open_ms, times.embed_ms)
    });
    print(&format!(
        "{} speaker: score {score:.4}, threshold {threshold:.4}{times}\n",
        if same { "same" } else { "another" }
    ))
    .map(|()| answer)
}
