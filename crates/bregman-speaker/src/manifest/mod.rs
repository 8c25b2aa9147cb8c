//! Lists that name utterances: manifests, class labels, trial lists, enrollment maps.
//!
//! A manifest is a CSV file with one line per utterance:
//!
//! | column | meaning |
//! | --- | --- |
//! | `path` | audio file; relative to the manifest's folder unless absolute (required) |
//! | `speaker` | who speaks (required) |
//! | `utterance` | name used in trial lists; the path if the column is missing |
//! | `seconds` | duration; `bregman prepare` measures it |
//! | `session` | recording session (VoxCeleb: the video) |
//! | `genre` | CN-Celeb genre; only clips of one genre are joined |
//!
//! Other columns are ignored. Speakers, sessions and genres occur many times (1.1 M utterances, 6 k speakers), so
//! utterances share one copy of each name.

mod csv;
pub(crate) mod names;
mod pairs;
mod speakers;
pub(crate) mod split;
pub(crate) mod trials;

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::manifest::names::{AUDIO_EXTENSIONS, stem};
pub use speakers::Speakers;

/// One utterance of a corpus.
#[derive(Debug, Clone, PartialEq)]
pub struct Utterance {
    /// Unique name, as used in trial lists.
    pub id: String,
    /// Who speaks.
    pub speaker: Arc<str>,
    /// Path of the audio file, resolved.
    pub path: PathBuf,
    /// Duration, if measured.
    pub seconds: Option<f64>,
    /// Recording session, if known.
    pub session: Option<Arc<str>>,
    /// Genre, if known.
    pub genre: Option<Arc<str>>,
}

impl Utterance {
    /// An utterance of unknown duration, session and genre.
    pub(crate) fn unmeasured(id: String, speaker: Arc<str>, path: PathBuf) -> Self {
        Self { id, speaker, path, seconds: None, session: None, genre: None }
    }
}

/// A list of utterances with unique ids.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Manifest {
    /// The utterances, in the order of the file.
    pub utterances: Vec<Utterance>,
}

/// Keeps one copy of each distinct string.
#[derive(Debug, Default)]
pub(crate) struct Interner(HashSet<Arc<str>>);

impl Interner {
    pub(crate) fn get(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return known.clone();
        }
        let new: Arc<str> = text.into();
        self.0.insert(new.clone());
        new
    }
}

impl Manifest {
    /// The distinct speakers, sorted: their order defines the class labels.
    pub fn speakers(&self) -> Speakers {
        let names: BTreeSet<&Arc<str>> = self.utterances.iter().map(|utterance| &utterance.speaker).collect();
        names.into_iter().cloned().collect::<BTreeSet<_>>().into()
    }

    /// A manifest of files named by lists, such as the names of a trial list: those that exist under `root`, by the
    /// given name or with another audio extension. The first folder of a name is taken to be the speaker; durations
    /// are unknown.
    pub fn of_files<'a>(root: &Path, names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut interner = Interner::default();
        let mut seen = HashSet::new();
        let mut utterances = Vec::new();
        for name in names {
            let exact = root.join(name);
            let other = || {
                AUDIO_EXTENSIONS
                    .iter()
                    .map(|extension| root.join(format!("{}.{extension}", stem(name))))
                    .find(|path| path.is_file())
            };
            let Some(path) = (if exact.is_file() { Some(exact) } else { other() }) else { continue };
            if seen.insert(stem(name).to_owned()) {
                let speaker = name.split('/').find(|part| !part.is_empty() && *part != ".").unwrap_or(name);
                utterances.push(Utterance::unmeasured(name.to_owned(), interner.get(speaker), path));
            }
        }
        Self { utterances }
    }

    /// A manifest of single files, each named by its path; the speakers are unknown.
    pub fn of_paths(paths: &[PathBuf]) -> Self {
        let speaker: Arc<str> = "".into();
        let utterance =
            |path: &PathBuf| Utterance::unmeasured(path.display().to_string(), speaker.clone(), path.clone());
        Self { utterances: paths.iter().map(utterance).collect() }
    }

    /// The utterances that `keep` accepts, in the same order.
    pub fn filtered(&self, mut keep: impl FnMut(&Utterance) -> bool) -> Self {
        Self { utterances: self.utterances.iter().filter(|utterance| keep(utterance)).cloned().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_list_become_a_manifest_of_the_files_that_exist() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("ann")).unwrap();
        ["ann/1.flac", "ann/2.wav"].iter().for_each(|name| std::fs::write(dir.path().join(name), "").unwrap());
        let manifest = Manifest::of_files(dir.path(), ["ann/1.wav", "ann/2.wav", "ann/1.wav", "ann/3.wav"]);
        let found: Vec<_> = manifest
            .utterances
            .iter()
            .map(|u| (u.id.as_str(), &*u.speaker, u.path.strip_prefix(dir.path()).unwrap()))
            .collect();
        assert_eq!(
            found,
            [("ann/1.wav", "ann", Path::new("ann/1.flac")), ("ann/2.wav", "ann", Path::new("ann/2.wav"))]
        );
        let labels: Vec<_> = manifest.speakers().names().iter().map(|name| name.to_string()).collect();
        assert_eq!(labels, ["ann"]);
    }
}
