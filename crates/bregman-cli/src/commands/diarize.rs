//! `bregman diarize`: who spoke when.

use std::path::{Path, PathBuf};
use std::time::Instant;

use bregman_audio::{RATE, load_16k};
use bregman_speaker::diarize::{Diarization, DiarizationErrors, DiarizeConfig, Rttm, Turn, diarize, speakers_of};
use serde::Serialize;

use super::options::WorkArgs;
use crate::Outcome;
use crate::device::DeviceArg;
use crate::failure::Failure;
use crate::network::{ModelArg, SpeakerModel};
use crate::output::{Bar, print, print_json, refuse_existing, say, table};
use crate::plot::{self, FigureFormat};

/// Find out who spoke when in a recording.
///
/// Speech is found by its level, embedded in windows, and the windows are clustered: groups with a mean cosine above a
/// threshold are one speaker. The threshold follows from how alike neighbouring windows are, unless it or the number of
/// speakers is given. Prints RTTM, one line per turn; speakers are named speaker1, speaker2, … by their first turns.
/// Two who talk at the same time are taken for one. With --reference, the diarization error rate goes to standard
/// error.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bregman diarize meeting.wav --model model.breg
  bregman diarize meeting.wav --model model.breg --speakers 3 -o meeting.rttm --plot meeting.svg
  bregman diarize meeting.wav --model model.breg --reference truth.rttm --collar 0.25 --json")]
pub(crate) struct Args {
    /// The recording
    file: PathBuf,
    #[command(flatten)]
    network: ModelArg,
    /// Number of speakers [default: estimated]
    #[arg(long, value_name = "N", conflicts_with = "threshold")]
    speakers: Option<usize>,
    /// Groups of windows with a mean cosine above it are one speaker [default: found]
    #[arg(long, value_name = "COSINE", allow_negative_numbers = true)]
    threshold: Option<f64>,
    /// Seconds of speech in one embedding
    #[arg(long, value_name = "SECONDS", default_value_t = DiarizeConfig::default().window)]
    window: f64,
    /// Seconds from one window to the next
    #[arg(long, value_name = "SECONDS", default_value_t = DiarizeConfig::default().hop)]
    hop: f64,
    /// RTTM file to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Picture of the turns to write: .svg, .png or .pdf
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// RTTM file with the true turns: print the diarization error rate
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
    /// Seconds on both sides of a true boundary that do not count as errors
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, requires = "reference")]
    collar: f64,
    /// Replace existing files
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    place: DeviceArg,
    #[command(flatten)]
    work: WorkArgs,
}

#[derive(Debug, Serialize)]
struct Summary<'a> {
    recording: &'a str,
    seconds: f64,
    speech_seconds: f64,
    speakers: Vec<Share<'a>>,
    turns: &'a [Turn],
    windows: usize,
    threshold: Option<f64>,
    /// Time taken over the length of the recording.
    real_time_factor: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Errors>,
}

#[derive(Debug, Serialize)]
struct Share<'a> {
    name: &'a str,
    seconds: f64,
    turns: usize,
}

#[derive(Debug, Serialize)]
struct Errors {
    der: f64,
    collar: f64,
    #[serde(flatten)]
    seconds: DiarizationErrors,
}

