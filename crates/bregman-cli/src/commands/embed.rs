//! `bregman embed`: utterances as vectors.

use std::fmt::Write as _;
use std::path::PathBuf;

use bregman_runtime::WindowEmbedding;
use bregman_speaker::score::{Embedding, EmbeddingStore, SpeechOnly, embed_utterances};
use bregman_speaker::{FileCorpus, Manifest, Unreadable, open_corpus};
use bregman_train::Ranks;
use serde::Serialize;

use super::embed_windows::{self, WindowArgs};
use super::options::WorkArgs;
use crate::Outcome;
use crate::device::DeviceArg;
use crate::failure::Failure;
use crate::network::SpeakerModel;
use crate::output::{Bar, print, refuse_existing, say, unreadable};
use crate::ranks;

/// Compute the embeddings of audio files or of a corpus.
///
/// Prints CSV: the utterance, its seconds, then the values as the network gave them (not normalised). Files that cannot
/// be read or have no speech in them are listed and left out; utterances of a corpus without speech are embedded and
/// counted.
///
/// With --window, a line for every window of a file: the file, where the window begins and ends in seconds, the values.
/// What windows share is computed once, so the network sees the sound around a window too, and features are normalised
/// over the 3 seconds before each frame; for a window by itself, cut it out and embed it as a file.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bregman embed runs/first a.wav b.flac
  bregman embed model.breg a.wav --json
  bregman embed runs/first --manifest voices/test.csv --out embeddings.csv
  bregman embed model.breg meeting.wav --window 1.5 --hop 0.5")]
pub(crate) struct Args {
    /// Run (its best checkpoint, or else its last), checkpoint, or model file (.breg)
    model: PathBuf,
    /// Audio files
    #[arg(required_unless_present = "manifest")]
    files: Vec<PathBuf>,
    /// Manifest or shards of a corpus
    #[arg(long, conflicts_with = "files")]
    manifest: Option<PathBuf>,
    /// File to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// Use at most this many seconds from the middle of an utterance
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    max_seconds: f64,
    #[command(flatten)]
    windows: WindowArgs,
    #[command(flatten)]
    place: DeviceArg,
    #[command(flatten)]
    work: WorkArgs,
}

#[derive(Debug, Serialize)]
struct EmbeddingRow<'a> {
    utterance: &'a str,
    #[serde(flatten)]
    place: Span,
    embedding: &'a [f32],
}

/// What an embedding is of.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Span {
    Utterance { seconds: f32 },
    Window { start: f64, end: f64 },
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Self::Utterance { seconds } => write!(f, "{seconds:.2}"),
            Self::Window { start, end } => write!(f, "{start:.2},{end:.2}"),
        }
    }
}

pub(crate) fn run(args: Args) -> Outcome {
    let ranks = ranks::join()?;
    args.work.use_threads()?;
    if let Some(path) = &args.out {
        refuse_existing(path, args.force)?;
    }
    let (text, unread, all) = match args.windows.window {
        Some(window) => {
            let row = |file: &str, window: &WindowEmbedding| {
                let place = Span::Window { start: window.start, end: window.end };
                line(&EmbeddingRow { utterance: file, place, embedding: &window.embedding }, args.work.json)
            };
            let (rows, unread) = embed_windows::embed(&args.model, &args.files, &args.windows, window, row, &ranks)?;
            (table(&rows, args.work.json), unread, args.files.len())
        }
        None => embed_whole(&args, &ranks)?,
    };
    if !ranks.leads() {
        return Ok(());
    }
    match &args.out {
        Some(path) => bregman_base::files::write_file(path, text)?,
        None => print(&text)?,
    }
    if !unread.is_empty() {
        say(unreadable(&unread).trim_end());
    }
    match unread.len() {
        unread if unread == all => {
            Err(Failure::mistake("none of the files could be read", "pass audio files with speech in them"))
        }
        _ => Ok(()),
    }
}

/// One embedding of each utterance: the output, those that cannot be read, and how many there are.
fn embed_whole(args: &Args, ranks: &Ranks) -> Result<(String, Vec<Unreadable>, usize), Failure> {
    let network = SpeakerModel::open(&args.model, args.max_seconds, args.place)?;
    let source = match &args.manifest {
        Some(path) => open_corpus(path, None)?,
        None => std::sync::Arc::new(FileCorpus(Manifest::of_paths(&args.files))),
    };
    let bar = Bar::new("embedding");
    let utterances = &source.manifest().utterances;
    let all: Vec<usize> = (0..utterances.len()).collect();
    let embedded = match &args.manifest {
        Some(_) => {
            let load = || network.load_for_corpus();
            embed_utterances(&*source, &all, args.max_seconds, load, &network.store().shared(ranks), &bar)?
        }
        None => {
            let load = || network.load().map(SpeechOnly);
            embed_utterances(&*source, &all, args.max_seconds, load, &EmbeddingStore::in_memory().shared(ranks), &bar)?
        }
    };
    drop(bar);
    network.note_silence();
    let rows = utterances.iter().zip(&embedded.embeddings).filter_map(|(utterance, embedding)| {
        let Embedding { seconds, values } = embedding.as_ref()?;
        let row =
            EmbeddingRow { utterance: &utterance.id, place: Span::Utterance { seconds: *seconds }, embedding: values };
        Some(line(&row, args.work.json))
    });
    let rows: Vec<String> = rows.collect::<Result<_, _>>().map_err(Failure::failed)?;
    Ok((table(&rows, args.work.json), embedded.unreadable, all.len()))
}

/// A row as JSON or as CSV.
fn line(row: &EmbeddingRow, json: bool) -> Result<String, String> {
    if json {
        return serde_json::to_string(row).map_err(|error| error.to_string());
    }
    let mut text = format!("{},{}", quoted(row.utterance), row.place);
    for value in row.embedding {
        let _ = write!(text, ",{value}");
    }
    Ok(text)
}

/// The output of these rows.
fn table(rows: &[String], json: bool) -> String {
    if json {
        return format!("[{}]\n", rows.join(","));
    }
    rows.iter().flat_map(|row| [row, "\n"]).collect()
}

/// A CSV field, quoted where it must be.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}
