//! From a folder of audio to a manifest: find, measure in parallel, write, summarise.
//!
//! Durations come from file headers where the format states them. Every measurement is written at once to a journal
//! next to the output (`OUT.partial`), so that a killed run continues where it stopped; the journal is deleted when the
//! manifest is complete.

pub(crate) mod journal;
mod notes;
pub(crate) mod summary;

use std::collections::HashSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use bregman_audio::Decoder;
use bregman_base::files::{Lock, beside};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::corpus::{Corpus, CorpusPart};
use crate::files::{check_free, create_parent, write_whole};
use crate::manifest::Manifest;
use crate::manifest::names::NameIndex;
use crate::manifest::split::split;
use crate::manifest::trials::Trials;
use crate::prepare::journal::{Journal, MeasuredSeconds};
use crate::prepare::summary::CorpusSummary;
use crate::source::unreadable;
use crate::{Error, Progress, Result};

/// What to prepare and where to write it.
#[derive(Debug, Clone)]
pub struct PrepareConfig {
    /// Layout of `root`.
    pub corpus: Corpus,
    /// Folder of the corpus (for CSV: the file).
    pub root: PathBuf,
    /// The manifest to write.
    pub out: PathBuf,
    /// Which part, for corpora with a fixed test set.
    pub part: CorpusPart,
    /// Speakers that occur in these trial lists are left out.
    pub exclude: Vec<PathBuf>,
    /// If above 0, this many speakers are kept for testing: their utterances are in `OUT.test.csv` instead of `out`,
    /// and `OUT.trials.txt` has trials of them.
    pub held_out: usize,
    /// If above 0, `OUT.train.csv` and `OUT.valid.csv` are written too.
    pub validation: f64,
    /// Seed of who is held out, of the trials, and of that split.
    pub seed: u64,
    /// Decode every file to its end instead of trusting its header: slow, finds damage behind an intact header.
    pub verify: bool,
    /// Fail on the first unreadable file instead of listing it.
    pub strict: bool,
    /// Replace existing files.
    pub force: bool,
}

impl PrepareConfig {
    /// All of a corpus, in one manifest.
    pub fn new(corpus: Corpus, root: impl Into<PathBuf>, out: impl Into<PathBuf>) -> Self {
        Self {
            corpus,
            root: root.into(),
            out: out.into(),
            part: CorpusPart::All,
            exclude: Vec::new(),
            held_out: 0,
            validation: 0.0,
            seed: 1,
            verify: false,
            strict: false,
            force: false,
        }
    }
}

/// The result of [`prepare()`].
#[derive(Debug, Clone, Serialize)]
pub struct Prepared {
    /// Files written.
    pub written: Vec<PathBuf>,
    /// What to know before a network is trained on it.
    pub notes: Vec<String>,
    /// Utterances whose duration was found in the journal of a killed run.
    pub resumed: usize,
    /// Statistics of the manifest.
    pub summary: CorpusSummary,
    /// Files that could not be read, and why.
    pub unreadable: Vec<Unreadable>,
}

/// A file that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unreadable {
    /// The file.
    pub path: String,
    /// Why.
    pub problem: String,
}

