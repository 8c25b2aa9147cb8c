//! `bregman prepare`: a tree on disk becomes a manifest.

use std::path::PathBuf;

use bregman_speaker::{Corpus, CorpusPart, PrepareConfig, prepare};
use clap::ValueEnum;

use super::options::WriteArgs;
use crate::Outcome;
use crate::output::{Bar, print, print_json, summary, unreadable};

/// Find and measure the audio of a corpus and write a manifest.
///
/// For VoxCeleb and CN-Celeb, speakers of the published test lists are left out and reported, since the manifest is for
/// training. Unreadable files are listed and left out. If it is killed, the same command continues where it stopped.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Layouts:
  folder     ROOT/SPEAKER/…/*.wav          one folder per speaker
  csv        ROOT is a CSV file            columns speaker,path; optional utterance,session,genre
  voxceleb   ROOT/…/id10001/VIDEO/*.wav    VoxCeleb1 and 2, any audio format
  cnceleb    ROOT/[CN-Celeb*_flac/]data/…  CN-Celeb1 and 2 with dev/dev.lst, spk.lst, eval/lists
  kaldi      ROOT/wav.scp, ROOT/utt2spk    file names only, no pipes

Examples:
  bregman prepare folder recordings --out recordings/train.csv --held-out 20
  bregman prepare folder recordings --out recordings.csv --validation 0.1
  bregman prepare voxceleb /data/voxceleb2 --out /data/voxceleb2/train.csv
  bregman prepare voxceleb /data/voxceleb1 --part all --out vox1.csv     for --root of `bregman evaluate`
  bregman prepare cnceleb /data/cnceleb --out /data/cnceleb/train.csv --json
  bregman prepare folder recordings --exclude-trials trials.txt --out train.csv")]
pub(crate) struct Args {
    /// How the files are laid out
    corpus: Layout,
    /// Folder of the corpus (csv: the file)
    root: PathBuf,
    /// Manifest to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Which part [default: train for VoxCeleb and CN-Celeb; other layouts have no parts]
    #[arg(long, value_enum)]
    part: Option<Half>,
    /// Leave out every speaker of this trial list (repeatable)
    #[arg(long, value_name = "FILE")]
    exclude_trials: Vec<PathBuf>,
    /// Keep this many speakers for testing: write their utterances to OUT.test.csv and a trial list of them to
    /// OUT.trials.txt instead
    #[arg(long, value_name = "SPEAKERS", default_value_t = 0)]
    held_out: usize,
    /// Also write a split: this fraction of each speaker's utterances for validation
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0)]
    validation: f64,
    /// Seed of who is held out, of the trials, and of the split
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Decode every file to its end instead of trusting its header (slow)
    #[arg(long)]
    verify: bool,
    /// Stop at the first unreadable file
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    write: WriteArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Layout {
    Folder,
    Csv,
    Voxceleb,
    Cnceleb,
    Kaldi,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Half {
    All,
    Train,
    Test,
}

pub(crate) fn run(args: Args) -> Outcome {
    args.write.work.use_threads()?;
    let corpus = match args.corpus {
        Layout::Folder => Corpus::Folder,
        Layout::Csv => Corpus::Csv,
        Layout::Voxceleb => Corpus::VoxCeleb,
        Layout::Cnceleb => Corpus::CnCeleb,
        Layout::Kaldi => Corpus::Kaldi,
    };
    let config = PrepareConfig {
        corpus,
        root: args.root,
        out: args.out,
        part: match args.part {
            None if corpus.has_test_set() => CorpusPart::Train,
            None | Some(Half::All) => CorpusPart::All,
            Some(Half::Train) => CorpusPart::Train,
            Some(Half::Test) => CorpusPart::Test,
        },
        exclude: args.exclude_trials,
        held_out: args.held_out,
        validation: args.validation,
        seed: args.seed,
        verify: args.verify,
        strict: args.strict,
        force: args.write.force,
    };
    let bar = Bar::new("measuring");
    let prepared = prepare(&config, &bar)?;
    drop(bar);
    if args.write.work.json {
        return print_json(&prepared);
    }
    let mut text = summary(&prepared.summary);
    if !prepared.notes.is_empty() {
        text += "\nnote\n";
        prepared.notes.iter().for_each(|note| text += &format!("  {note}\n"));
    }
    text += &unreadable(&prepared.unreadable);
    if prepared.resumed > 0 {
        text += &format!("\n{} lengths taken over from a run that was stopped\n", prepared.resumed);
    }
    text += "\nwrote\n";
    prepared.written.iter().for_each(|path| text += &format!("  {}\n", path.display()));
    print(&text)
}
