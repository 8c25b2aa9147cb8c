//! Trial lists and enrollment maps.
//!
//! | form | line |
//! | --- | --- |
//! | VoxCeleb (O, E, H) | `1 enroll_path test_path` |
//! | CN-Celeb, Kaldi | `enroll_id test_path 1`, or `target` / `nontarget` |
//! | enrollment map | `enroll_id path1 path2 …` (multi-session) |
//!
//! Spaces separate the fields, or tabs in a line with two of them, whose names may then contain spaces. The form is
//! detected from the first line. CN-Celeb-E has 3.48 M trials of 18 k names, so a trial stores two name
//! numbers.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use bregman_base::files::{MARK, ShortLines, open_regular};

use crate::manifest::Manifest;
use crate::manifest::names::{NameIndex, stem};
use crate::{Error, Result};

/// One comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial {
    /// The claimed speaker: a name number in [`Trials`], a model number in [`ResolvedTrials`].
    pub enroll: u32,
    /// The test utterance: a name number in [`Trials`], an utterance number in [`ResolvedTrials`].
    pub test: u32,
    /// True when both are the same speaker.
    pub target: bool,
}

/// A trial list as in its file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trials {
    /// File it came from, for messages.
    pub source: PathBuf,
    /// Every name that occurs, once.
    pub names: Vec<String>,
    /// The trials in file order.
    pub trials: Vec<Trial>,
}

/// An enrollment map: models of one or more utterances.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Enrollments {
    /// File it came from, for messages.
    pub source: PathBuf,
    /// `(model, its utterances)` in file order.
    pub models: Vec<(String, Vec<String>)>,
}

/// Trials with every name replaced by utterance numbers of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResolvedTrials {
    /// Utterance numbers of each enrollment model.
    pub models: Vec<Vec<usize>>,
    /// `enroll` is a model number, `test` an utterance number.
    pub trials: Vec<Trial>,
}

fn label(field: &str) -> Option<bool> {
    match field {
        "1" | "target" => Some(true),
        "0" | "nontarget" => Some(false),
        _ => None,
    }
}

/// What a trial list and an enrollment map have in common where they name the same model: CN-Celeb-E is in use with
/// `id00800-enroll`, with `enroll/id00800-enroll.wav` and with `id00800`.
fn model_key(name: &str) -> &str {
    let name = stem(name);
    let name = name.strip_prefix("enroll/").unwrap_or(name);
    name.strip_suffix("-enroll").unwrap_or(name)
}

/// Calls `each(line number, fields)` for every line that is not blank.
fn for_lines(mut reader: impl BufRead, name: &Path, mut each: impl FnMut(u64, &[&str]) -> Result<()>) -> Result<()> {
    let mut text = String::new();
    for line in 1.. {
        text.clear();
        let read = reader.read_line(&mut text).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidData => Error::line(name, line, "not UTF-8 text"),
            _ => Error::io(name)(error),
        })?;
        if read == 0 {
            break;
        }
        let words = if line == 1 { text.trim_start_matches(MARK) } else { &text };
        let fields: Vec<&str> = match words.trim().split('\t').collect::<Vec<_>>() {
            fields if fields.len() == 3 => fields,
            _ => words.split_whitespace().collect(),
        };
        if !fields.is_empty() {
            each(line, &fields)?;
        }
    }
    Ok(())
}

impl Trials {
    /// Reads a trial list of either form.
    pub fn read(path: &Path) -> Result<Self> {
        Self::parse(BufReader::with_capacity(1 << 18, ShortLines::new(open_regular(path)?)), path)
    }

    /// Parses a trial list; `name` is for messages.
    pub fn parse(reader: impl BufRead, name: &Path) -> Result<Self> {
        let mut list = Self { source: name.to_owned(), ..Self::default() };
        let mut numbers: HashMap<String, u32> = HashMap::new();
        let mut label_first = None;
        for_lines(reader, name, |line, fields| {
            let &[a, b, c] = fields else {
                let problem = format!("{} fields; expected '1 enroll test' or 'enroll test 1'", fields.len());
                return Err(Error::line(name, line, problem));
            };
            let first = *label_first.get_or_insert(label(a).is_some());
            let (truth, enroll, test) = if first { (a, b, c) } else { (c, a, b) };
            let target = label(truth).ok_or_else(|| {
                Error::line(name, line, format!("label '{truth}'; expected 1 or target, 0 or nontarget"))
            })?;
            let mut number = |text: &str| match numbers.get(text) {
                Some(&known) => known,
                None => {
                    let new = list.names.len() as u32;
                    list.names.push(text.to_owned());
                    numbers.insert(text.to_owned(), new);
                    new
                }
            };
            let (enroll, test) = (number(enroll), number(test));
            list.trials.push(Trial { enroll, test, target });
            Ok(())
        })?;
        if list.trials.is_empty() {
            return Err(Error::format(name, "no trials in it"));
        }
        Ok(list)
    }

