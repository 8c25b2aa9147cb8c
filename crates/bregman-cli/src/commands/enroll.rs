//! `bregman enroll` and `bregman identify`: a file of known speakers, and who of them speaks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bregman_base::files::{Lock, beside, read_text, write_file};
use bregman_base::text::excerpt;
use bregman_speaker::score::cosine;
use serde::{Deserialize, Serialize};

use super::options::{RecordingArgs, ThresholdArg};
use crate::Outcome;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::network::{ModelArg, SpeakerModel};
use crate::output::{Bar, print, print_json, table};

/// The largest file of speakers that is read: four kilobytes for each of 250 000.
const MOST_BYTES: u64 = 1 << 30;

/// Letters of a speaker's name.
const MOST_LETTERS: usize = 100;

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

/// The format in which the file of known speakers is written, and the newest that is read. Files without a number are
/// older and mean the same.
const FORMAT: u32 = 1;

/// The file of known speakers.
#[derive(Debug, Serialize, Deserialize)]
struct Known {
    #[serde(default)]
    format: u32,
    /// Embeddings of one network only can be compared.
    network: String,
    speakers: BTreeMap<String, Speaker>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Speaker {
    recordings: usize,
    seconds: f32,
    embedding: Vec<f32>,
}

/// What of a file tells which program can read it.
#[derive(Debug, Deserialize)]
struct Numbered {
    #[serde(default)]
    format: u32,
}

impl Known {
    /// The speakers in the file `path`; none if there is no such file yet.
    fn read_or_new(path: &Path, network: &SpeakerModel) -> Result<Self, Failure> {
        if path.exists() {
            return Self::read(path, network);
        }
        Ok(Self { format: FORMAT, network: network.name(), speakers: BTreeMap::new() })
    }

    /// Refuses a name that is taken.
    fn check_free(&self, name: &str, path: &Path, force: bool) -> Outcome {
        if force || !self.speakers.contains_key(name) {
            return Ok(());
        }
        let message = format!("{}: '{name}' is enrolled already", path.display());
        Err(Failure::mistake(message, "choose another name, or pass --force to replace the speaker"))
    }

    fn read(path: &Path, network: &SpeakerModel) -> Result<Self, Failure> {
        let text = read_text(path, MOST_BYTES)
            .map_err(|error| Failure::mistake(error.to_string(), "make it with `bregman enroll`"))?;
        let wrong = |error: serde_json::Error| {
            Failure::mistake(
                format!("{}: {error}", path.display()),
                "expected a file of speakers made by `bregman enroll`",
            )
        };
        let Numbered { format } = serde_json::from_str(&text).map_err(wrong)?;
        if format > FORMAT {
            let message = format!("{}: written in format {format}, this program reads {FORMAT}", path.display());
            return Err(Failure::mistake(message, "it is of a newer bregman: use that one, or update this one"));
        }
        let known = Self { format: FORMAT, ..serde_json::from_str(&text).map_err(wrong)? };
        if known.network != network.name() {
            let message =
                format!("{}: its speakers were enrolled with another network or other settings", path.display());
            return Err(Failure::mistake(
                message,
                "enroll them again with this model, or pass the model they were enrolled with",
            ));
        }
        Ok(known)
    }

    fn write(&self, path: &Path) -> Result<(), Failure> {
        let text =
            serde_json::to_string(self).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
        Ok(write_file(path, text)?)
    }
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
    Known::read_or_new(&path, &network)?.check_free(&args.name, &path, args.force)?; // before the long work
    let utterances = network.embed_files(&args.files, &Bar::new("embedding"))?;
    let seconds = utterances.iter().map(|utterance| utterance.seconds).sum();
    let speaker = Speaker { recordings: utterances.len(), seconds, embedding: network.average(&utterances)? };
    // others may have added speakers meanwhile, and must not between reading and writing
    let _lock = Lock::wait(&beside(&path, ".lock"))?;
    let mut known = Known::read_or_new(&path, &network)?;
    known.check_free(&args.name, &path, args.force)?;
    known.speakers.insert(args.name.clone(), speaker);
    known.write(&path)?;
    let count = known.speakers.len();
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

#[derive(Debug, Serialize)]
struct Match<'a> {
    name: &'a str,
    score: f64,
}

pub(crate) fn identify(args: IdentifyArgs) -> Result<Exit, Failure> {
    let KnownArgs { network, speakers: path, recordings } = args.known;
    let network = recordings.open(&network)?;
    let known = Known::read(&path, &network)?;
    let threshold = args.threshold.of(&network)?;
    let utterance = &network.embed_files(&[args.file], &Bar::new("embedding"))?[0];
    let mut matches: Vec<Match> = known
        .speakers
        .iter()
        .map(|(name, speaker)| Match { name, score: cosine(&utterance.values, &speaker.embedding) })
        .collect();
    matches.sort_by(|a, b| b.score.total_cmp(&a.score));
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
