//! A run that was stopped and continued equals one that was not, to the bit: for every method.

mod common;

use std::sync::atomic::AtomicBool;

use bregman_train::{Ending, Trainer};
use common::{StopAfter, assert_same_metrics, corpus, metrics, recipe, train, weights};

/// The network is so small that 99 % initial zeros would cut it in two.
const METHODS: [(&str, &str); 10] = [
    ("adaptive LinBreg", "kind = \"adaptive\"\ngroups = [{ initial_sparsity = 0.5 }]\ntarget = 0.9"),
    (
        "adaptive AdaBreg",
        "kind = \"adaptive\"\ngroups = [{ initial_sparsity = 0.5 }]\ntarget = 0.9\noptimizer = { kind = \"adabreg\" }\n\
         law = { kind = \"density\" }",
    ),
    (
        "quantile, corrected",
        "kind = \"adaptive\"\ngroups = [{ initial_sparsity = 0.5 }]\ntarget = 0.8\n\
         optimizer = { kind = \"adabreg\", variant = \"subgradient_correction\" }\nlaw = { kind = \"quantile\" }",
    ),
    (
        "layerwise, momentum",
        "kind = \"adaptive\"\ngroups = [{ initial_sparsity = 0.5 }]\ntarget = 0.8\n\
         optimizer = { kind = \"linbreg\", momentum = 0.9 }\nlayers = { sharing = \"erk\" }",
    ),
    (
        "ProxSGD",
        "kind = \"adaptive\"\ngroups = [{ initial_sparsity = 0.5 }]\ntarget = 0.8\noptimizer = { kind = \"prox_sgd\" }",
    ),
    ("fixed λ", "kind = \"fixed\"\ngroups = [{ initial_sparsity = 0.5 }]\nlambda = 0.02"),
    ("dense AdamW", "kind = \"dense\"\noptimizer = { kind = \"adamw\" }"),
    ("gradual", "kind = \"gradual\"\ntarget = 0.9\nepochs = 3"),
    ("one-shot channels", "kind = \"one_shot\"\ntarget = 0.5\nstructure = \"channels\"\nat = 1"),
    (
        "static, ERK",
        "kind = \"static\"\ntarget = 0.8\nlayers = { sharing = \"erk\" }\noptimizer = { kind = \"adamw\" }",
    ),
];

#[test]
fn a_stopped_and_continued_run_equals_an_unbroken_one_for_every_method() {
    let dir = tempfile::tempdir().unwrap();
    corpus(&dir.path().join("voices"));
    for (name, method) in METHODS {
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
