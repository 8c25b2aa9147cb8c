//! The layouts of published corpora on disk.
//!
//! Each layout has its own file with one function, which finds the utterances under a root with their ids, speakers,
//! sessions and genres; durations are measured later, by [`mod@crate::prepare`].

mod cnceleb;
mod csv;
mod folder;
mod kaldi;
mod voxceleb;
mod walk;

pub(crate) use voxceleb::is_of_voxceleb1;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::manifest::{Interner, Manifest, Utterance};
use crate::{Error, Result};

/// The largest list that is read at once: a hundred bytes for each of ten million utterances.
const MOST_TEXT: u64 = 1 << 30;

/// A layout of files on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Corpus {
    /// VoxCeleb1 and 2: `…/id10001/VIDEO/00001.wav`.
    VoxCeleb,
    /// CN-Celeb1 and 2: `data/id00001/GENRE-SESSION-NN.flac`, `eval/{enroll,test}`, lists.
    CnCeleb,
    /// One folder per speaker, whatever is inside.
    Folder,
    /// Any audio files below a folder: as [`Corpus::Folder`], and those that lie in no folder are of one speaker.
    Speech,
    /// A CSV file with at least the columns `speaker` and `path`.
    Csv,
    /// A Kaldi data folder: `wav.scp` and `utt2spk`.
    Kaldi,
}

/// Which part of a corpus with a fixed test set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CorpusPart {
    /// Both.
    #[default]
    All,
    /// Development speakers.
    Train,
    /// Test speakers.
    Test,
}

/// What is under the root of a corpus.
pub(crate) struct Found {
    /// The utterances of the part that was asked for.
    pub(crate) manifest: Manifest,
    /// Speakers of its test set, in this part or left out of it.
    pub(crate) test_speakers: BTreeSet<Arc<str>>,
    /// Their utterances that the part leaves out.
    pub(crate) left_out: usize,
}

impl Corpus {
    /// Whether its publishers fixed a test set, so that it has parts.
    pub fn has_test_set(self) -> bool {
        matches!(self, Self::VoxCeleb | Self::CnCeleb)
    }

    /// The utterances under `root` (for [`Corpus::Csv`]: in the file `root`), sorted by id. Durations are
    /// not measured.
    pub fn find(self, root: &Path, part: CorpusPart) -> Result<Manifest> {
        self.search(root, part).map(|found| found.manifest)
    }

    pub(crate) fn search(self, root: &Path, part: CorpusPart) -> Result<Found> {
        if part != CorpusPart::All && !self.has_test_set() {
            let value = format!("{part:?}").to_lowercase();
            return Err(Error::Setting {
                field: "part",
                value,
                expected: "all: only VoxCeleb and CN-Celeb have a fixed test set",
            });
        }
        std::fs::metadata(root).map_err(Error::io(root))?;
        let UtteranceBuilder { mut utterances, test_speakers, left_out, .. } = match self {
            Self::VoxCeleb => voxceleb::find(root, part)?,
            Self::CnCeleb => cnceleb::find(root, part)?,
            Self::Folder => folder::find(root, None)?,
            Self::Speech => folder::find(root, Some("unknown"))?,
            Self::Csv => UtteranceBuilder { utterances: csv::find(root)?, ..UtteranceBuilder::default() },
            Self::Kaldi => kaldi::find(root)?,
        };
        if utterances.is_empty() {
            return Err(Error::Empty { path: root.to_owned(), expected: self.expected(part) });
        }
        utterances.sort_by(|a, b| a.id.cmp(&b.id));
        if let Some(pair) = utterances.windows(2).find(|pair| pair[0].id == pair[1].id) {
            let (first, second) = (pair[0].path.display(), pair[1].path.display());
            return Err(Error::format(
                root,
                format!("two files have the same utterance id '{}': {first} and {second}", pair[0].id),
            ));
        }
        Ok(Found { manifest: Manifest { utterances }, test_speakers, left_out })
    }

    fn expected(self, part: CorpusPart) -> String {
        let layout = match self {
            Self::VoxCeleb => "SPEAKER/VIDEO/CLIP.wav with speakers like id10001",
            Self::CnCeleb => "data/id00001/GENRE-SESSION-NN.flac, dev/dev.lst or spk.lst, eval/lists",
            Self::Folder => "one folder per speaker with audio files in it",
            Self::Speech => "audio files",
            Self::Csv => "lines below a header with the columns speaker,path",
            Self::Kaldi => "wav.scp and utt2spk with at least one line",
        };
        match part {
            CorpusPart::All => layout.to_owned(),
            CorpusPart::Train => format!("{layout} (training part)"),
            CorpusPart::Test => format!("{layout} (test part)"),
        }
    }
}

/// Collects utterances; equal names share one copy.
#[derive(Default)]
struct UtteranceBuilder {
    interner: Interner,
    utterances: Vec<Utterance>,
    test_speakers: BTreeSet<Arc<str>>,
    left_out: usize,
}

impl UtteranceBuilder {
    fn add(
        &mut self,
        id: String,
        speaker: &str,
        path: impl Into<std::path::PathBuf>,
        session: Option<&str>,
        genre: Option<&str>,
    ) {
        let speaker = self.interner.get(speaker);
        let session = session.map(|text| self.interner.get(text));
        let genre = genre.map(|text| self.interner.get(text));
        let utterance = Utterance::unmeasured(id, speaker, path.into());
        self.utterances.push(Utterance { session, genre, ..utterance });
    }

    /// Keeps that a speaker belongs to the test set.
    fn note_test_speaker(&mut self, speaker: &str) {
        let speaker = self.interner.get(speaker);
        self.test_speakers.insert(speaker);
    }
}
