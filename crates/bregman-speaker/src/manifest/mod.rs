//! Manifests: one CSV line per utterance.
//!
//! | column | meaning |
//! | --- | --- |
//! | `path` | audio file; relative to the manifest's folder unless absolute (required) |
//! | `speaker` | who speaks (required) |
//! | `utterance` | name used in trial lists; the path if the column is missing |
//! | `seconds` | duration; `bregman prepare` measures it |
//! | `session` | recording session (VoxCeleb: the video) |
//! | `genre` | CN-Celeb genre; clips are joined within one |
//!
//! Other columns are ignored. Names repeat a lot (1.1 M utterances, 6 k speakers), so speaker, session and genre share
//! their text.

pub(crate) mod names;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::files::write_whole;
use crate::manifest::names::{AUDIO_EXTENSIONS, stem};
use crate::{Error, Result};

const COLUMNS: [&str; 6] = ["utterance", "speaker", "path", "seconds", "session", "genre"];

/// One utterance of a corpus.
#[derive(Debug, Clone, PartialEq)]
pub struct Utterance {
    /// Unique name, as trial lists call it.
    pub id: String,
    /// Who speaks.
    pub speaker: Arc<str>,
    /// Where the audio is, usable as it stands.
    pub path: PathBuf,
    /// Duration, if measured.
    pub seconds: Option<f64>,
    /// Recording session, if known.
    pub session: Option<Arc<str>>,
    /// Genre, if known.
    pub genre: Option<Arc<str>>,
}

/// A list of utterances with unique ids.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Manifest {
    /// The utterances, in the order of the file.
    pub utterances: Vec<Utterance>,
}