    /// Replaces names by numbers of `manifest`'s utterances. Enrollment names are looked up in `enrollments` first, if
    /// given.
    pub fn resolve(&self, manifest: &Manifest, enrollments: Option<&Enrollments>) -> Result<ResolvedTrials> {
        let index = NameIndex::new(manifest);
        let mut by_model: HashMap<&str, Vec<usize>> = HashMap::new();
        if let Some(map) = enrollments {
            let mut unknown = Unknown::default();
            for (at, (model, names)) in map.models.iter().enumerate() {
                let numbers = names.iter().filter_map(|name| unknown.note(index.get(name), name, at + 1)).collect();
                by_model.insert(model_key(model), numbers);
            }
            unknown.check(&map.source)?;
        }
        let mut models: Vec<Vec<usize>> = Vec::new();
        let (mut model_of, mut test_of) = (vec![None; self.names.len()], vec![None; self.names.len()]);
        let (mut trials, mut unknown) = (Vec::with_capacity(self.trials.len()), Unknown::default());
        for (at, trial) in self.trials.iter().enumerate() {
            let (enroll, test) = (trial.enroll as usize, trial.test as usize);
            if model_of[enroll].is_none() {
                let name = &self.names[enroll];
                let utterances = by_model
                    .get(model_key(name))
                    .cloned()
                    .or_else(|| index.enrollment(name).map(|number| vec![number]));
                model_of[enroll] = unknown.note(utterances, name, at + 1).map(|utterances| {
                    models.push(utterances);
                    models.len() as u32 - 1
                });
            }
            if test_of[test].is_none() {
                let name = &self.names[test];
                test_of[test] = unknown.note(index.get(name), name, at + 1).map(|number| number as u32);
            }
            if let (Some(enroll), Some(test)) = (model_of[enroll], test_of[test]) {
                trials.push(Trial { enroll, test, target: trial.target });
            }
        }
        unknown.check(&self.source)?;
        Ok(ResolvedTrials { models, trials })
    }
}

/// Collects the names that were not found, for one message about all of them.
#[derive(Default)]
struct Unknown(Vec<(String, usize)>);

impl Unknown {
    fn note<T>(&mut self, found: Option<T>, name: &str, entry: usize) -> Option<T> {
        if found.is_none() {
            self.0.push((name.to_owned(), entry));
        }
        found
    }

    fn check(mut self, list: &Path) -> Result<()> {
        let Some((first, entry)) = self.0.first().cloned() else { return Ok(()) };
        self.0.sort();
        self.0.dedup_by(|a, b| a.0 == b.0);
        Err(Error::UnknownNames { list: list.to_owned(), count: self.0.len(), first, entry })
    }
}

impl Enrollments {
    /// Reads an enrollment map (`enroll.map`, or CN-Celeb's `enroll.lst` with one utterance per model).
    pub fn read(path: &Path) -> Result<Self> {
        Self::parse(BufReader::new(ShortLines::new(open_regular(path)?)), path)
    }

