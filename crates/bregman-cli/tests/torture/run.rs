//! A training small enough to be killed two hundred times, and when two runs of it are the same.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::common::{command, errors, success, synth, text, timeless_metrics};

/// A corpus, a recipe, and an unbroken run of it.
pub(crate) struct Place {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) recipe: PathBuf,
    pub(crate) whole: PathBuf,
    /// Threads of the program. With one its calls come in the same order each time.
    pub(crate) threads: usize,
}

impl Place {
    pub(crate) fn new(epochs: u32, threads: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [voices, recipe, whole] = ["voices", "recipe.toml", "whole"].map(|name| dir.path().join(name));
        synth(&voices, [6, 8, 2], ["0.7", "0.8"]);
        let settings = format!(
            "[model]\nkind = \"resnet\"\nblocks = [1, 1, 1, 1]\nchannels = 4\nembedding = 16\n\
             [data]\nroot = {voices:?}\nseconds = 0.3\nvalidation = 0.2\nfeatures = {{ bins = 16 }}\n\
             [train]\nepochs = {epochs}\nbatch = 4\nsave_every = 3\n[select]\naverage = 3\ntolerance = 0.5\n\
             [method]\nkind = \"adaptive\"\ntarget = 0.9\noptimizer = {{ kind = \"adabreg\" }}\n\
             law = {{ kind = \"density\" }}\ngroups = [{{ initial_sparsity = 0.5 }}]\n"
        );
        std::fs::write(&recipe, settings).unwrap();
        let place = Self { dir, recipe, whole, threads };
        success(&place.bregman(&place.train(&place.whole)));
        assert!(place.whole.join("average/model.safetensors").is_file(), "the run averages its best epochs");
        place
    }

    /// Runs the program to its end.
    pub(crate) fn bregman(&self, args: &[&str]) -> Output {
        command(args).env("RAYON_NUM_THREADS", self.threads.to_string()).output().unwrap()
    }

    /// The arguments that begin or continue the run in this folder.
    pub(crate) fn train<'a>(&'a self, run: &'a Path) -> [&'a str; 5] {
        ["train", text(&self.recipe), "--out", text(run), "--resume"]
    }

    /// Continues the run to its end. Fails unless that begins where it was saved and ends as the unbroken run did.
    pub(crate) fn finish(&self, run: &Path, what: &str) {
        let saved = saved(run);
        let output = self.bregman(&self.train(run));
        success(&output);
        assert_continues(saved, &errors(&output), what);
        self.assert_whole(run, what);
    }

    /// Fails unless `run` equals the unbroken run: metrics, checkpoints, and nothing else left in the folder.
    pub(crate) fn assert_whole(&self, run: &Path, what: &str) {
        assert_eq!(timeless_metrics(run), timeless_metrics(&self.whole), "{what}");
        for checkpoint in ["last", "best", "average", "top"] {
            let [found, expected] = [run, &self.whole].map(|run| files(&run.join(checkpoint)));
            assert!(found.keys().eq(expected.keys()), "{checkpoint}: {:?}, {what}", found.keys());
            for (name, bytes) in &expected {
                assert!(found[name] == *bytes, "{checkpoint}/{name} differs, {what}");
            }
        }
        // killed in its first moments, a run has no record of its command
        let names = |run: &Path| {
            let names = std::fs::read_dir(run).unwrap().map(|entry| entry.unwrap().file_name());
            names.filter(|name| name != "command.json").collect::<BTreeSet<_>>()
        };
        assert_eq!(names(run), names(&self.whole), "{what}");
    }
}

/// The step of the furthest checkpoint of a run, be it in the middle of a replacement.
pub(crate) fn saved(run: &Path) -> u64 {
    let step = |folder: &str| -> Option<u64> {
        let state = std::fs::read(run.join(folder).join("state.json")).ok()?;
        serde_json::from_slice::<Value>(&state).unwrap()["step"].as_u64()
    };
    ["last", "last.old", "best"].into_iter().filter_map(step).max().unwrap_or(0)
}

/// Fails if a training says on standard error that it begins before the step `saved`.
pub(crate) fn assert_continues(saved: u64, said: &str, what: &str) {
    let begins = said.lines().find_map(|line| line.strip_prefix("steps: ")?.split(' ').next()?.parse::<u64>().ok());
    assert!(begins.is_none_or(|step| step >= saved), "continues at {begins:?}, saved at {saved}: {what}");
}

/// The files of a folder without what depends on the clock.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let timeless = |path: PathBuf| {
        let mut bytes = std::fs::read(&path).unwrap();
        if path.ends_with("state.json") {
            let mut state: Value = serde_json::from_slice(&bytes).unwrap();
            state.as_object_mut().unwrap().retain(|field, _| field != "seconds" && field != "logged");
            bytes = state.to_string().into_bytes();
        }
        (path.file_name().unwrap().to_string_lossy().into_owned(), bytes)
    };
    std::fs::read_dir(folder).unwrap().map(|entry| timeless(entry.unwrap().path())).collect()
}
