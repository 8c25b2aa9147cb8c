//! The files of a run: numbered, readable without a number, refused where a later program wrote them.

mod common;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use bregman_train::{
    CheckpointFolder, Ending, Error, MetricsRecord, RUN_FORMAT, RunFolder, Trained, Trainer, read_metrics,
};
use common::{StopAfter, corpus, metrics, recipe, train, weights};
use serde_json::Value;

const METHOD: &str = "kind = \"adaptive\"\ngroups = [{ initial_sparsity = 0.5 }]\ntarget = 0.9";

fn edit(path: &Path, change: impl FnOnce(String) -> String) {
    let text = std::fs::read_to_string(path).unwrap();
    std::fs::write(path, change(text)).unwrap();
}

fn edit_json(path: &Path, change: impl FnOnce(&mut Value)) {
    edit(path, |text| {
        let mut value: Value = serde_json::from_str(&text).unwrap();
        change(&mut value);
        value.to_string()
    });
}

/// Makes the files of a run what they were before they had a format number.
fn without_numbers(run: &RunFolder) {
    let unnumbered = |text: String| text.replacen(&format!("format = {RUN_FORMAT}\n"), "", 1);
    edit(&run.config(), unnumbered);
    edit(&run.last().config(), unnumbered);
    let text = std::fs::read_to_string(run.metrics()).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    let old = rest.replace("\"nonzero\":", "\"live\":").replace("\"all_zero\":", "\"dead\":");
    std::fs::write(run.metrics(), &old).unwrap();
    assert!(first.contains("\"format\""), "{first}");
    edit_json(&run.last().state_file(), |state| {
        state.as_object_mut().unwrap().remove("format").unwrap();
        state["logged"][0] = old.len().into();
    });
}

/// A run that was stopped in its second epoch.
fn stopped(dir: &Path) -> RunFolder {
    corpus(&dir.join("voices"));
    let stop = StopAfter::new(11);
    let experiment = recipe(&dir.join("voices"), METHOD, &["train.epochs=3"]);
    let ended = Trainer::new(experiment, &dir.join("run"), &stop).unwrap().run(&stop.stop).unwrap();
    assert_eq!(ended.ending, Ending::Interrupted);
    RunFolder::new(dir.join("run"))
}

#[test]
fn every_file_carries_the_format_number() {
    let dir = tempfile::tempdir().unwrap();
    let run = stopped(dir.path());
    let numbered = |path: &Path, words: &str| {
        let bytes = std::fs::read(path).unwrap();
        assert!(String::from_utf8_lossy(&bytes).contains(words), "{}", path.display());
    };
    numbered(&run.config(), "format = 1");
    numbered(&run.last().config(), "format = 1");
    numbered(&run.last().state_file(), "\"format\": 1");
    numbered(&run.metrics(), "{\"kind\":\"run\",\"format\":1}");
    numbered(&run.last().model(), "\"bregman_run_format\":\"1\"");
    numbered(&run.last().optimizer(), "\"bregman_run_format\":\"1\"");
}

#[test]
fn a_run_from_before_the_format_number_opens_resumes_and_reports() {
    let dir = tempfile::tempdir().unwrap();
    let run = stopped(dir.path());
    without_numbers(&run);
    Trained::load(run.path()).unwrap();
    let mut epochs = Vec::new();
    let problems = read_metrics(&run.metrics(), |record| epochs.extend(as_epoch(record)));
    assert!(problems.is_empty(), "{problems:?}");
    assert!(!epochs.is_empty() && epochs.iter().all(|epoch| epoch.layers.iter().any(|layer| layer.nonzero > 0)));

    let end = Trainer::resume(run.path(), &()).unwrap().run(&AtomicBool::new(false)).unwrap();
    assert_eq!(end.ending, Ending::Finished);
    let whole = dir.path().join("whole");
    train(recipe(&dir.path().join("voices"), METHOD, &["train.epochs=3"]), &whole).unwrap();
    assert_eq!(weights(run.path(), "last"), weights(&whole, "last"));
    assert_eq!(metrics(run.path()).len() + 1, metrics(&whole).len(), "all but the first line");
}

fn as_epoch(record: MetricsRecord) -> Option<bregman_train::EpochRecord> {
    match record {
        MetricsRecord::Epoch(epoch) => Some(epoch),
        _ => None,
    }
}

#[test]
fn counts_that_no_run_comes_to_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let run = stopped(dir.path());
    let counts = [
        ("/ranks", 0),
        ("/ranks", u64::MAX / 4),
        ("/step", u64::MAX),
        ("/sums/cuts", u64::MAX),
        ("/lr/waited", 1 << 60),
    ];
    let saved = std::fs::read_to_string(run.last().state_file()).unwrap();
    for (place, count) in counts {
        let mut state: Value = serde_json::from_str(&saved).unwrap();
        *state.pointer_mut(place).unwrap() = count.into();
        std::fs::write(run.last().state_file(), state.to_string()).unwrap();
        let message = Trainer::resume(run.path(), &()).map(|_| ()).unwrap_err().to_string();
        let name = place[1..].replace('/', ".");
        assert!(message.contains(&format!("state.json: {name} = {count}: expected")), "{message}");
    }
}

