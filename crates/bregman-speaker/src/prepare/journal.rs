//! The journal of an unfinished `prepare`: the durations measured so far, safe against being killed at any byte.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bregman_base::files::append_after;

use crate::{Error, Result};

/// Duration in seconds, or why it is unknown.
pub(crate) type MeasuredSeconds = std::result::Result<f64, String>;

/// Measurements of an unfinished run: `id,seconds,problem` lines below a title that identifies the run.
pub(crate) struct Journal {
    path: PathBuf,
    file: Mutex<File>,
}

impl Journal {
    /// Opens the journal of the same run and returns its measurements, or starts a new one.
    pub(crate) fn open(path: &Path, title: &str) -> Result<(Self, HashMap<String, MeasuredSeconds>)> {
        let (known, valid) = std::fs::read(path).map_or_else(|_| (HashMap::new(), 0), |bytes| replay(&bytes, title));
        let journal = Self { path: path.to_owned(), file: Mutex::new(append_after(path, valid as u64)?) };
        if valid == 0 {
            journal.line([title, "", ""])?;
        }
        Ok((journal, known))
    }

    pub(crate) fn note(&self, id: &str, measured: &MeasuredSeconds) -> Result<()> {
        match measured {
            Ok(seconds) => self.line([id, &seconds.to_string(), ""]),
            // No line break in the last field: a truncated line could pass for a complete one.
            Err(problem) => self.line([id, "", &problem.replace(['\n', '\r'], " ")]),
        }
    }

    /// Writes one line in one call, so that all lines before it are complete.
    fn line(&self, fields: [&str; 3]) -> Result<()> {
        let mut csv = csv::Writer::from_writer(Vec::new());
        csv.write_record(fields).map_err(|error| Error::format(&self.path, error.to_string()))?;
        let bytes = csv.into_inner().map_err(|error| Error::format(&self.path, error.to_string()))?;
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&bytes).map_err(Error::io(&self.path))
    }
}

/// The complete lines of a journal with this title, and how many bytes they take: the last line may be truncated.
fn replay(bytes: &[u8], title: &str) -> (HashMap<String, MeasuredSeconds>, usize) {
    let mut csv = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(bytes);
    let (mut known, mut valid) = (HashMap::new(), 0);
    let mut record = csv::StringRecord::new();
    while let Ok(true) = csv.read_record(&mut record) {
        let end = csv.position().byte() as usize;
        let whole = record.len() == 3 && bytes[..end].ends_with(b"\n");
        if !whole || (valid == 0 && !record.iter().eq([title, "", ""])) {
            break;
        }
        if valid > 0 {
            let measured = record[1].parse::<f64>().map_err(|_| record[2].to_owned());
            known.insert(record[0].to_owned(), measured);
        }
        valid = end;
    }
    (known, valid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_truncated_journal_returns_its_complete_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        {
            let (journal, known) = Journal::open(&path, "run 1").unwrap();
            assert!(known.is_empty());
            journal.note("a", &Ok(1.5)).unwrap();
            journal.note("b, \"quoted\"\nname", &Err("no, \"really\"".into())).unwrap();
            journal.note("c", &Ok(2.25)).unwrap();
        }
        let bytes = std::fs::read(&path).unwrap();
        for cut in 0..bytes.len() {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let (journal, known) = Journal::open(&path, "run 1").unwrap();
            assert!(
                !known.contains_key("c") && known.get("a").is_none_or(|a| *a == Ok(1.5)),
                "cut at {cut}: {known:?}"
            );
            journal.note("d", &Ok(4.0)).unwrap();
            let (_, again) = Journal::open(&path, "run 1").unwrap();
            assert_eq!(again.len(), known.len() + 1, "cut at {cut}: {again:?}");
        }
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(Journal::open(&path, "run 1").unwrap().1.len(), 3);
        assert!(Journal::open(&path, "run 2").unwrap().1.is_empty());
    }

    proptest! {
        #[test]
        fn an_arbitrary_journal_never_panics(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            titled in any::<bool>(),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("j");
            let mut text = if titled { b"t,,\n".to_vec() } else { Vec::new() };
            text.extend(bytes);
            std::fs::write(&path, text).unwrap();
            Journal::open(&path, "t").unwrap();
        }
    }
}
