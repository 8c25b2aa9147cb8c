//! `bregman verify`: are two recordings of one speaker?

use std::path::{Path, PathBuf};
use std::time::Instant;

use bregman_audio::load_16k;
use bregman_runtime::Model;
use bregman_speaker::score::{cosine, keep_middle};
use bregman_train::DeviceChoice;
use serde::Serialize;

use crate::Outcome;
use crate::device::DeviceArg;
use crate::failure::Failure;
use crate::network::Network;
use crate::output::{Bar, print, print_json};
use crate::threshold::Threshold;

/// Tell whether two recordings are of one speaker.
///
/// The score is the cosine of their embeddings. The threshold is that of the model file, or of the last `bregman
/// evaluate` of the run, where misses and false alarms are equally frequent; another use may want another.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bregman verify enroll.wav test.wav --model model.breg
  bregman verify a.wav b.wav --run runs/first
  bregman verify a.wav b.wav --run runs/first --threshold 0.5 --json")]
pub(crate) struct Args {
    /// One recording
    first: PathBuf,
    /// The other
    second: PathBuf,
    /// Model file, as `bregman export` writes it
    #[arg(long, value_name = "FILE", required_unless_present = "run")]
    model: Option<PathBuf>,
    /// Run or checkpoint of the network
    #[arg(long, conflicts_with = "model")]
    run: Option<PathBuf>,
    /// Accept scores above it [default: the one of the model file, or that `bregman evaluate` found]
    #[arg(long)]
    threshold: Option<f64>,
    /// Use at most the middle so many seconds of a recording
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    max_seconds: f64,
    #[command(flatten)]
    place: DeviceArg,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Verdict {
    same: bool,
    score: f64,
    threshold: f64,
    /// Of a model file: milliseconds to open it, and to embed both recordings.
    #[serde(flatten)]
    times: Option<Times>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Times {
    open_ms: f64,
    embed_ms: f64,
}

pub(crate) fn run(args: Args) -> Outcome {
    let verdict = match (&args.model, &args.run) {
        (Some(model), _) => by_model(model, &args)?,
        (None, Some(run)) => by_run(run, &args)?,
        (None, None) => unreachable!("clap asks for one of them"),
    };
    if args.json {
        return print_json(&verdict);
    }
    let Verdict { same, score, threshold, times } = verdict;
    let times = times.map_or(String::new(), |times| {
        format!(", {:.1} ms to open the model and {:.1} ms to embed", times.open_ms, times.embed_ms)
    });
    print(&format!(
        "{} speaker: score {score:.4}, threshold {threshold:.4}{times}\n",
        if same { "same" } else { "another" }
    ))
}

fn by_run(run: &Path, args: &Args) -> Result<Verdict, Failure> {
    let network = Network::open(run, args.max_seconds, &args.place.find()?)?;
    let threshold = Threshold::choose(args.threshold, network.run(), &network.name())?;
    let embeddings = network.embed_files(&[args.first.clone(), args.second.clone()], &Bar::new("embedding"))?;
    let score = cosine(&embeddings[0].values, &embeddings[1].values);
    Ok(Verdict { same: score > threshold, score, threshold, times: None })
}

fn by_model(path: &Path, args: &Args) -> Result<Verdict, Failure> {
    if let DeviceChoice::Cuda(_) = args.place.device {
        return Err(Failure::mistake(
            "--device: a model file runs on the CPU",
            "leave it out, or pass --run instead of --model",
        ));
    }
    if args.max_seconds.is_nan() || args.max_seconds <= 0.0 {
        return Err(Failure::mistake(
            format!("--max-seconds {}", args.max_seconds),
            "pass a number of seconds above 0",
        ));
    }
    let start = Instant::now();
    let model = Model::open(path).map_err(|error| Failure::from(error).in_file(path))?;
    let open_ms = start.elapsed().as_secs_f64() * 1e3;
    let threshold = args.threshold.or(model.threshold()).ok_or_else(|| {
        let hint = "pass --threshold, or calibrate the model: bregman export RUN -o model.breg --trials T --root DIR";
        Failure::mistake(format!("{}: the model has no threshold", path.display()), hint)
    })?;
    let mut embed_ms = 0.0;
    let mut embed = |path: &Path| -> Result<Vec<f32>, Failure> {
        let hint = "pass a readable audio file with speech in it";
        let mut samples = load_16k(path).map_err(|error| Failure::mistake(error.to_string(), hint))?;
        keep_middle(&mut samples, args.max_seconds);
        let start = Instant::now();
        let embedding =
            model.embed(&samples).map_err(|error| Failure::mistake(format!("{}: {error}", path.display()), hint))?;
        embed_ms += start.elapsed().as_secs_f64() * 1e3;
        Ok(embedding)
    };
    let (first, second) = (embed(&args.first)?, embed(&args.second)?);
    let score = cosine(&first, &second);
    Ok(Verdict { same: score > threshold, score, threshold, times: Some(Times { open_ms, embed_ms }) })
}