#[test]
fn a_file_of_a_newer_format_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let run = stopped(dir.path());
    let refused = |file: &Path| {
        let error = Trainer::resume(run.path(), &()).map(|_| ()).unwrap_err();
        let (message, name) = (error.to_string(), file.file_name().unwrap().to_str().unwrap());
        assert!(message.contains(name) && message.contains("written in format 2"), "{message}");
        assert!(error.hint().unwrap().contains("newer bregman"));
    };
    let last = run.last();
    let state = std::fs::read(last.state_file()).unwrap();
    edit_json(&last.state_file(), |state| state["format"] = 2.into());
    refused(&last.state_file());
    std::fs::write(last.state_file(), state).unwrap();

    let optimizer = std::fs::read(last.optimizer()).unwrap();
    let at = optimizer.windows(7).position(|bytes| bytes == b"mat\":\"1").unwrap() + 6;
    let newer = [&optimizer[..at], b"2", &optimizer[at + 1..]].concat();
    std::fs::write(last.optimizer(), newer).unwrap();
    refused(&last.optimizer());
    std::fs::write(last.optimizer(), optimizer).unwrap();

    edit(&last.config(), |text| text.replacen("format = 1", "format = 2", 1));
    refused(&last.config());
}

#[test]
fn a_folder_in_which_another_trains_is_refused_by_name_and_process() {
    let dir = tempfile::tempdir().unwrap();
    corpus(&dir.path().join("voices"));
    let (experiment, run) = (recipe(&dir.path().join("voices"), METHOD, &["train.epochs=1"]), dir.path().join("run"));
    let first = Trainer::new(experiment.clone(), &run, &()).unwrap();
    let refused = Trainer::resume(&run, &()).map(|_| ()).unwrap_err();
    let expected = format!("in use by process {}", std::process::id());
    assert!(refused.to_string().contains(&expected) && refused.to_string().contains("run"), "{refused}");
    assert!(refused.is_user_mistake() && refused.hint().unwrap().contains("--out"));
    assert_eq!(first.run(&AtomicBool::new(false)).unwrap().ending, Ending::Finished);
    assert!(matches!(Trainer::new(experiment, &run, &()), Err(Error::Exists(_))));
    Trainer::resume(&run, &()).unwrap();
}

#[test]
fn a_log_whose_end_is_missing_is_an_error_and_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let run = stopped(dir.path());
    let text = std::fs::read_to_string(run.metrics()).unwrap();
    let cut = &text[..text.len() / 2];
    std::fs::write(run.metrics(), cut).unwrap();
    let refused = Trainer::resume(run.path(), &()).map(|_| ()).unwrap_err();
    assert!(matches!(refused, Error::ShortLog { .. }) && refused.to_string().contains("metrics.jsonl"), "{refused}");
    assert!(refused.hint().unwrap().contains("put back a copy"));
    assert_eq!(std::fs::read_to_string(run.metrics()).unwrap(), cut);
    std::fs::write(run.metrics(), text + "half a li").unwrap();
    Trainer::resume(run.path(), &()).unwrap();
    assert!(!std::fs::read_to_string(run.metrics()).unwrap().contains("half"));
}

#[test]
fn a_corpus_that_changed_since_the_checkpoint_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let run = stopped(dir.path());
    let manifest = dir.path().join("voices/train.csv");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let resume = || Trainer::resume(run.path(), &()).map(|_| ()).map_err(|error| error.to_string());
    let without_last_line = text.trim_end().rsplit_once('\n').unwrap().0.to_owned() + "\n";
    std::fs::write(&manifest, without_last_line).unwrap();
    let refused = resume().unwrap_err();
    assert!(refused.contains("data.train has changed") && refused.contains("utterances of 5 speakers"), "{refused}");
    std::fs::write(&manifest, text).unwrap();
    resume().unwrap();

    // a checkpoint from before the corpus was kept
    edit_json(&run.last().state_file(), |state| {
        state.as_object_mut().unwrap().remove("corpus").unwrap();
    });
    resume().unwrap();
}

#[test]
fn a_run_whose_recipe_cannot_be_read_starts_anew_or_continues_from_its_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    corpus(&dir.path().join("voices"));
    let experiment = recipe(&dir.path().join("voices"), METHOD, &["train.epochs=1"]);
    let run = RunFolder::new(dir.path().join("run"));
    std::fs::create_dir(run.path()).unwrap();
    for damaged in ["", "[train\nepo"] {
        std::fs::write(run.config(), damaged).unwrap();
        assert!(!run.is_started());
        drop(Trainer::new(experiment.clone(), run.path(), &()).unwrap());
        assert!(run.is_started());
    }
    Trainer::resume(run.path(), &()).unwrap().run(&AtomicBool::new(false)).unwrap();
    let written = std::fs::read(run.config()).unwrap();
    for missing in [false, true] {
        if missing { std::fs::remove_file(run.config()) } else { std::fs::write(run.config(), "") }.unwrap();
        assert!(matches!(Trainer::new(experiment.clone(), run.path(), &()), Err(Error::Exists(_))));
        Trainer::resume(run.path(), &()).unwrap();
        assert_eq!(std::fs::read(run.config()).unwrap(), written);
    }
}

#[test]
fn a_path_means_its_checkpoint_the_best_of_a_run_or_its_last() {
    let dir = tempfile::tempdir().unwrap();
    let run = stopped(dir.path());
    assert_eq!(RunFolder::around(run.last().path()), run);
    assert_eq!(RunFolder::around(run.path()), run);
    assert_eq!(CheckpointFolder::find(run.last().path()).unwrap(), run.last());
    let chosen = CheckpointFolder::find(run.path()).unwrap();
    assert_eq!(chosen, if run.best().is_present() { run.best() } else { run.last() });
    assert!(CheckpointFolder::find(dir.path()).unwrap_err().to_string().contains("neither a run nor a checkpoint"));
    assert!(CheckpointFolder::find(&dir.path().join("no")).unwrap_err().to_string().contains("does not exist"));
    assert!(run.is_started() && run.is_present() && !RunFolder::new(dir.path()).is_present());
}