/// Shares equal texts.
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
    /// Reads a manifest; relative paths count from `root`, or from the manifest's folder if there is none.
    pub fn read(path: &Path, root: Option<&Path>) -> Result<Self> {
        let file = File::open(path).map_err(Error::io(path))?;
        let root = root.or_else(|| path.parent()).unwrap_or(Path::new(""));
        Self::parse(file, path, root)
    }

    /// Parses CSV text; `name` is for messages, relative paths are put under `root`.
    pub fn parse(reader: impl Read, name: &Path, root: &Path) -> Result<Self> {
        let mut csv = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(reader);
        let wrong = |error: csv::Error| csv_error(name, error);
        let header = csv.headers().map_err(wrong)?.clone();
        let column = |wanted: &str| {
            header.iter().position(|field| field.trim_start_matches('\u{feff}').eq_ignore_ascii_case(wanted))
        };
        let [utterance, speaker, path, seconds, session, genre] = COLUMNS.map(column);
        let required = |at: Option<usize>, what: &str| {
            at.ok_or_else(|| {
                let found = header.iter().collect::<Vec<_>>().join(",");
                Error::format(
                    name,
                    format!("the header has no column '{what}' (found '{found}'; needed: speaker,path)"),
                )
            })
        };
        let (speaker, path) = (required(speaker, "speaker")?, required(path, "path")?);

        let (mut utterances, mut lines) = (Vec::new(), HashMap::new());
        let (mut interner, mut record) = (Interner::default(), csv::StringRecord::new());
        while csv.read_record(&mut record).map_err(wrong)? {
            let line = record.position().map_or(0, csv::Position::line);
            let text = |at: Option<usize>| at.and_then(|at| record.get(at)).filter(|text| !text.is_empty());
            let needed =
                |at, what: &str| text(Some(at)).ok_or_else(|| Error::line(name, line, format!("empty '{what}'")));
            let (file, speaker) = (needed(path, "path")?, interner.get(needed(speaker, "speaker")?));
            let id = text(utterance).unwrap_or(file).to_owned();
            if let Some(before) = lines.insert(id.clone(), line) {
                return Err(Error::line(name, line, format!("utterance '{id}' stands in line {before} already")));
            }
            utterances.push(Utterance {
                id,
                speaker,
                path: root.join(file),
                seconds: text(seconds)
                    .map(|text| parse_seconds(text).map_err(|problem| Error::line(name, line, problem)))
                    .transpose()?,
                session: text(session).map(|text| interner.get(text)),
                genre: text(genre).map(|text| interner.get(text)),
            });
        }
        Ok(Self { utterances })
    }

    /// Writes the manifest whole or not at all. Paths below the manifest's folder become relative to it, so the folder
    /// can move.
    pub fn write(&self, path: &Path, force: bool) -> Result<()> {
        let base = absolute(path)?.parent().map(Path::to_owned).unwrap_or_default();
        write_whole(path, force, |writer| {
            let mut csv = csv::Writer::from_writer(writer);
            csv.write_record(COLUMNS).map_err(|error| csv_error(path, error))?;
            for utterance in &self.utterances {
                let file = absolute(&utterance.path)?;
                let file = file.strip_prefix(&base).unwrap_or(&file);
                let file = file
                    .to_str()
                    .ok_or_else(|| Error::format(file, "the file name is not UTF-8, which a manifest cannot hold"))?;
                let seconds = utterance.seconds.map(|seconds| format!("{seconds:.4}")).unwrap_or_default();
                let optional = |text: &Option<Arc<str>>| text.as_deref().unwrap_or_default().to_owned();
                let (session, genre) = (optional(&utterance.session), optional(&utterance.genre));
                csv.write_record([&utterance.id, &*utterance.speaker, file, &seconds, &session, &genre])
                    .map_err(|error| csv_error(path, error))?;
            }
            csv.flush().map_err(Error::io(path))
        })
    }

    /// The speakers, sorted and without repetition: their order defines the class labels.
    pub fn speakers(&self) -> Speakers {
        let names: BTreeSet<&Arc<str>> = self.utterances.iter().map(|utterance| &utterance.speaker).collect();
        Speakers { names: names.into_iter().cloned().collect() }
    }

    /// A manifest of files named by lists, such as the names of a trial list: those that exist under `root`, by the
    /// given name or with another audio extension. The first folder of a name is taken for the speaker; lengths are
    /// unknown.
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
                let speaker =
                    interner.get(name.split('/').find(|part| !part.is_empty() && *part != ".").unwrap_or(name));
                utterances.push(Utterance {
                    id: name.to_owned(),
                    speaker,
                    path,
                    seconds: None,
                    session: None,
                    genre: None,
                });
            }
        }
        Self { utterances }
    }

    /// A manifest of single files, each named by its path; who speaks is not known.
    pub fn of_paths(paths: &[PathBuf]) -> Self {
        let speaker: Arc<str> = "".into();
        let utterance = |path: &PathBuf| Utterance {
            id: path.display().to_string(),
            speaker: speaker.clone(),
            path: path.clone(),
            seconds: None,
            session: None,
            genre: None,
        };
        Self { utterances: paths.iter().map(utterance).collect() }
    }

    /// The manifest of the utterances that `keep` accepts, order kept.
    pub fn filtered(&self, mut keep: impl FnMut(&Utterance) -> bool) -> Self {
        Self { utterances: self.utterances.iter().filter(|utterance| keep(utterance)).cloned().collect() }
    }
}

/// The class labels of a training set: speaker names in sorted order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "BTreeSet<Arc<str>>", into = "Vec<Arc<str>>")] // whatever a file holds, the names are sorted and differ
pub struct Speakers {
    names: Vec<Arc<str>>,
}

impl From<BTreeSet<Arc<str>>> for Speakers {
    fn from(names: BTreeSet<Arc<str>>) -> Self {
        Self { names: names.into_iter().collect() }
    }
}

impl From<Speakers> for Vec<Arc<str>> {
    fn from(speakers: Speakers) -> Self {
        speakers.names
    }
}

impl Speakers {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// True without any speaker.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The label of a speaker.
    pub fn label(&self, name: &str) -> Option<u32> {
        self.names.binary_search_by(|known| (**known).cmp(name)).ok().map(|at| at as u32)
    }

    /// The names, by label.
    pub fn names(&self) -> &[Arc<str>] {
        &self.names
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(Error::io(path))
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => Ok(seconds),
        _ => Err(format!("seconds = '{text}': expected a number of seconds, 0 or more")),
    }
}

