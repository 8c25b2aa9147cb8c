//! `metrics.jsonl`: one record per line, only ever appended to.
//!
//! Reading is lenient, because the run may be writing at this moment or may have been killed: a line that is cut off
//! or damaged is skipped and reported.

use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;

use bregman_base::files::{ShortLines, open_regular};
use serde::{Deserialize, Serialize};

use super::format::{self, RUN_FORMAT};
use super::{EpochRecord, StepRecord};

/// One line of `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq)]
pub enum MetricsRecord {
    /// The first line: the format of all others.
    Run {
        /// The format number.
        format: u32,
    },
    /// A step.
    Step(StepRecord),
    /// An epoch.
    Epoch(EpochRecord),
}

/// A record with its kind before its fields.
#[derive(Serialize)]
struct Line<'a, T> {
    kind: &'static str,
    #[serde(flatten)]
    record: &'a T,
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Start {
    format: u32,
}

/// Whatever else is in a line.
#[derive(Deserialize)]
struct Kind {
    kind: String,
}

/// The first line of a log.
pub(super) fn start_line() -> String {
    line("run", &Start { format: RUN_FORMAT })
}

/// The line of a step.
pub(super) fn step_line(record: &StepRecord) -> String {
    line("step", record)
}

/// The line of an epoch.
pub(super) fn epoch_line(record: &EpochRecord) -> String {
    line("epoch", record)
}

fn line(kind: &'static str, record: &impl Serialize) -> String {
    serde_json::to_string(&Line { kind, record }).expect("records are plain data") + "\n"
}

/// The record of a line: an error for a damaged line, `None` for a kind that this program does not know.
fn parse(line: &[u8]) -> serde_json::Result<Option<MetricsRecord>> {
    // The writer puts `kind` first; looking for it saves parsing every step twice.
    if line.starts_with(b"{\"kind\":\"step\"") {
        return serde_json::from_slice(line).map(|step| Some(MetricsRecord::Step(step)));
    }
    Ok(match serde_json::from_slice::<Kind>(line)?.kind.as_str() {
        "run" => Some(MetricsRecord::Run { format: serde_json::from_slice::<Start>(line)?.format }),
        "step" => Some(MetricsRecord::Step(serde_json::from_slice(line)?)),
        "epoch" => Some(MetricsRecord::Epoch(serde_json::from_slice(line)?)),
        _ => None,
    })
}

