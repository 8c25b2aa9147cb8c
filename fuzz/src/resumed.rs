//! A training of a few steps, resumed from whatever state and optimizer an input has.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;

use bregman_speaker::{SynthConfig, SynthCorpus};
use bregman_train::{CheckpointFolder, Experiment, RunFolder, Trainer};

use crate::{BETWEEN, files, folder};

/// A run that was stopped after its first step.
struct Stopped {
    run: PathBuf,
    last: CheckpointFolder,
    /// All of its files.
    files: Vec<(PathBuf, Vec<u8>)>,
}

static STOPPED: LazyLock<Stopped> = LazyLock::new(|| {
    let voices = folder().join("voices");
    let config = SynthConfig { speakers: 3, utterances: 3, held_out: 0, seconds: [0.3, 0.3], ..SynthConfig::default() };
    SynthCorpus::new(config).and_then(|voices| voices.write(&folder().join("voices"), true, &())).expect("voices");
    let recipe = format!(
        "[model]\nkind = \"resnet\"\nblocks = [1, 1, 1, 1]\nchannels = 1\nembedding = 3\n\
         [data]\nroot = {voices:?}\nseconds = 0.2\nvalidation = 0.0\nfeatures = {{ bins = 8 }}\n\
         [train]\nepochs = 2\nbatch = 4\n[method]\nkind = \"adaptive\"\ntarget = 0.5\n\
         optimizer = {{ kind = \"adabreg\" }}\nlaw = {{ kind = \"density\" }}\n\
         groups = [{{ initial_sparsity = 0.5 }}]\n"
    );
    let run = folder().join("stopped");
    let experiment = Experiment::parse(&recipe, "fuzz", &[] as &[&str]).expect("a recipe");
    let trainer = Trainer::new(experiment, &run, &()).expect("a training");
    trainer.run(&AtomicBool::new(true)).expect("a step");
    let mut files = Vec::new();
    for folder in [&run, &run.join("last")] {
        let paths = std::fs::read_dir(folder).expect("a run").map(|entry| entry.expect("a file").path());
        files.extend(paths.filter(|path| path.is_file()).map(|path| (path.clone(), read(&path))));
    }
    Stopped { last: RunFolder::new(&run).last(), run, files }
});

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("the training wrote it")
}

/// State and optimizer of the run as it was stopped.
pub fn stopped() -> Vec<u8> {
    let last = &STOPPED.last;
    [read(&last.state_file()), read(&last.optimizer())].join(BETWEEN)
}

/// Resumes the run with the state and the optimizer of an input, to its end; whether that went well.
pub fn resume(data: &[u8]) -> bool {
    let Stopped { run, last, files: kept } = &*STOPPED;
    let _ = std::fs::remove_dir_all(run);
    std::fs::create_dir_all(last.path()).expect("the folder is writable");
    let [state, optimizer] = files(data);
    let given = [(last.state_file(), state.to_vec()), (last.optimizer(), optimizer.to_vec())];
    for (path, bytes) in kept.iter().chain(&given) {
        std::fs::write(path, bytes).expect("the folder is writable");
    }
    Trainer::resume(run, &()).and_then(|trainer| trainer.run(&AtomicBool::new(false))).is_ok()
}
