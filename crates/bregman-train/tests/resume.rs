//! A run that was stopped and continued equals one that was not, to the bit: for every method.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use bregman_tensor::{Cpu, Precision};
use bregman_train::{Ending, Error, Trainer, open_cpu};
use common::{StopAfter, assert_same_metrics, corpus, metrics, recipe, train, weights};
use serde_json::Value;

/// The network is so small that 99 % initial zeros would cut it in two.
const METHODS: &[(&str, &str)] = &[
    ("adaptive LinBreg", "kind = \"adaptive\"\ngroups = [{ initial_sparsity = 0.5 }]\ntarget = 0.9"),
    (
        "adaptive AdaBreg",
        "kind = \"adaptive\"\ngroups = [{ initial_sparsity = 0.5 }]\ntarget = 0.9\noptimizer = { kind = \"adabreg\" }\n\
         law = { kind = \"density\" }",
    ),
    (
        "quantile, steady",
        "kind = \"adaptive\"\ngroups = [{ initial_sparsity = 0.5 }]\ntarget = 0.8\noptimizer = { kind = \"adabreg\" }",
    ),
    (
        "multiplicative, corrected",
        "kind = \"adaptive\"\ngroups = [{ initial_sparsity = 0.5 }]\ntarget = 0.8\n\
         law = { kind = \"multiplicative\" }\n\
         optimizer = { kind = \"adabreg\", variant = \"subgradient_correction\" }",
    ),
    (
        "layerwise, momentum",
        "kind = \"adaptive\"\ngroups = [{ initial_sparsity = 0.5 }]\ntarget = 0.8\n\
         optimizer = { kind = \"linbreg\", momentum = 0.9 }\nlayers = { sharing = \"erk\" }",
    ),
    (
        "ProxSGD",
        "kind = \"adaptive\"\ngroups = [{ initial_sparsity = 0.5 }]\ntarget = 0.8\n\
         optimizer = { kind = \"prox_sgd\" }\nlaw = { kind = \"multiplicative\" }",
    ),
    (
        "frozen support",
        "kind = \"adaptive\"\ngroups = [{ initial_sparsity = 0.5 }]\ntarget = 0.8\nfreeze = 4\nfreeze_after = 0.1\n\
         optimizer = { kind = \"adabreg\" }",
    ),
    ("fixed λ", "kind = \"fixed\"\ngroups = [{ initial_sparsity = 0.5 }]\nlambda = 0.02"),
    ("dense AdamW", "kind = \"dense\"\noptimizer = { kind = \"adamw\" }"),
    ("gradual", "kind = \"gradual\"\ntarget = 0.9\nepochs = 3"),
    ("one-shot channels", "kind = \"one_shot\"\ntarget = 0.5\nstructure = \"channels\"\nat = 1"),
    (
        "static, ERK",
        "kind = \"static\"\ntarget = 0.8\nlayers = { sharing = \"erk\" }\noptimizer = { kind = \"adamw\" }",
    ),
    // masks that move at other steps than the runs are broken at, and at the same
    ("SET", "kind = \"set\"\ntarget = 0.8\nperiod = 1"),
    ("RigL", "kind = \"rigl\"\ntarget = 0.8\nperiod = 3\noptimizer = { kind = \"adamw\" }"),
    ("GraNet", "kind = \"granet\"\ntarget = 0.8\nperiod = 2"),
    ("MEST", "kind = \"mest\"\ntarget = 0.8\nperiod = 4\ngradient_weight = 0.01"),
    ("AC/DC", "kind = \"acdc\"\ntarget = 0.8"),
    ("SNIP", "kind = \"snip\"\ntarget = 0.8\nrounds = 3"),
    ("STR", "kind = \"str\"\ntarget = 0.8"),
    ("STR as published", "kind = \"str\"\nthreshold = 0.02"),
];