/// Calls `each` with every record of `path` in order; returns what could not be read.
pub fn read_metrics(path: &Path, mut each: impl FnMut(MetricsRecord)) -> Vec<String> {
    let name = path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
    let file = match open_regular(path).map_err(|error| error.source) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return vec![format!("{name} is missing: nothing has been logged yet")];
        }
        Err(error) => return vec![format!("{name} cannot be read: {error}")],
    };
    let (mut reader, mut line, mut number) = (BufReader::with_capacity(1 << 20, ShortLines::new(file)), Vec::new(), 0);
    let (mut problems, mut damaged, mut empty) = (Vec::new(), Vec::new(), true);
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => number += 1,
            Err(error) => {
                problems.push(format!("{name} cannot be read beyond line {number}: {error}"));
                break;
            }
        }
        match parse(&line) {
            Ok(Some(MetricsRecord::Run { format })) => {
                if let Err(error) = format::check(Some(format), &name) {
                    problems.push(error.to_string());
                    break;
                }
                each(MetricsRecord::Run { format });
            }
            Ok(Some(record)) => {
                empty = false;
                each(record);
            }
            Ok(None) => {}
            Err(_) if line.ends_with(b"\n") => damaged.push(number),
            Err(_) => problems.push(format!(
                "the last line of {name} is cut off and left out: the run is being written, or was killed"
            )),
        }
    }
    if let Some(first) = damaged.first() {
        problems.push(match damaged.len() {
            1 => format!("line {first} of {name} cannot be understood and is left out"),
            many => format!("{many} lines of {name} cannot be understood and are left out; the first is line {first}"),
        });
    }
    if empty && problems.is_empty() {
        problems.push(format!("{name} is empty: nothing has been logged yet"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<MetricsRecord>, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        std::fs::write(&path, text).unwrap();
        let mut records = Vec::new();
        let problems = read_metrics(&path, |record| records.push(record));
        (records, problems)
    }

    fn steps(records: &[MetricsRecord]) -> Vec<u64> {
        let step = |record: &MetricsRecord| match record {
            MetricsRecord::Step(step) => Some(step.step),
            _ => None,
        };
        records.iter().filter_map(step).collect()
    }

    #[test]
    fn what_is_written_is_read_back_and_nan_stays_nan() {
        let step = StepRecord {
            step: 1,
            epoch: 1,
            loss: f64::NAN,
            accuracy: 0.1,
            lambda: None,
            sparsity: 0.9,
            target: Some(0.95),
            epsilon: Some(0.05),
            lr: 0.1,
            margin: 0.2,
            survived: Some(0.5),
            gradient_norm: 3.0,
            utterances_per_second: 70.0,
        };
        let (records, problems) = read(&(start_line() + &step_line(&step)));
        assert_eq!((records.len(), problems.len()), (2, 0));
        assert_eq!(records[0], MetricsRecord::Run { format: RUN_FORMAT });
        let MetricsRecord::Step(read) = &records[1] else { panic!("{records:?}") };
        assert!(read.loss.is_nan());
        assert_eq!(StepRecord { loss: 0.0, ..read.clone() }, StepRecord { loss: 0.0, ..step });
    }

    #[test]
    fn the_words_of_runs_without_a_format_number_are_read() {
        let layer = "{\"name\":\"a\",\"shape\":[2,3],\"sparsity\":1.0,\"live\":5,\"norm\":0.5}";
        let line = format!("{{\"kind\":\"epoch\",\"step\":9,\"epoch\":1,\"layers\":[{layer}],\"dead\":[\"b\"]}}\n");
        let (records, problems) = read(&line);
        assert!(problems.is_empty(), "{problems:?}");
        let MetricsRecord::Epoch(epoch) = &records[0] else { panic!("{records:?}") };
        assert_eq!((epoch.layers[0].nonzero, epoch.layers[0].len(), &*epoch.all_zero[0]), (5, 6, "b"));
        assert!(epoch.train_loss.is_nan());
    }

    #[test]
    fn a_log_of_a_newer_format_is_refused_by_name() {
        let (records, problems) = read("{\"kind\":\"run\",\"format\":2}\n{\"kind\":\"step\",\"step\":1}\n");
        assert!(records.is_empty() && problems[0].contains("metrics.jsonl: written in format 2"), "{problems:?}");
    }

    #[test]
    fn a_cut_last_line_is_left_out_and_reported() {
        let (records, problems) =
            read("{\"kind\":\"step\",\"step\":1,\"loss\":2.5}\n{\"kind\":\"step\",\"step\":2,\"lo");
        assert_eq!(steps(&records), [1]);
        assert!(problems.len() == 1 && problems[0].contains("cut off"), "{problems:?}");
    }

    #[test]
    fn a_whole_last_line_counts_even_without_its_line_break() {
        let (records, problems) = read("{\"kind\":\"step\",\"step\":1,\"loss\":2.5}");
        assert_eq!((records.len(), problems.len()), (1, 0));
    }

    #[test]
    fn damaged_lines_are_counted_and_the_first_is_named() {
        let (records, problems) = read(
            "{\"kind\":\"step\",\"step\":1}\nrubbish\n\u{0}\n{\"step\":3,\"kind\":\"step\",\"loss\":null}\n\
             {\"kind\":\"new\"}\n",
        );
        assert_eq!(steps(&records), [1, 3]);
        assert_eq!(problems, ["2 lines of metrics.jsonl cannot be understood and are left out; the first is line 2"]);
    }

    #[test]
    fn an_empty_or_missing_file_says_so() {
        for text in ["", &start_line()] {
            assert!(read(text).1[0].contains("empty"));
        }
        assert!(read_metrics(Path::new("/nowhere/metrics.jsonl"), |_| {})[0].contains("missing"));
    }
}
