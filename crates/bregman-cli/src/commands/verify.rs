//! `bregman verify`: are two recordings of one speaker?

use std::path::PathBuf;

use bregman_speaker::score::cosine;
use serde::Serialize;

use crate::Outcome;
use crate::network::Network;
use crate::output::{Bar, print, print_json};
use crate::threshold::Threshold;

/// Tell whether two recordings are of one speaker.
///
/// The score is the cosine of their embeddings. The threshold is that of the last `bregman evaluate` of the run, where misses and false
/// alarms are equally frequent; another use may want another.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bregman verify a.wav b.wav --run runs/first
  bregman verify a.wav b.wav --run runs/first --threshold 0.5 --json")]
pub(crate) struct Args {
    /// One recording
    first: PathBuf,
    /// The other
    second: PathBuf,
    /// Run or checkpoint of the network
    #[arg(long)]
    run: PathBuf,
    /// Accept scores above it [default: the one `bregman evaluate` found]
    #[arg(long)]
    threshold: Option<f64>,
    /// Use at most the first so many seconds of a recording
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    max_seconds: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Verdict {
    same: bool,
    score: f64,
    threshold: f64,
}

pub(crate) fn run(args: Args) -> Outcome {
    let network = Network::open(&args.run, args.max_seconds)?;
    let threshold = Threshold::choose(args.threshold, network.run(), &network.name())?;
    let embeddings = network.embed_files(&[args.first, args.second], &Bar::new("embedding"))?;
    let score = cosine(&embeddings[0].values, &embeddings[1].values);
    let verdict = Verdict { same: score > threshold, score, threshold };
    if args.json {
        return print_json(&verdict);
    }
    print(&format!("{} speaker: score {score:.4}, threshold {threshold:.4}\n", if verdict.same { "same" } else { "another" }))
}