#[test]
fn a_stopped_and_continued_run_equals_an_unbroken_one_for_every_method() {
    let dir = tempfile::tempdir().unwrap();
    corpus(&dir.path().join("voices"));
    for &(name, method) in METHODS {
        let experiment = recipe(&dir.path().join("voices"), method, &[]);
        let (whole, broken) = (dir.path().join(format!("{name} whole")), dir.path().join(format!("{name} broken")));
        let outcome = train(experiment.clone(), &whole).unwrap();
        assert_eq!(outcome.ending, Ending::Finished, "{name}");

        // in the middle of an epoch, at the end of one, and one step after
        let first = StopAfter::new(3);
        let stopped = Trainer::new(experiment, &broken, &first).unwrap().run(&first.stop).unwrap();
        assert_eq!((stopped.ending, stopped.state.step), (Ending::Interrupted, 3), "{name}");
        let per_epoch = outcome.state.step / 4;
        for steps in [per_epoch - 3, 1] {
            let next = StopAfter::new(steps);
            assert_eq!(
                Trainer::resume(&broken, &next).unwrap().run(&next.stop).unwrap().ending,
                Ending::Interrupted,
                "{name}"
            );
        }
        let end = Trainer::resume(&broken, &()).unwrap().run(&AtomicBool::new(false)).unwrap();
        assert_eq!(end.ending, Ending::Finished, "{name}");
        assert_eq!(end.state.selection, outcome.state.selection, "{name}");
        assert_same_metrics(&broken, &whole, name);
        assert_eq!(weights(&broken, "last"), weights(&whole, "last"), "{name}");
        assert_eq!(broken.join("best").exists(), whole.join("best").exists(), "{name}");
    }
}

#[test]
fn a_run_with_a_cosine_rate_is_continued_to_the_same_one() {
    let dir = tempfile::tempdir().unwrap();
    corpus(&dir.path().join("voices"));
    let settings = ["train.schedule.kind=cosine", "train.schedule.warmup=0.5"];
    let experiment = recipe(&dir.path().join("voices"), "kind = \"dense\"", &settings);
    let (whole, broken) = (dir.path().join("whole"), dir.path().join("broken"));
    train(experiment.clone(), &whole).unwrap();
    for steps in [2, 11] {
        let stop = StopAfter::new(steps);
        let trainer = if broken.exists() {
            Trainer::resume(&broken, &stop)
        } else {
            Trainer::new(experiment.clone(), &broken, &stop)
        };
        assert_eq!(trainer.unwrap().run(&stop.stop).unwrap().ending, Ending::Interrupted);
    }
    Trainer::resume(&broken, &()).unwrap().run(&AtomicBool::new(false)).unwrap();
    assert_same_metrics(&broken, &whole, "cosine");
    let rates: Vec<f64> = metrics(&whole).iter().filter_map(|line| line["lr"].as_f64()).collect();
    assert!(rates[2] < rates[3] && rates[3] > rates[4] && rates[rates.len() - 1] < 1e-3, "{rates:?}");
}

/// Files of a checkpoint without what depends on the clock.
fn checkpoint(run: &Path, name: &str) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(run.join(name)).unwrap().map(|entry| entry.unwrap().path());
    let content = |path: PathBuf| {
        let mut bytes = std::fs::read(&path).unwrap();
        if path.ends_with("state.json") {
            let mut state: Value = serde_json::from_slice(&bytes).unwrap();
            state.as_object_mut().unwrap().retain(|field, _| field != "seconds" && field != "logged");
            bytes = state.to_string().into_bytes();
        }
        (path.file_name().unwrap().to_string_lossy().into_owned(), bytes)
    };
    files.map(content).collect()
}

fn names(run: &Path) -> BTreeSet<String> {
    std::fs::read_dir(run).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy_folder(&path, &target),
            false => std::fs::write(target, std::fs::read(&path).unwrap()).unwrap(),
        }
    }
}

