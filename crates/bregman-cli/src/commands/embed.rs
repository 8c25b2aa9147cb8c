//! `bregman embed`: utterances as vectors.

use std::fmt::Write as _;
use std::path::PathBuf;

use bregman_speaker::score::{Embedded, embed_utterances};
use bregman_speaker::{AudioSource, FileCorpus, Manifest, open_corpus};
use serde::Serialize;

use super::options::WorkArgs;
use crate::Outcome;
use crate::device::DeviceArg;
use crate::failure::Failure;
use crate::network::SpeakerModel;
use crate::output::{Bar, print, refuse_existing, say, unreadable};

/// Compute the embeddings of audio files or of a corpus.
///
/// Prints CSV: the utterance, its seconds, then the values as the network gave them (not normalised). Files that cannot
/// be read are listed and left out.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bregman embed runs/first a.wav b.flac
  bregman embed model.breg a.wav --json
  bregman embed runs/first --manifest voices/test.csv --out embeddings.csv")]
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
    /// Use at most the middle so many seconds of an utterance
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    max_seconds: f64,
    #[command(flatten)]
    place: DeviceArg,
    #[command(flatten)]
    work: WorkArgs,
}

#[derive(Debug, Serialize)]
struct EmbeddingRow<'a> {
    utterance: &'a str,
    seconds: f32,
    embedding: &'a [f32],
}

pub(crate) fn run(args: Args) -> Outcome {
    args.work.use_threads()?;
    if let Some(path) = &args.out {
        refuse_existing(path, args.force)?;
    }
    let network = SpeakerModel::open(&args.model, args.max_seconds, args.place)?;
    let source = match &args.manifest {
        Some(path) => open_corpus(path, None)?,
        None => std::sync::Arc::new(FileCorpus(Manifest::of_paths(&args.files))),
    };
    let bar = Bar::new("embedding");
    let all: Vec<usize> = (0..source.manifest().utterances.len()).collect();
    let embedded = embed_utterances(&*source, &all, args.max_seconds, || network.load(), &network.store(), &bar)?;
    drop(bar);
    let text = format(&*source, &embedded, args.work.json)?;
    match &args.out {
        Some(path) => bregman_base::files::write_file(path, text)?,
        None => print(&text)?,
    }
    if !embedded.unreadable.is_empty() {
        say(unreadable(&embedded.unreadable).trim_end());
    }
    match embedded.unreadable.len() {
        unread if unread == all.len() => {
            Err(Failure::mistake("none of the files could be read", "pass audio files with speech in them"))
        }
        _ => Ok(()),
    }
}

fn format(source: &dyn AudioSource, embedded: &Embedded, json: bool) -> Result<String, Failure> {
    let utterances = &source.manifest().utterances;
    let rows = utterances.iter().zip(&embedded.embeddings).filter_map(|(utterance, embedding)| {
        embedding.as_ref().map(|e| EmbeddingRow { utterance: &utterance.id, seconds: e.seconds, embedding: &e.values })
    });
    if json {
        let text =
            serde_json::to_string(&rows.collect::<Vec<_>>()).map_err(|error| Failure::failed(error.to_string()))?;
        return Ok(text + "\n");
    }
    let mut text = String::new();
    for row in rows {
        let _ = write!(text, "{},{:.2}", quoted(row.utterance), row.seconds);
        for value in row.embedding {
            let _ = write!(text, ",{value}");
        }
        text.push('\n');
    }
    Ok(text)
}

/// A CSV field, quoted where it must be.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}
