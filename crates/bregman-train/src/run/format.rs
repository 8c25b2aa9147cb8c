//! The format number that every file of a run carries: a file of a later program is refused by name instead of being
//! misread. Files without a number are those of runs from before there was one; they are read as format 1.
//!
//! | file | where the number stands |
//! | --- | --- |
//! | `*.json` | the field `format` |
//! | `metrics.jsonl` | the first line, `{"kind":"run","format":1}` |
//! | `config.toml` | the key `format` |
//! | `*.safetensors` | the metadata `bregman_run_format` |

use std::collections::HashMap;
use std::path::Path;

use bregman_base::files::read_text;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Error, Experiment, Result};

/// The format in which this program writes the files of a run, and the newest that it reads.
pub const RUN_FORMAT: u32 = 1;

/// The largest record that is read: an evaluation that lists a million unreadable files.
pub(crate) const MOST_BYTES: u64 = 1 << 28;

/// Its name in the metadata of safetensors files, where others already use `format`.
const METADATA: &str = "bregman_run_format";

/// A record with the format number before its fields.
#[derive(Serialize)]
struct Numbered<'a, T> {
    format: u32,
    #[serde(flatten)]
    record: &'a T,
}

/// Whatever else is in a record.
#[derive(Deserialize)]
struct Number {
    format: Option<u32>,
}

/// A record as JSON that people can read.
pub(crate) fn to_json(record: &impl Serialize) -> String {
    let numbered = Numbered { format: RUN_FORMAT, record };
    serde_json::to_string_pretty(&numbered).expect("records are plain data") + "\n"
}

/// A record as JSON on one line.
pub(crate) fn to_json_line(record: &impl Serialize) -> String {
    serde_json::to_string(&Numbered { format: RUN_FORMAT, record }).expect("records are plain data")
}

/// The resolved recipe of a run.
pub(crate) fn to_toml(experiment: &Experiment) -> String {
    format!("format = {RUN_FORMAT}\n{}", experiment.to_toml())
}

/// Reads a record that [`to_json`] or [`to_json_line`] wrote.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = read_text(path, MOST_BYTES)?;
    let wrong = |error: serde_json::Error| Error::checkpoint(path, error.to_string());
    let Number { format } = serde_json::from_str(&text).map_err(wrong)?;
    check(format, &path.display().to_string())?;
    serde_json::from_str(&text).map_err(wrong)
}

/// The metadata of a safetensors file.
pub(crate) fn metadata() -> HashMap<String, String> {
    HashMap::from([(METADATA.to_owned(), RUN_FORMAT.to_string())])
}

/// The number in the metadata of a safetensors file.
pub(crate) fn of_metadata(metadata: &Option<HashMap<String, String>>) -> Option<u32> {
    metadata.as_ref()?.get(METADATA)?.parse().ok()
}

/// Refuses the format of a later program.
pub(crate) fn check(format: Option<u32>, origin: &str) -> Result<()> {
    match format {
        Some(found) if found > RUN_FORMAT => {
            Err(Error::NewerFormat { origin: origin.to_owned(), found, newest: RUN_FORMAT })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Record {
        value: f64,
    }

    #[test]
    fn a_record_is_read_with_its_number_without_one_and_refused_with_a_newer_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record.json");
        let record = Record { value: 0.1 };
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read_json::<Record>(&path)
        };
        assert!(to_json_line(&record).contains("\"format\":1"));
        for text in [to_json(&record), to_json_line(&record), "{\"value\": 0.1}".to_owned()] {
            assert_eq!(read(&text).unwrap(), record);
        }
        let newer = read("{\"format\": 7, \"worth\": 0.1}").unwrap_err();
        let message = newer.to_string();
        assert!(message.contains("record.json") && message.contains("format 7"), "{message}");
        assert!(newer.is_user_mistake() && newer.hint().unwrap().contains("newer bregman"));
    }
}