/// Finds, measures and writes; see [`PrepareConfig`].
pub fn prepare(config: &PrepareConfig, progress: &dyn Progress) -> Result<Prepared> {
    let companion = |suffix: &str| config.out.with_extension(suffix);
    let [summary_path, train_path, valid_path, test_path, trials_path] =
        ["summary.json", "train.csv", "valid.csv", "test.csv", "trials.txt"].map(companion);
    let with_split = config.validation != 0.0;
    let mut written = vec![config.out.clone(), summary_path.clone()];
    if with_split {
        split(&Manifest::default(), config.validation, 0)?; // checks the fraction before the long work
        written.extend([train_path.clone(), valid_path.clone()]);
    }
    if config.held_out > 0 {
        written.extend([test_path.clone(), trials_path.clone()]);
    }
    written.iter().try_for_each(|path| check_free(path, config.force))?;
    create_parent(&config.out)?;

    let mut found = config.corpus.search(&config.root, config.part)?;
    exclude_speakers(&mut found.manifest, &config.exclude)?;
    let notes = notes::of(config.corpus, config.part, &found);
    let mut manifest = found.manifest;
    if manifest.utterances.is_empty() {
        return Err(Error::Empty {
            path: config.root.clone(),
            expected: "speakers that are not in the excluded trial lists".to_owned(),
        });
    }
    let _lock = Lock::take(&beside(&config.out, ".lock"))?; // two would mix their journals
    let journal_path = beside(&config.out, ".partial");
    let title = format!("{:?} {:?} verify {} {}", config.corpus, config.part, config.verify, config.root.display());
    let (journal, known) = Journal::open(&journal_path, &title)?;
    let known = |id: &str| known.get(id).cloned();
    let resumed = manifest.utterances.iter().filter(|utterance| known(&utterance.id).is_some()).count();

    progress.begin(manifest.utterances.len());
    let measured: Vec<MeasuredSeconds> = manifest
        .utterances
        .par_iter()
        .map(|utterance| {
            let measured = match known(&utterance.id) {
                Some(measured) => measured,
                None => {
                    let measured = seconds(&utterance.path, config.verify);
                    journal.note(&utterance.id, &measured)?;
                    measured
                }
            };
            progress.step();
            match measured {
                Err(problem) if config.strict => {
                    Err(Error::Unreadable { utterance: utterance.path.display().to_string(), problem })
                }
                measured => Ok(measured),
            }
        })
        .collect::<Result<_>>()?;

    let mut broken = Vec::new();
    let mut lengths = measured.into_iter();
    manifest.utterances.retain_mut(|utterance| match lengths.next().expect("one measurement per utterance") {
        Ok(seconds) => {
            utterance.seconds = Some(seconds);
            true
        }
        Err(problem) => {
            broken.push(Unreadable { path: utterance.path.display().to_string(), problem });
            false
        }
    });
    if manifest.utterances.is_empty() {
        let first = &broken[0];
        let problem = format!("none of the {} files is readable audio; first error: {}", broken.len(), first.problem);
        return Err(Error::format(Path::new(&first.path), problem));
    }
    if config.held_out > 0 {
        let (train, test) = manifest.hold_out(config.held_out, config.seed)?;
        let trials = test.trial_list(config.seed);
        if trials.is_empty() {
            let problem = "the speakers held out have one session each, so no trial list can be made of them";
            return Err(Error::format(&config.root, problem));
        }
        test.write(&test_path, config.force)?;
        write_whole(&trials_path, config.force, |writer| {
            writer.write_all(trials.as_bytes()).map_err(Error::io(&trials_path))
        })?;
        manifest = train;
    }
    let prepared = Prepared { written, notes, resumed, summary: CorpusSummary::of(&manifest), unreadable: broken };
    if with_split {
        let (train, valid) = split(&manifest, config.validation, config.seed)?;
        train.write(&train_path, config.force)?;
        valid.write(&valid_path, config.force)?;
    }
    write_whole(&summary_path, config.force, |writer| {
        serde_json::to_writer_pretty(writer, &prepared).map_err(|error| Error::format(&summary_path, error.to_string()))
    })?;
    manifest.write(&config.out, config.force)?;
    let _ = std::fs::remove_file(&journal_path); // a journal that cannot be removed does no harm
    Ok(prepared)
}

/// Duration of a file: from its header, or by decoding it if the header does not state it or is not trusted.
fn seconds(path: &Path, verify: bool) -> MeasuredSeconds {
    let measure = || -> bregman_audio::Result<f64> {
        let mut decoder = Decoder::open(path)?;
        let probe = decoder.probe();
        let stated = probe.seconds().filter(|seconds| *seconds > 0.0);
        if let (Some(seconds), false) = (stated, verify) {
            return Ok(seconds);
        }
        let mut samples = 0;
        while let Some(block) = decoder.next_block()? {
            samples += block.len();
        }
        let decoded = samples as f64 / f64::from(probe.rate);
        match stated {
            _ if samples == 0 => Err(bregman_audio::Error::Empty),
            Some(stated) if decoded + 0.1 < stated => {
                let reason = format!("only {decoded:.2} s of the {stated:.2} s stated in its header can be decoded");
                Err(bregman_audio::Error::Decode { reason })
            }
            _ => Ok(decoded),
        }
    };
    measure().map_err(|error| match unreadable("", error) {
        Error::Unreadable { problem, .. } => problem,
        other => other.to_string(),
    })
}

/// Drops every speaker that occurs in a trial list: found by utterance, or for unknown utterances by the first part of
/// the name.
fn exclude_speakers(manifest: &mut Manifest, lists: &[PathBuf]) -> Result<()> {
    if lists.is_empty() {
        return Ok(());
    }
    let index = NameIndex::new(manifest);
    let mut speakers: HashSet<String> = HashSet::new();
    for list in lists {
        for name in Trials::read(list)?.names {
            let known = index.enrollment(&name).map(|number| manifest.utterances[number].speaker.to_string());
            let guess = || {
                name.split(['/', '-']).find(|part| !["test", "enroll"].contains(part)).unwrap_or_default().to_owned()
            };
            speakers.insert(known.unwrap_or_else(guess));
        }
    }
    manifest.utterances.retain(|utterance| !speakers.contains(&*utterance.speaker));
    Ok(())
}