/// What a process leaves that is killed at the end of an epoch, after each of the writes there. Every epoch of this run
/// is its best until then.
#[test]
fn killed_between_the_checkpoints_of_an_epoch_a_run_continues_to_the_same_ones() {
    let dir = tempfile::tempdir().unwrap();
    corpus(&dir.path().join("voices"));
    let settings = ["select.average=3", "train.epochs=2", "select.metric=\"loss\""];
    let experiment = recipe(&dir.path().join("voices"), "kind = \"dense\"", &settings);
    let (whole, broken) = (dir.path().join("whole"), dir.path().join("broken"));
    let first = StopAfter::new(train(experiment.clone(), &dir.path().join("steps")).unwrap().state.step / 2);
    Trainer::new(experiment, &broken, &first).unwrap().run(&first.stop).unwrap();
    copy_folder(&broken, &whole);
    let outcome = Trainer::resume(&whole, &()).unwrap().run(&AtomicBool::new(false)).unwrap();
    assert_eq!(outcome.state.selection.best.unwrap().epoch, 2, "the last epoch is the best: {:?}", outcome.state);
    let end = ["last", "best", "average"].map(|name| checkpoint(&whole, name));

    type Damage = fn(&Path, &Path);
    let kills: [(&str, Damage); 7] = [
        ("before all", |_, _| {}),
        ("best written", |run, whole| copy_folder(&whole.join("best"), &run.join("best"))),
        ("best and average written", |run, whole| {
            copy_folder(&whole.join("best"), &run.join("best"));
            copy_folder(&whole.join("average"), &run.join("average"));
        }),
        ("best stepped aside, new one not in place", |run, whole| {
            std::fs::rename(run.join("best"), run.join("best.old")).unwrap();
            copy_folder(&whole.join("best"), &run.join("best.new"));
        }),
        ("last stepped aside", |run, whole| {
            copy_folder(&whole.join("best"), &run.join("best"));
            std::fs::rename(run.join("last"), run.join("last.old")).unwrap();
            copy_folder(&whole.join("last"), &run.join("last.new"));
        }),
        ("the order of earlier programs: last written, best not", |run, whole| {
            copy_folder(&whole.join("last"), &run.join("last"));
        }),
        ("weights of an epoch that is repeated", |run, whole| {
            std::fs::write(run.join("top/epoch-7.safetensors"), "half").unwrap();
            std::fs::write(run.join("config.toml.123-0.tmp"), "half").unwrap();
            copy_folder(&whole.join("best"), &run.join("best"));
        }),
    ];
    for (what, damage) in kills {
        let run = dir.path().join(what);
        copy_folder(&broken, &run);
        // weights and log lines of the epoch come first
        for file in ["metrics.jsonl", "events.out.tfevents.0.bregman", "top/epoch-2.safetensors"] {
            std::fs::copy(whole.join(file), run.join(file)).unwrap();
        }
        damage(&run, &whole);
        Trainer::resume(&run, &()).unwrap().run(&AtomicBool::new(false)).unwrap();
        for (name, expected) in ["last", "best", "average"].iter().zip(&end) {
            assert_eq!(&checkpoint(&run, name), expected, "{name}, killed with {what}");
        }
        assert_same_metrics(&run, &whole, what);
        assert_eq!(names(&run), names(&whole), "{what}");
        assert_eq!(names(&run.join("top")), names(&whole.join("top")), "{what}");
    }
}

/// What a kill between the two renames leaves, without a best epoch and after one.
#[test]
fn a_run_whose_last_checkpoint_stepped_aside_continues_from_it() {
    let dir = tempfile::tempdir().unwrap();
    corpus(&dir.path().join("voices"));
    let experiment = recipe(&dir.path().join("voices"), "kind = \"dense\"", &["train.epochs=2"]);
    let whole = dir.path().join("whole");
    let per_epoch = train(experiment.clone(), &whole).unwrap().state.step / 2;
    for saved in [3, per_epoch + 3] {
        let run = dir.path().join(saved.to_string());
        let first = StopAfter::new(saved);
        Trainer::new(experiment.clone(), &run, &first).unwrap().run(&first.stop).unwrap();
        assert_eq!(run.join("best").exists(), saved > per_epoch);
        std::fs::rename(run.join("last"), run.join("last.old")).unwrap();
        let rest = StopAfter::new(u64::MAX);
        Trainer::resume(&run, &rest).unwrap().run(&rest.stop).unwrap();
        assert_eq!(rest.began.load(Ordering::Relaxed), saved);
        assert_same_metrics(&run, &whole, "stepped aside");
        assert_eq!(weights(&run, "last"), weights(&whole, "last"));
        assert_eq!(names(&run), names(&whole));
    }
}

