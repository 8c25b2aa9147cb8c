//! `metrics.jsonl`, line by line. A line that is cut off or garbled is left out and told; a number that is none
//! (`null`) becomes NaN.

use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;

use serde::Deserialize;

use super::curves::{METRICS, Steps};

/// A line of an epoch.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(super) struct EpochLine {
    pub(super) step: u64,
    pub(super) epoch: u64,
    pub(super) train_loss: Option<f64>,
    pub(super) train_accuracy: Option<f64>,
    pub(super) validation_loss: Option<f64>,
    pub(super) validation_accuracy: Option<f64>,
    pub(super) lambda: Option<f64>,
    pub(super) sparsity: Option<f64>,
    pub(super) seconds: Option<f64>,
    pub(super) groups: Vec<(String, Option<f64>)>,
    pub(super) layers: Vec<LayerLine>,
    pub(super) dead: Vec<String>,
}

/// A weight tensor in it.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(super) struct LayerLine {
    pub(super) name: String,
    pub(super) shape: Vec<u64>,
    pub(super) sparsity: Option<f64>,
    pub(super) live: u64,
    pub(super) norm: Option<f64>,
}

/// A line of a step.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StepLine {
    step: u64,
    loss: Option<f64>,
    accuracy: Option<f64>,
    lambda: Option<f64>,
    sparsity: Option<f64>,
    target: Option<f64>,
    epsilon: Option<f64>,
    lr: Option<f64>,
    margin: Option<f64>,
    gradient_norm: Option<f64>,
    utterances_per_second: Option<f64>,
}

impl StepLine {
    /// In the order of [`METRICS`].
    fn values(&self) -> [f64; METRICS.len()] {
        let all = [
            self.loss,
            self.accuracy,
            self.lambda,
            self.sparsity,
            self.target,
            self.epsilon,
            self.lr,
            self.margin,
            self.gradient_norm,
            self.utterances_per_second,
        ];
        all.map(|value| value.unwrap_or(f64::NAN))
    }
}

/// What the file holds.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    pub(super) steps: Steps,
    pub(super) epochs: Vec<EpochLine>,
    /// What could not be read.
    pub(super) problems: Vec<String>,
}

impl Metrics {
    pub(super) fn read(path: &Path) -> Self {
        let mut metrics = Self::default();
        let file = match std::fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                metrics.problems.push("metrics.jsonl is missing: nothing has been logged yet".to_owned());
                return metrics;
            }
            Err(error) => {
                metrics.problems.push(format!("metrics.jsonl cannot be read: {error}"));
                return metrics;
            }
        };
        let (mut reader, mut line, mut number) = (BufReader::with_capacity(1 << 20, file), Vec::new(), 0);
        let mut garbled: Vec<usize> = Vec::new();
        loop {
            line.clear();
            match reader.read_until(b'\n', &mut line) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    metrics.problems.push(format!("metrics.jsonl cannot be read beyond line {number}: {error}"));
                    break;
                }
            }
            number += 1;
            if metrics.line(&line).is_none() {
                if line.ends_with(b"\n") {
                    garbled.push(number);
                } else {
                    let text = "the last line of metrics.jsonl is cut off and left out: the run is being written, or \
                        was killed";
                    metrics.problems.push(text.to_owned());
                }
            }
        }
        if let Some(first) = garbled.first() {
            let many = garbled.len();
            let text = match many {
                1 => format!("line {first} of metrics.jsonl cannot be understood and is left out"),
                _ => format!(
                    "{many} lines of metrics.jsonl cannot be understood and are left out; the first is line {first}"
                ),
            };
            metrics.problems.push(text);
        }
        if metrics.steps.is_empty() && metrics.epochs.is_empty() && metrics.problems.is_empty() {
            metrics.problems.push("metrics.jsonl is empty: nothing has been logged yet".to_owned());
        }
        metrics
    }

    /// `None` for a line that says nothing we know.
    fn line(&mut self, line: &[u8]) -> Option<()> {
        // The writer puts `kind` first; looking for it saves parsing every line twice.
        if line.starts_with(b"{\"kind\":\"step\"") {
            let step: StepLine = serde_json::from_slice(line).ok()?;
            self.steps.push(step.step, step.values());
            return Some(());
        }
        #[derive(Deserialize)]
        struct Kind {
            kind: String,
        }
        match serde_json::from_slice::<Kind>(line).ok()?.kind.as_str() {
            "step" => {
                let step: StepLine = serde_json::from_slice(line).ok()?;
                self.steps.push(step.step, step.values());
            }
            "epoch" => self.epochs.push(serde_json::from_slice(line).ok()?),
            _ => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Metrics {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        std::fs::write(&path, text).unwrap();
        Metrics::read(&path)
    }

    #[test]
    fn a_cut_last_line_is_left_out_and_told() {
        let metrics = read("{\"kind\":\"step\",\"step\":1,\"loss\":2.5}\n{\"kind\":\"step\",\"step\":2,\"lo");
        assert_eq!(metrics.steps.step, [1]);
        assert!(metrics.problems.len() == 1 && metrics.problems[0].contains("cut off"), "{:?}", metrics.problems);
    }

    #[test]
    fn a_whole_last_line_counts_even_without_its_line_break() {
        let metrics = read("{\"kind\":\"step\",\"step\":1,\"loss\":2.5}");
        assert_eq!((metrics.steps.step.len(), metrics.problems.len()), (1, 0));
    }

    #[test]
    fn garbled_lines_are_counted_and_the_first_is_named() {
        let metrics = read(
            "{\"kind\":\"step\",\"step\":1}\nrubbish\n\u{0}\n{\"step\":3,\"kind\":\"step\",\"loss\":null}\n\
             {\"kind\":\"new\"}\n",
        );
        assert_eq!(metrics.steps.step, [1, 3]);
        assert_eq!(
            metrics.problems,
            ["2 lines of metrics.jsonl cannot be understood and are left out; the first is line 2"]
        );
    }

    #[test]
    fn an_empty_or_missing_file_says_so() {
        assert!(read("").problems[0].contains("empty"));
        assert!(Metrics::read(Path::new("/nowhere/metrics.jsonl")).problems[0].contains("missing"));
    }
}
