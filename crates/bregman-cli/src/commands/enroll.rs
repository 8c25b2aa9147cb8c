//! `bregman enroll` and `bregman identify`: a file of known speakers, and who of them speaks.

use std::path::PathBuf;

use bregman_base::files::{Lock, beside};
use bregman_base::text::excerpt;

use super::options::{RecordingArgs, ThresholdArg};
use crate::Outcome;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::known::{Known, MOST_LETTERS, Speaker};
use crate::network::ModelArg;
use crate::output::{Bar, print, print_json, table};

/// Add a speaker to a file of enrolled speakers.
///
/// The speaker is the mean of the recordings' embeddings, weighted by duration: several recordings, made on different
/// days, are better than one. A name that is there already is replaced only with --force.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bregman enroll ann ann1.wav ann2.wav --model runs/first --speakers known.json
  bregman identify who.wav --model runs/first --speakers known.json
  bregman enroll ann ann1.wav --model model.breg --speakers known.json")]
pub(crate) struct EnrollArgs {
    /// Name of the speaker
    name: String,
    /// Recordings of the speaker
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    known: KnownArgs,
    /// Replace a speaker of this name
    #[arg(long)]
    force: bool,
}

/// Find out which enrolled speaker a recording is of.
///
/// Prints the best matches; the best one is the answer if its cosine is above the threshold (that of the model file, or
/// of the last `bregman evaluate` of the run, unless given), otherwise the speaker is unknown.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bregman identify who.wav --model runs/first --speakers known.json
  bregman identify who.wav --model runs/first --speakers known.json --threshold 0.5 --top 3 --json

Exit code: 0 for a known speaker, 3 for an unknown one.")]
pub(crate) struct IdentifyArgs {
    /// The recording
    file: PathBuf,
    #[command(flatten)]
    known: KnownArgs,
    #[command(flatten)]
    threshold: ThresholdArg,
    /// Number of best matches to show
    #[arg(long, value_name = "N", default_value_t = 5)]
    top: usize,
}

#[derive(Debug, clap::Args)]
struct KnownArgs {
    #[command(flatten)]
    network: ModelArg,
    /// File of known speakers
    #[arg(long, value_name = "FILE")]
    speakers: PathBuf,
    #[command(flatten)]
    recordings: RecordingArgs,
}

/// A name is printed, by others too: what it says must be what is seen.
fn check_name(name: &str) -> Outcome {
    if name.trim().is_empty() || excerpt(name, MOST_LETTERS) != name {
        let hint = format!("pass 1 to {MOST_LETTERS} characters without line breaks or control characters");
        return Err(Failure::mistake(format!("name '{}'", excerpt(name, MOST_LETTERS)), hint));
    }
    Ok(())
}

pub(crate) fn enroll(args: EnrollArgs) -> Outcome {
    check_name(&args.name)?;
    let KnownArgs { network, speakers: path, recordings } = args.known;
    let network = recordings.open(&network)?;
    let known = || Known::read_or_new(&path, &network.name(), network.dim);
    known()?.check_free(&args.name, &path, args.force)?; // before the long work
    let utterances = network.embed_files(&args.files, &Bar::new("embedding"))?;
    let seconds = utterances.iter().map(|utterance| utterance.seconds).sum();
    let speaker = Speaker { recordings: utterances.len(), seconds, embedding: network.average(&utterances)? };
    // others may have added speakers meanwhile, and must not between reading and writing
    let _lock = Lock::wait(&beside(&path, ".lock"))?;
    let mut known = known()?;
    known.check_free(&args.name, &path, args.force)?;
    let count = known.insert(&args.name, speaker);
    known.write(&path)?;
    if recordings.json {
        return print_json(&serde_json::json!({
            "name": args.name, "recordings": utterances.len(), "seconds": seconds, "known": count
        }));
    }
    print(&format!(
        "{}: {} recordings, {seconds:.1} s; {} knows {count} speakers\n",
        args.name,
        utterances.len(),
        path.display()
    ))
}

pub(crate) fn identify(args: IdentifyArgs) -> Result<Exit, Failure> {
    let KnownArgs { network, speakers: path, recordings } = args.known;
    let network = recordings.open(&network)?;
    let known = Known::read(&path, &network.name(), network.dim)?;
    let threshold = args.threshold.of(&network)?;
    let utterance = &network.embed_files(&[args.file], &Bar::new("embedding"))?[0];
    let mut matches = known.matches(&utterance.values);
    let speaker = matches.first().filter(|best| best.score > threshold).map(|best| best.name);
    let exit = if speaker.is_some() { Exit::Done } else { Exit::No };
    matches.truncate(args.top);
    if recordings.json {
        print_json(&serde_json::json!({ "speaker": speaker, "threshold": threshold, "matches": matches }))?;
        return Ok(exit);
    }
    let rows: Vec<Vec<String>> =
        matches.iter().map(|found| vec![found.name.to_owned(), format!("{:.4}", found.score)]).collect();
    let answer = speaker.map_or("unknown: nobody is above the threshold".into(), |name| excerpt(name, MOST_LETTERS));
    print(&format!("{answer}\n\n{}\nthreshold {threshold:.4}\n", table(&["speaker", "score"], &rows)))?;
    Ok(exit)
}
