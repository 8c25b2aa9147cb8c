//! A corpus and a network small enough that a whole run takes a second.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bregman_speaker::{SynthConfig, SynthCorpus};
use bregman_train::{Experiment, Observer, Result, StepRecord, Trainer, TrainingOutcome};
use serde_json::Value;

/// Five synthetic speakers, eight utterances each.
pub(crate) fn corpus(folder: &Path) {
    let config = SynthConfig { speakers: 6, utterances: 8, held_out: 1, seconds: [0.7, 0.8], ..SynthConfig::default() };
    SynthCorpus::new(config).unwrap().write(folder, false, &()).unwrap();
}

/// A tiny ResNet on that corpus: four epochs of eight steps.
pub(crate) fn recipe(root: &Path, method: &str, settings: &[&str]) -> Experiment {
    let text = format!(
        "[model]\nkind = \"resnet\"\nblocks = [1, 1, 1, 1]\nchannels = 4\nembedding = 16\n\
         [data]\nroot = \"{}\"\nseconds = 0.3\nvalidation = 0.2\nfeatures = {{ bins = 16 }}\n\
         [train]\nepochs = 4\nbatch = 8\n[method]\n{method}\n",
        root.display()
    );
    Experiment::parse(&text, "test", settings).unwrap()
}

/// Runs an experiment to its end.
pub(crate) fn train(experiment: Experiment, run: &Path) -> Result<TrainingOutcome> {
    Trainer::new(experiment, run, &())?.run(&AtomicBool::new(false))
}

/// Asks a run to stop after this many of its steps, and notes where it began.
pub(crate) struct StopAfter {
    pub(crate) steps: u64,
    pub(crate) began: AtomicU64,
    taken: AtomicU64,
    pub(crate) stop: AtomicBool,
}

impl StopAfter {
    pub(crate) fn new(steps: u64) -> Self {
        Self { steps, began: AtomicU64::new(0), taken: AtomicU64::new(0), stop: AtomicBool::new(false) }
    }
}

impl Observer for StopAfter {
    fn begin(&self, step: u64, _: u64) {
        self.began.store(step, Ordering::Relaxed);
    }

    fn step(&self, _: &StepRecord) {
        if self.taken.fetch_add(1, Ordering::Relaxed) + 1 >= self.steps {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// The lines of a run's log without what depends on the clock.
pub(crate) fn metrics(run: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let timeless = |line: &str| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        let fields = value.as_object_mut().unwrap();
        fields.remove("utterances_per_second");
        fields.remove("seconds");
        value
    };
    text.lines().map(timeless).collect()
}

/// The weights of a checkpoint, byte for byte.
pub(crate) fn weights(run: &Path, checkpoint: &str) -> Vec<u8> {
    std::fs::read(run.join(checkpoint).join("model.safetensors")).unwrap()
}

/// Fails with the first line that differs, not with both logs.
pub(crate) fn assert_same_metrics(a: &Path, b: &Path, what: &str) {
    let (a, b) = (metrics(a), metrics(b));
    for (line, (a, b)) in a.iter().zip(&b).enumerate() {
        assert_eq!(a, b, "{what}, line {}", line + 1);
    }
    assert_eq!(a.len(), b.len(), "{what}");
}