pub(crate) fn run(args: Args) -> Outcome {
    let config =
        DiarizeConfig { window: args.window, hop: args.hop, speakers: args.speakers, threshold: args.threshold };
    config.check()?;
    args.work.use_threads()?;
    if !(0.0..=60.0).contains(&args.collar) {
        return Err(Failure::mistake(format!("--collar {}", args.collar), "pass 0 to 60 seconds; NIST uses 0.25"));
    }
    for path in [&args.out, &args.plot].into_iter().flatten() {
        refuse_existing(path, args.force)?;
    }
    let format = args.plot.as_deref().map(FigureFormat::of).transpose()?;
    let recording = recording_name(&args.file);
    let reference = args.reference.as_deref().map(|path| reference(path, &recording)).transpose()?;
    let network = SpeakerModel::open(&args.network.model, args.window, args.place)?;
    let samples =
        load_16k(&args.file).map_err(|error| Failure::mistake(error.to_string(), "pass a readable audio file"))?;

    let start = Instant::now();
    let bar = Bar::new("embedding");
    let found = diarize(&samples, &config, || network.load(), &bar)
        .map_err(|error| Failure::from(error).in_file(&args.file))?;
    drop(bar);
    let seconds = samples.len() as f64 / f64::from(RATE);
    let real_time_factor = start.elapsed().as_secs_f64() / seconds;

    let errors = reference.as_deref().map(|truth| {
        let seconds = DiarizationErrors::between(truth, &found.turns, args.collar);
        Errors { der: seconds.rate(), collar: args.collar, seconds }
    });
    if let (Some(path), Some(format)) = (&args.plot, format) {
        plot::write(&plot::turns(&found.turns, reference.as_deref(), seconds), format, WIDTH, path)?;
    }
    let rttm = Rttm { recordings: vec![(recording.clone(), found.turns.clone())] }.text();
    if let Some(path) = &args.out {
        bregman_base::files::write_file(path, &rttm)?;
    }
    let Diarization { turns, windows, threshold } = &found;
    let speakers = shares(turns);
    let speech_seconds = turns.iter().map(Turn::seconds).sum();
    if !args.work.json {
        if let Some(errors) = &errors {
            say(&errors.text());
        }
        return match &args.out {
            None => print(&rttm),
            Some(path) => print(&format!(
                "{}\n{}",
                written(path, &speakers, *threshold, seconds, real_time_factor),
                rows(&speakers)
            )),
        };
    }
    print_json(&Summary {
        recording: &recording,
        seconds,
        speech_seconds,
        speakers,
        turns,
        windows: *windows,
        threshold: *threshold,
        real_time_factor,
        errors,
    })
}

/// Width of the picture, in points: a page.
const WIDTH: f64 = 510.0;

/// What RTTM calls a recording: its file's name without the ending.
fn recording_name(path: &Path) -> String {
    path.file_stem().map_or_else(|| "recording".to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// The true turns.
fn reference(path: &Path, recording: &str) -> Result<Vec<Turn>, Failure> {
    let rttm = Rttm::read(path)?;
    rttm.of(recording).map(<[Turn]>::to_vec).ok_or_else(|| {
        let names: Vec<&str> = rttm.recordings.iter().take(3).map(|(name, _)| &**name).collect();
        let message = format!("{}: no turns of '{recording}' in it, but of {}, …", path.display(), names.join(", "));
        Failure::mistake(message, "name the recording as the reference does")
    })
}

fn shares(turns: &[Turn]) -> Vec<Share<'_>> {
    let share = |name| {
        let own = || turns.iter().filter(move |turn| turn.speaker == name);
        Share { name, seconds: own().map(Turn::seconds).sum(), turns: own().count() }
    };
    let mut shares: Vec<Share> = speakers_of(turns).into_iter().map(share).collect();
    shares.sort_by_key(|share| turns.iter().position(|turn| turn.speaker == share.name));
    shares
}

fn written(path: &Path, speakers: &[Share], threshold: Option<f64>, seconds: f64, factor: f64) -> String {
    let turns: usize = speakers.iter().map(|share| share.turns).sum();
    let threshold = threshold.map_or(String::new(), |cosine| format!(", threshold {cosine:.3}"));
    format!(
        "{}: {} speakers, {turns} turns in {seconds:.1} s{threshold}; {factor:.4} × real time\n",
        path.display(),
        speakers.len()
    )
}

fn rows(speakers: &[Share]) -> String {
    let row = |share: &Share| vec![share.name.to_owned(), format!("{:.1}", share.seconds), share.turns.to_string()];
    table(&["speaker", "seconds", "turns"], &speakers.iter().map(row).collect::<Vec<_>>())
}

impl Errors {
    fn text(&self) -> String {
        let DiarizationErrors { speech, missed, false_alarm, confusion } = self.seconds;
        let share = |seconds: f64| if speech > 0.0 { 100.0 * seconds / speech } else { 0.0 };
        format!(
            "DER {:.2} %: missed {:.2}, false alarm {:.2}, confusion {:.2} % of {speech:.1} s of speech, collar {} s",
            100.0 * self.der,
            share(missed),
            share(false_alarm),
            share(confusion),
            self.collar
        )
    }
}