    /// Parses an enrollment map; `name` is for messages.
    pub fn parse(reader: impl BufRead, name: &Path) -> Result<Self> {
        let mut map = Self { source: name.to_owned(), models: Vec::new() };
        let mut lines = HashMap::new();
        for_lines(reader, name, |line, fields| {
            let (model, utterances) = (fields[0], &fields[1..]);
            if utterances.is_empty() {
                return Err(Error::line(
                    name,
                    line,
                    format!("model '{model}' has no utterances; expected 'model path1 path2 …'"),
                ));
            }
            if let Some(before) = lines.insert(model_key(model).to_owned(), line) {
                return Err(Error::line(name, line, format!("model '{model}' is already on line {before}")));
            }
            map.models.push((model.to_owned(), utterances.iter().map(ToString::to_string).collect()));
            Ok(())
        })?;
        if map.models.is_empty() {
            return Err(Error::format(name, "no models in it"));
        }
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trials(text: &str) -> Result<Trials> {
        Trials::parse(text.as_bytes(), Path::new("t.txt"))
    }

    fn manifest(paths: &[&str]) -> Manifest {
        let text = paths.iter().fold("path,speaker\n".to_owned(), |text, path| text + path + ",s\n");
        Manifest::parse(text.as_bytes(), Path::new("m.csv"), Path::new("/data")).unwrap()
    }

    #[test]
    fn both_published_forms_give_the_same_trials() {
        let vox = trials("1 a/1.wav a/2.wav\n0 a/1.wav b/1.wav\n\n").unwrap();
        let cn = trials("a/1.wav a/2.wav 1\na/1.wav b/1.wav 0\n").unwrap();
        let kaldi = trials("a/1.wav a/2.wav target\r\na/1.wav b/1.wav nontarget\r\n").unwrap();
        assert_eq!((vox.trials.len(), vox.names.len()), (2, 3));
        assert_eq!(vox, cn);
        assert_eq!(vox, kaldi);
        let marked = trials("\u{feff}1 a/1.wav a/2.wav\n0 a/1.wav b/1.wav\n").unwrap();
        assert_eq!(vox, marked, "a byte order mark is no part of the first label");
        let map = |text: &str| Enrollments::parse(text.as_bytes(), Path::new("e.map")).unwrap().models[0].0.clone();
        assert_eq!(map("\u{feff}m a/1\n"), "m");
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let message = |text: &str| trials(text).unwrap_err().to_string();
        assert_eq!(message("1 a b\n2 a b\n"), "t.txt, line 2: label '2'; expected 1 or target, 0 or nontarget");
        assert_eq!(message("1 a b\n\n0 a\n"), "t.txt, line 3: 2 fields; expected '1 enroll test' or 'enroll test 1'");
        assert_eq!(message("\n"), "t.txt: no trials in it");
        let map = |text: &str| Enrollments::parse(text.as_bytes(), Path::new("e.map")).unwrap_err().to_string();
        assert_eq!(map("m a b\nm c\n"), "e.map, line 2: model 'm' is already on line 1");
        assert_eq!(map("m\n"), "e.map, line 1: model 'm' has no utterances; expected 'model path1 path2 …'");
    }

    #[test]
    fn names_resolve_without_their_extension_and_through_the_map() {
        let manifest = manifest(&["a/1.flac", "a/2.flac", "b/1.flac"]);
        let resolved = trials("1 a/1.wav a/2.wav\n0 a/1.wav b/1.m4a\n").unwrap().resolve(&manifest, None).unwrap();
        assert_eq!(resolved.models, [[0]]);
        assert_eq!(resolved.trials[1], Trial { enroll: 0, test: 2, target: false });
        let map = Enrollments::parse(&b"model a/1 a/2.flac\n"[..], Path::new("e.map")).unwrap();
        let resolved = trials("model b/1.flac 0\n").unwrap().resolve(&manifest, Some(&map)).unwrap();
        assert_eq!(resolved.models, [[0, 1]]);
    }

    #[test]
    fn a_model_is_the_same_in_every_way_that_cn_celeb_is_written() {
        let manifest = manifest(&["a/1.flac", "a/2.flac", "test/b.flac", "enroll/a-enroll.flac"]);
        for model in ["a-enroll", "enroll/a-enroll.wav", "a"] {
            let map = Enrollments::parse(format!("{model} a/1.wav a/2\n").as_bytes(), Path::new("e.map")).unwrap();
            for enroll in ["a-enroll", "enroll/a-enroll.wav", "a-enroll.wav"] {
                let list = trials(&format!("{enroll} test/b.wav 0\n")).unwrap();
                let resolved = list.resolve(&manifest, Some(&map)).unwrap();
                assert_eq!(resolved.models, [[0, 1]], "{enroll} in the trials, {model} in the map");
                assert_eq!(list.resolve(&manifest, None).unwrap().models, [[3]], "{enroll} without a map");
            }
        }
    }

    #[test]
    fn unknown_names_are_counted_and_the_first_is_named() {
        let error =
            trials("1 a/1 a/9\n1 a/1 a/9\n0 c/1 a/1\n").unwrap().resolve(&manifest(&["a/1.wav"]), None).unwrap_err();
        assert_eq!(error.to_string(), "t.txt: 2 names have no audio, the first is 'a/9' (entry 1)");
        assert!(error.is_user_mistake() && error.hint().is_some());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Trials::parse(&bytes[..], Path::new("t"));
            let _ = Enrollments::parse(&bytes[..], Path::new("e"));
        }

        #[test]
        fn every_valid_line_becomes_one_trial(
            pairs in proptest::collection::vec(("[a-f]{1,3}", "[a-f]{1,3}", any::<bool>()), 1..40),
        ) {
            let text: String = pairs.iter().map(|(a, b, t)| format!("{} {a} {b}\n", u8::from(*t))).collect();
            let list = trials(&text).unwrap();
            let name = |number: u32| list.names[number as usize].clone();
            let back: Vec<_> = list.trials.iter().map(|t| (name(t.enroll), name(t.test), t.target)).collect();
            prop_assert_eq!(back, pairs);
        }
    }
}