fn csv_error(name: &Path, error: csv::Error) -> Error {
    let line = error.position().map_or(0, csv::Position::line);
    match error.into_kind() {
        csv::ErrorKind::Io(source) => Error::Io { path: name.to_owned(), source },
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            Error::line(name, line, format!("{len} fields where the header has {expected_len}"))
        }
        csv::ErrorKind::Utf8 { .. } => Error::line(name, line, "not UTF-8 text"),
        other => Error::line(name, line, format!("not CSV: {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Manifest> {
        Manifest::parse(text.as_bytes(), Path::new("m.csv"), Path::new("/data"))
    }

    #[test]
    fn columns_are_found_by_name_and_unknown_ones_ignored() {
        let manifest = parse("\u{feff}gender,path,speaker,seconds\nmale,a/1.ogg,ann,2.5\n,/else/2.ogg,bob,\n").unwrap();
        let [first, second] = &manifest.utterances[..] else { panic!() };
        assert_eq!((first.id.as_str(), &*first.speaker, first.seconds), ("a/1.ogg", "ann", Some(2.5)));
        assert_eq!(first.path, Path::new("/data/a/1.ogg"));
        assert_eq!((second.path.as_path(), second.seconds), (Path::new("/else/2.ogg"), None));
    }

    #[test]
    fn mistakes_are_named_with_file_line_and_column() {
        let message = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(
            message("path,name\na,b\n"),
            "m.csv: the header has no column 'speaker' (found 'path,name'; needed: speaker,path)"
        );
        assert_eq!(message("path,speaker\na,\n"), "m.csv, line 2: empty 'speaker'");
        assert_eq!(message("path,speaker\na,x\nb\n"), "m.csv, line 3: 1 fields where the header has 2");
        assert_eq!(
            message("path,speaker,seconds\na,x,nan\n"),
            "m.csv, line 2: seconds = 'nan': expected a number of seconds, 0 or more"
        );
        assert_eq!(message("path,speaker\na,x\na,y\n"), "m.csv, line 3: utterance 'a' stands in line 2 already");
    }

    #[test]
    fn a_written_manifest_reads_back_equal_even_after_its_folder_moved() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        let manifest = Manifest {
            utterances: vec![
                Utterance {
                    id: "a, \"b\"\nc".into(),
                    speaker: "ann".into(),
                    path: old.join("a b.wav"),
                    seconds: Some(1.25),
                    session: Some("s1".into()),
                    genre: Some("drama".into()),
                },
                Utterance {
                    id: "2".into(),
                    speaker: "bob".into(),
                    path: "/x/y.wav".into(),
                    seconds: None,
                    session: None,
                    genre: None,
                },
            ],
        };
        manifest.write(&old.join("m.csv"), false).unwrap();
        assert_eq!(Manifest::read(&old.join("m.csv"), None).unwrap(), manifest);
        std::fs::rename(&old, &new).unwrap();
        let moved = Manifest::read(&new.join("m.csv"), None).unwrap();
        assert_eq!(moved.utterances[0].path, new.join("a b.wav"));
    }

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
    }

    #[test]
    fn labels_follow_sorted_names() {
        let speakers = parse("path,speaker\n1,zoe\n2,ann\n3,zoe\n").unwrap().speakers();
        assert_eq!(
            (speakers.len(), speakers.label("ann"), speakers.label("zoe"), speakers.label("bob")),
            (2, Some(0), Some(1), None)
        );
        assert_eq!(serde_json::to_string(&speakers).unwrap(), r#"["ann","zoe"]"#);
        assert_eq!(serde_json::from_str::<Speakers>(r#"["zoe","ann","zoe"]"#).unwrap(), speakers);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), with_header in any::<bool>()) {
            let mut text = if with_header { b"path,speaker,seconds\n".to_vec() } else { Vec::new() };
            text.extend(bytes);
            let _ = Manifest::parse(&text[..], Path::new("m.csv"), Path::new("/"));
        }

        #[test]
        fn any_text_survives_a_round_trip(names in proptest::collection::btree_set("[^\u{0}/ \t\r\u{feff}][^\u{0}\r]{0,6}[a-z\",]", 1..8)) {
            let dir = tempfile::tempdir().unwrap();
            let utterance = |name: &String| Utterance {
                id: name.clone(), speaker: name.as_str().into(), path: dir.path().join("x.wav"), seconds: Some(0.5), session: None, genre: None,
            };
            let manifest = Manifest { utterances: names.iter().filter(|n| n.trim() == n.as_str()).map(utterance).collect() };
            let path = dir.path().join("m.csv");
            manifest.write(&path, true).unwrap();
            prop_assert_eq!(Manifest::read(&path, None).unwrap(), manifest);
        }
    }
}