#[test]
fn a_finished_run_stays_finished() {
    let dir = tempfile::tempdir().unwrap();
    corpus(&dir.path().join("voices"));
    let run = dir.path().join("run");
    let experiment = recipe(&dir.path().join("voices"), "kind = \"dense\"", &["train.epochs=1"]);
    let outcome = train(experiment, &run).unwrap();
    let before = weights(&run, "last");
    let again = Trainer::resume(&run, &()).unwrap().run(&AtomicBool::new(false)).unwrap();
    assert_eq!((again.ending, again.state.step), (Ending::Finished, outcome.state.step));
    assert_eq!(weights(&run, "last"), before);
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let dir = tempfile::tempdir().unwrap();
    corpus(&dir.path().join("voices"));
    let run = |name: &str, seed: &str| {
        let path = dir.path().join(name);
        train(
            recipe(
                &dir.path().join("voices"),
                "kind = \"adaptive\"\ngroups = [{ initial_sparsity = 0.5 }]\ntarget = 0.9",
                &["train.epochs=2", seed],
            ),
            &path,
        )
        .unwrap();
        (metrics(&path), weights(&path, "last"))
    };
    let first = run("a", "seed=1");
    assert_eq!(first, run("b", "seed=1"));
    assert_ne!(first.1, run("c", "seed=2").1);
}

/// A device whose numbers are read a step late, as those of a GPU are.
fn late(precision: Option<Precision>) -> bregman_tensor::Result<Cpu> {
    Ok(open_cpu(precision)?.read_late())
}

#[test]
fn numbers_that_are_read_a_step_late_are_the_same_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let voices = dir.path().join("voices");
    corpus(&voices);
    for (number, &(name, method)) in METHODS.iter().enumerate() {
        let experiment = recipe(&voices, method, &["train.save_every=3"]);
        let [at_once, later, stopped] = ["now", "late", "stop"].map(|kind| dir.path().join(format!("{number}-{kind}")));
        train(experiment.clone(), &at_once).unwrap();
        Trainer::new_on(late, experiment.clone(), &later, &()).unwrap().run(&AtomicBool::new(false)).unwrap();
        let stop = StopAfter::new(10);
        let outcome = Trainer::new_on(late, experiment, &stopped, &stop).unwrap().run(&stop.stop).unwrap();
        assert_eq!(outcome.ending, Ending::Interrupted, "{name}");
        Trainer::resume_on(late, &stopped, &()).unwrap().run(&AtomicBool::new(false)).unwrap();
        for run in [&later, &stopped] {
            assert_same_metrics(&at_once, run, name);
            assert!(weights(&at_once, "last") == weights(run, "last"), "{name}: weights differ");
        }
    }
}

#[test]
fn a_loss_that_is_not_finite_and_read_late_stops_before_anything_is_saved() {
    let dir = tempfile::tempdir().unwrap();
    let voices = dir.path().join("voices");
    corpus(&voices);
    let settings = ["train.lr=1e30", "train.schedule.kind=constant", "train.save_every=1"];
    for (name, settings) in [("saved", &settings[..]), ("unsaved", &settings[..2])] {
        let run = dir.path().join(name);
        let experiment = recipe(&voices, "kind = \"dense\"", settings);
        let error = Trainer::new_on(late, experiment, &run, &()).unwrap().run(&AtomicBool::new(false)).unwrap_err();
        let Error::NotFinite { step, epoch, last, .. } = &error else { panic!("{error}") };
        assert!((2..=3).contains(step) && *epoch == 1, "{error}");
        assert_eq!(last.is_some(), name == "saved", "{error}");
        assert!(!run.join("best").exists(), "{name}: no epoch has ended");
    }
}
