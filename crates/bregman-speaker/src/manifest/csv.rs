//! Manifests as CSV files, read and written.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bregman_base::files::{MARK, ShortLines, open_regular};

use super::{Interner, Manifest, Utterance};
use crate::files::write_whole;
use crate::{Error, Result};

const COLUMNS: [&str; 6] = ["utterance", "speaker", "path", "seconds", "session", "genre"];

impl Manifest {
    /// Reads a manifest; relative paths are resolved against `root`, or against the manifest's folder without one.
    pub fn read(path: &Path, root: Option<&Path>) -> Result<Self> {
        let file = ShortLines::new(open_regular(path)?);
        let root = root.or_else(|| path.parent()).unwrap_or(Path::new(""));
        Self::parse(file, path, root)
    }

    /// Parses CSV text; `name` is used in messages, relative paths are resolved against `root`.
    pub fn parse(reader: impl Read, name: &Path, root: &Path) -> Result<Self> {
        let mut csv = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(reader);
        let wrong = |error: csv::Error| csv_error(name, error);
        let header = csv.headers().map_err(wrong)?.clone();
        let column =
            |wanted: &str| header.iter().position(|field| field.trim_start_matches(MARK).eq_ignore_ascii_case(wanted));
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
                return Err(Error::line(name, line, format!("utterance '{id}' is already on line {before}")));
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

    /// Writes the manifest completely or not at all. Paths below the manifest's folder are written relative to it, so
    /// that the folder can be moved.
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
        assert_eq!(message("path,speaker\na,x\na,y\n"), "m.csv, line 3: utterance 'a' is already on line 2");
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
                Utterance::unmeasured("2".into(), "bob".into(), "/x/y.wav".into()),
            ],
        };
        manifest.write(&old.join("m.csv"), false).unwrap();
        assert_eq!(Manifest::read(&old.join("m.csv"), None).unwrap(), manifest);
        std::fs::rename(&old, &new).unwrap();
        let moved = Manifest::read(&new.join("m.csv"), None).unwrap();
        assert_eq!(moved.utterances[0].path, new.join("a b.wav"));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            with_header in any::<bool>(),
        ) {
            let mut text = if with_header { b"path,speaker,seconds\n".to_vec() } else { Vec::new() };
            text.extend(bytes);
            let _ = Manifest::parse(&text[..], Path::new("m.csv"), Path::new("/"));
        }

        #[test]
        fn any_text_survives_a_round_trip(
            names in proptest::collection::btree_set("[^\u{0}/ \t\r\u{feff}][^\u{0}\r]{0,6}[a-z\",]", 1..8),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let utterance =
                |name: &String| Utterance::unmeasured(name.clone(), name.as_str().into(), dir.path().join("x.wav"));
            let trimmed = names.iter().filter(|name| name.trim() == name.as_str());
            let manifest = Manifest { utterances: trimmed.map(utterance).collect() };
            let path = dir.path().join("m.csv");
            manifest.write(&path, true).unwrap();
            prop_assert_eq!(Manifest::read(&path, None).unwrap(), manifest);
        }
    }
}
