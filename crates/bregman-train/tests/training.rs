//! What a run leaves behind, what the methods reach, and what happens when something is wrong.

mod common;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bregman_nn::{Array, Checkpoint, Values};
use bregman_speaker::score::Embedder;
use bregman_tensor::{Cpu, WeightPolicy};
use bregman_train::{Error, Experiment, Inspection, NetworkShare, Observer, SharedNetworks, Trained, Trainer};
use common::{assert_same_metrics, corpus, metrics, recipe, train, weights};
use serde_json::Value;

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        corpus(&dir.path().join("voices"));
        Self { dir }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn recipe(&self, method: &str, settings: &[&str]) -> Experiment {
        recipe(&self.path("voices"), method, settings)
    }

    fn train(&self, name: &str, method: &str, settings: &[&str]) -> std::path::PathBuf {
        train(self.recipe(method, settings), &self.path(name)).unwrap();
        self.path(name)
    }
}

#[test]
fn a_run_whose_steps_are_all_full_is_to_the_bit_one_without_freeze() {
    let place = Place::new();
    for optimizer in ["adabreg", "linbreg"] {
        let run = |name: &str, keys: &str| {
            let method = format!(
                "kind = \"adaptive\"\ngroups = [{{ initial_sparsity = 0.5 }}]\ntarget = 0.8\n\
                 optimizer = {{ kind = \"{optimizer}\" }}\n{keys}"
            );
            place.train(&format!("{optimizer} {name}"), &method, &[])
        };
        let plain = run("plain", "");
        for (name, keys) in
            [("every step", "freeze = 1\nfreeze_after = 0.0"), ("never", "freeze = 4\nfreeze_after = 1.0")]
        {
            let full = run(name, keys);
            assert_same_metrics(&full, &plain, &format!("{optimizer}, {name}"));
            assert!(weights(&full, "last") == weights(&plain, "last"), "{optimizer}, {name}: weights differ");
        }
        let frozen = run("frozen", "freeze = 4\nfreeze_after = 0.0");
        assert!(weights(&frozen, "last") != weights(&plain, "last"), "{optimizer}: frozen steps change nothing");
    }
}

#[test]
fn a_frozen_run_has_the_sparsity_asked_for_at_the_end_of_every_epoch() {
    let place = Place::new();
    for optimizer in ["adabreg", "linbreg"] {
        let method = format!(
            "kind = \"adaptive\"\ngroups = [{{ initial_sparsity = 0.5 }}]\ntarget = 0.8\nfreeze = 1000\n\
             freeze_after = 0.3\noptimizer = {{ kind = \"{optimizer}\" }}"
        );
        let run = place.train(optimizer, &method, &[]);
        let (epochs, steps): (Vec<Value>, Vec<Value>) =
            metrics(&run).into_iter().partition(|line| line["kind"] == "epoch");
        let distance = |line: &Value| (line["sparsity"].as_f64().unwrap_or(0.8) - 0.8).abs();
        assert!(epochs.len() == 4 && epochs.iter().all(|epoch| distance(epoch) < 1e-4), "{optimizer}: {epochs:?}");
        assert!(steps.iter().any(|step| distance(step) > 2e-4), "{optimizer}: no weight died in between");
    }
}

/// RigL that exchanges no weights has gradients of all weights in each step after which masks could change. Half of the
/// weights under the mask begin at zero, as grown ones do.
#[test]
fn steps_on_the_support_under_a_mask_that_stays_are_those_with_all_gradients() {
    let place = Place::new();
    let start = place.train("start", "kind = \"dense\"", &["train.epochs=1"]).join("last");
    let mut half = Checkpoint::read(&start.join("model.safetensors")).unwrap();
    for array in half.tensors.values_mut().filter(|array| array.shape.len() > 1) {
        if let Values::F32(values) = &mut array.values {
            values.iter_mut().step_by(2).for_each(|weight| *weight = 0.0);
        }
    }
    half.write(&start.join("model.safetensors")).unwrap();
    let init = format!("init={}", start.display());
    for (policy, tolerance) in [(WeightPolicy::Dense, 0.0), (WeightPolicy::Sparse, 1e-3)] {
        let run = |period: u64| {
            let method = format!(
                "kind = \"rigl\"\ntarget = 0.8\nfraction = 0.0\nuntil = 1.0\nperiod = {period}\n\
                 optimizer = {{ kind = \"adamw\" }}"
            );
            let run = place.path(&format!("{policy:?} {period}"));
            let open = move |_| Ok(Cpu::new().with_weights(policy));
            let experiment = place.recipe(&method, &["train.log_every=1", &init]);
            Trainer::new_on(open, experiment, &run, &()).unwrap().run(&AtomicBool::new(false)).unwrap();
            run
        };
        let [all, support] = [run(1), run(1000)];
        let values =
            |run: &Path, key: &str| metrics(run).iter().filter_map(|line| line[key].as_f64()).collect::<Vec<f64>>();
        let (norms, losses) = (|run| values(run, "gradient_norm"), |run| values(run, "loss"));
        assert!(norms(&all)[1] > norms(&support)[1], "{policy:?}: both runs have the same gradients");
        assert!(losses(&all).len() > 20, "{policy:?}: {} losses", losses(&all).len());
        for (all, support) in losses(&all).iter().zip(losses(&support)) {
            assert!((all - support).abs() <= tolerance * all, "{policy:?}: a loss of {support} instead of {all}");
        }
        if tolerance == 0.0 {
            assert!(weights(&all, "last") == weights(&support, "last"), "{policy:?}: weights differ");
        }
    }
}

#[test]
fn masks_end_at_their_target_and_dense_training_has_no_zeros() {
    let place = Place::new();
    for (name, method, expected, tolerance) in [
        ("dense", "kind = \"dense\"", 0.0, 1e-3),
        ("gradual", "kind = \"gradual\"\ntarget = 0.9\nepochs = 3", 0.9, 1e-3),
        ("one-shot", "kind = \"one_shot\"\ntarget = 0.75", 0.75, 1e-3),
        ("static", "kind = \"static\"\ntarget = 0.6", 0.6, 1e-3),
        ("SNIP", "kind = \"snip\"\ntarget = 0.9\nrounds = 5", 0.9, 1e-3),
        ("SET", "kind = \"set\"\ntarget = 0.9", 0.9, 1e-3),
        ("RigL", "kind = \"rigl\"\ntarget = 0.9", 0.9, 1e-3),
        ("GraNet", "kind = \"granet\"\ntarget = 0.9", 0.9, 1e-3),
        ("MEST", "kind = \"mest\"\ntarget = 0.9", 0.9, 1e-3),
        ("AC/DC", "kind = \"acdc\"\ntarget = 0.9", 0.9, 1e-3),
        ("STR", "kind = \"str\"\ntarget = 0.9", 0.9, 1e-3),
        ("channels", "kind = \"gradual\"\ntarget = 0.5\nepochs = 2\nstructure = \"channels\"", 0.5, 0.05),
    ] {
        let inspection = Inspection::of(&place.train(name, method, &[]).join("last")).unwrap();
        assert!((inspection.sparsity - expected).abs() < tolerance, "{name}: {}", inspection.sparsity);
    }
}

#[test]
fn every_exchange_of_masks_tells_how_many_of_the_weights_that_the_last_one_grew_it_keeps() {
    let place = Place::new();
    for kind in ["set", "rigl"] {
        let method = format!("kind = \"{kind}\"\ntarget = 0.8\nperiod = 4");
        let run = place.train(kind, &method, &["train.log_every=1000"]); // no other steps are logged
        let lines = metrics(&run);
        let (steps, shares): (Vec<u64>, Vec<f64>) =
            lines.iter().filter_map(|line| Some((line["step"].as_u64()?, line.get("survived")?.as_f64()?))).unzip();
        assert_eq!(steps, [9, 13, 17, 21], "{kind}");
        assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)) && shares[0] != shares[1], "{kind}: {shares:?}");
        let survived = Inspection::of(&run.join("last")).unwrap().survived.unwrap();
        let [least, most] = [f64::min, f64::max].map(|of| shares.iter().copied().reduce(of).unwrap());
        assert!(least < survived && survived < most, "{kind}: {survived} of {shares:?}");
    }
    let dense = place.train("dense", "kind = \"dense\"", &["train.epochs=1"]);
    assert_eq!(Inspection::of(&dense.join("last")).unwrap().survived, None);
}

#[test]
fn a_static_mask_gives_every_layer_its_share_to_the_weight_and_stays() {
    let place = Place::new();
    let run = place.train("run", "kind = \"static\"\ntarget = 0.6", &[]);
    let layers = |line: &Value| line["layers"].as_array().unwrap().clone();
    let epochs: Vec<Vec<Value>> = metrics(&run).iter().filter(|line| line["kind"] == "epoch").map(layers).collect();
    for layer in epochs.iter().flatten() {
        let weights = layer["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).product::<u64>() as f64;
        let expected = weights - (0.6 * weights).round_ties_even();
        assert_eq!(layer["nonzero"].as_f64().unwrap(), expected, "{}", layer["name"]);
    }
    assert_eq!(epochs.len(), 4);
}

#[test]
fn snip_looks_at_the_gradient_of_every_round_and_then_training_begins_anew() {
    let place = Place::new();
    let last = |name: &str, rounds: u64| {
        let run = place.train(name, &format!("kind = \"snip\"\ntarget = 0.9\nrounds = {rounds}"), &[]);
        Checkpoint::read(&run.join("last").join("model.safetensors")).unwrap()
    };
    let support = |checkpoint: &Checkpoint| -> Vec<bool> {
        let weights = checkpoint.tensors.values().filter(|array| array.shape.len() > 1);
        let values = |array: &Array| match &array.values {
            Values::F32(values) => values.iter().map(|x| *x != 0.0).collect::<Vec<_>>(),
            Values::I64(_) => vec![],
        };
        weights.flat_map(values).collect()
    };
    let batches = |checkpoint: &Checkpoint| -> Vec<Values> {
        let counts = checkpoint.tensors.iter().filter(|(name, _)| name.ends_with("num_batches_tracked"));
        counts.map(|(_, array)| array.values.clone()).collect()
    };
    let (once, often) = (last("once", 1), last("often", 10));
    assert_ne!(support(&once), support(&often));
    assert!(!batches(&once).is_empty() && batches(&once) == batches(&often), "batch norms have seen the rounds");
}

#[test]
fn gradual_pruning_follows_the_papers_schedule_or_the_one_asked_for() {
    let place = Place::new();
    for shape in ["", "shape = \"cubic\"", "shape = \"linear\""] {
        let expected = |x: f64| match shape {
            "" => 1.0 - 0.1f64.powf(x),
            "shape = \"cubic\"" => 0.9 - 0.9 * (1.0 - x).powi(3),
            _ => 0.9 * x,
        };
        let run = place.train(
            &format!("run {shape}"),
            &format!("kind = \"gradual\"\ntarget = 0.9\nepochs = 3\n{shape}"),
            &[],
        );
        for (i, sparsity) in (1..).zip(of_lines(&run, "epoch", "sparsity")) {
            let expected = expected((f64::from(i) / 3.0).min(1.0));
            assert!((sparsity - expected).abs() < 1e-3, "{shape}, epoch {i}: {sparsity}, not {expected}");
        }
    }
}

#[test]
fn a_target_that_moves_is_followed() {
    let place = Place::new();
    for shape in ["linear", "cubic", "exponential"] {
        let run = place.train(
            shape,
            &format!(
                "kind = \"adaptive\"\ntarget = 0.9\nlaw = {{ kind = \"quantile\" }}\nperiod = 1\n\
                 initial_sparsity = 0.5\nramp = {{ shape = \"{shape}\", from = 0.5, begin = 0, end = 24 }}"
            ),
            &[],
        );
        let [targets, sparsity] = ["target", "sparsity"].map(|key| of_lines(&run, "step", key));
        assert!(targets.is_sorted() && targets[0] < 0.65 && targets[12] < 0.89, "{shape}: {targets:?}");
        assert_eq!(targets[24], 0.9, "{shape}");
        for (sparsity, target) in sparsity.iter().zip(targets).skip(1) {
            assert!((sparsity - target).abs() < 0.05, "{shape}: {sparsity} at a target of {target}");
        }
    }
}

#[test]
fn the_papers_law_ends_within_one_percent_of_the_target() {
    let place = Place::new();
    for (optimizer, target) in [("linbreg", 0.75), ("linbreg", 0.9), ("adabreg", 0.75), ("adabreg", 0.9)] {
        let run = place.train(
            &format!("{optimizer} {target}"),
            &format!(
                "kind = \"adaptive\"\ntarget = {target}\nlaw = {{ kind = \"multiplicative\" }}\n\
                 optimizer = {{ kind = \"{optimizer}\" }}\ninitial_sparsity = 0.5"
            ),
            &["train.epochs=30", "train.clip=1.0", "train.schedule.kind=constant"],
        );
        let sparsity = of_lines(&run, "epoch", "sparsity");
        let end = sparsity[29];
        assert!((end - target).abs() < 0.01, "{optimizer}: {end}, asked for {target}: {sparsity:.3?}");
    }
}

/// A number of every step or epoch of a run.
fn of_lines(run: &std::path::Path, kind: &str, key: &str) -> Vec<f64> {
    let lines = metrics(run);
    lines.iter().filter(|line| line["kind"] == kind).map(|line| line[key].as_f64().unwrap()).collect()
}

#[test]
fn the_quantile_law_holds_the_target_at_the_end_of_every_epoch() {
    let place = Place::new();
    let run = place.train(
        "run",
        "kind = \"adaptive\"\ntarget = 0.9\nlaw = { kind = \"quantile\" }\nperiod = 1\n\
         groups = [{ initial_sparsity = 0.5 }]",
        &[],
    );
    let lines = metrics(&run);
    let epochs: Vec<_> = lines.iter().filter(|line| line["kind"] == "epoch").collect();
    assert_eq!(epochs.len(), 4);
    for epoch in epochs {
        assert!((epoch["sparsity"].as_f64().unwrap() - 0.9).abs() < 0.01, "{epoch}");
        assert_eq!(epoch["admitted"], true);
    }
}

#[test]
fn a_run_leaves_a_resolved_recipe_checkpoints_and_both_logs() {
    let place = Place::new();
    let run =
        place.train("run", "kind = \"adaptive\"\ntarget = 0.9\nlaw = { kind = \"quantile\" }", &["train.epochs=2"]);
    for name in [
        "config.toml",
        "metrics.jsonl",
        "events.out.tfevents.0.bregman",
        "last/state.json",
        "last/optimizer.safetensors",
    ] {
        assert!(run.join(name).is_file(), "{name}");
    }
    let saved = std::fs::read_to_string(run.join("config.toml")).unwrap();
    let saved = Experiment::parse(&saved, "saved", &[] as &[&str]).unwrap();
    let asked = place.recipe("kind = \"adaptive\"\ntarget = 0.9\nlaw = { kind = \"quantile\" }", &["train.epochs=2"]);
    assert_eq!(saved, asked.in_precision_of(&saved), "with the precision of the device");
    let lines = metrics(&run);
    let step = lines.iter().find(|line| line["kind"] == "step").unwrap();
    for key in ["loss", "accuracy", "lambda", "sparsity", "epsilon", "lr", "gradient_norm"] {
        assert!(step[key].is_number(), "{key} of {step}");
    }
    let epoch = lines.iter().find(|line| line["kind"] == "epoch").unwrap();
    assert!(epoch["layers"].as_array().unwrap().iter().all(|layer| layer["norm"].is_number()));
    assert!(epoch["validation_loss"].is_number());
}

#[test]
fn a_trained_network_embeds_speech_of_any_length() {
    let place = Place::new();
    let run = place.train("run", "kind = \"dense\"", &["train.epochs=1"]);
    let mut trained = Trained::load(&run).unwrap();
    let samples: Vec<f32> = (0..16_000).map(|i| (i as f32 * 0.05).sin() * 0.1).collect();
    let embedding = trained.embed(&samples).unwrap();
    assert_eq!(embedding.len(), 16);
    assert!(embedding.iter().all(|value| value.is_finite()));
    assert_ne!(embedding, trained.embed(&samples[..9_000]).unwrap());
    assert!(trained.embed(&[]).is_err());
}

#[test]
fn threads_that_share_a_network_get_its_embeddings() {
    let place = Place::new();
    let run = place.train("run", "kind = \"dense\"", &["train.epochs=1"]);
    let mut trained = Trained::load(&run).unwrap();
    let utterances: Vec<Vec<f32>> =
        (0..6).map(|n| (0..9_000 + 1_000 * n).map(|i| (i as f32 * 0.05).sin() * 0.1).collect()).collect();
    let (shared, loads) = (SharedNetworks::<Cpu>::default(), AtomicU64::new(0));
    let embeddings: Vec<Vec<f32>> = std::thread::scope(|scope| {
        let shares: Vec<_> = utterances
            .iter()
            .map(|samples| {
                let load = || {
                    loads.fetch_add(1, Ordering::Relaxed);
                    Trained::load(&run)
                };
                (shared.join(load).unwrap(), samples)
            })
            .collect(); // all at once, before the first is done
        let threads: Vec<_> = shares
            .into_iter()
            .map(|(mut share, samples): (NetworkShare<Cpu>, _)| {
                scope.spawn(move || share.embed(&mut samples.clone()).unwrap())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!((2..6).contains(&loads.load(Ordering::Relaxed)), "{loads:?} networks for 6 threads");
    for (samples, embedding) in utterances.iter().zip(embeddings) {
        assert_eq!(embedding, trained.embed(samples).unwrap());
    }
    let again = shared.join(|| panic!("there is room in the networks that are there"));
    assert!(again.unwrap().embed(&mut []).is_err());
}

#[test]
fn only_epochs_near_the_target_become_the_best() {
    let place = Place::new();
    let method = "kind = \"adaptive\"\nlaw = { kind = \"fixed\" }\nlambda = 0.001\ntarget = 0.999";
    let outcome = train(place.recipe(method, &["select.tolerance=0.0001"]), &place.path("run")).unwrap();
    assert_eq!(outcome.state.selection.best, None);
    assert!(!place.path("run/best").exists());
    assert_eq!(Trained::load(&place.path("run")).unwrap().checkpoint().path(), place.path("run/last"));
}

#[test]
fn the_average_of_the_best_epochs_is_as_sparse_as_they_are() {
    let place = Place::new();
    let method = "kind = \"adaptive\"\ntarget = 0.9\nlaw = { kind = \"quantile\" }\nperiod = 1\n\
        groups = [{ initial_sparsity = 0.5 }]";
    let run = place.train("run", method, &["select.average=3"]);
    assert_eq!(std::fs::read_dir(run.join("top")).unwrap().count(), 3);
    let (average, best) = (Inspection::of(&run.join("average")).unwrap(), Inspection::of(&run.join("best")).unwrap());
    assert!((average.sparsity - 0.9).abs() < 0.01, "{}", average.sparsity);
    assert_ne!(average.layers, best.layers);
}

#[test]
fn early_stop_waits_for_its_patience() {
    let place = Place::new();
    let settings = ["train.early_stop=1", "train.epochs=30", "train.lr=1e-9", "select.metric=accuracy"];
    let outcome = train(place.recipe("kind = \"dense\"", &settings), &place.path("run")).unwrap();
    assert_eq!(outcome.ending, bregman_train::Ending::EarlyStop);
    assert!(outcome.state.position.epoch < 30 && outcome.state.selection.waited == 1);
}

#[test]
fn a_loss_that_is_not_finite_stops_and_names_its_place_and_the_last_checkpoint() {
    let place = Place::new();
    let settings = ["train.lr=1e30", "train.schedule.kind=constant", "train.save_every=1"];
    let error = train(place.recipe("kind = \"dense\"", &settings), &place.path("run")).unwrap_err();
    let Error::NotFinite { step, epoch, what, last } = &error else { panic!("{error}") };
    assert!((2..=3).contains(step) && *epoch == 1, "{error}");
    assert!(!what.is_empty() && last.as_deref() == Some(&*place.path("run/last")), "{error}");
    assert!(error.hint().unwrap().contains("last good checkpoint"));
}

/// Keeps what a run warns of.
#[derive(Default)]
struct Warnings(Mutex<Vec<String>>);

impl Observer for Warnings {
    fn warning(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

impl Place {
    /// What a run with this control law warns of.
    fn warnings(&self, name: &str, law: &str, more: &str, settings: &[&str]) -> Vec<String> {
        let method = format!(
            "kind = \"adaptive\"\ntarget = 0.9\ninitial_sparsity = 0.5\nlaw = {{ {law} }}\n\
             optimizer = {{ kind = \"adabreg\", variant = \"plain\" }}\n{more}"
        );
        let seen = Warnings::default();
        let stop = std::sync::atomic::AtomicBool::new(false);
        Trainer::new(self.recipe(&method, settings), &self.path(name), &seen).unwrap().run(&stop).unwrap();
        seen.0.into_inner().unwrap()
    }
}

#[test]
fn a_lambda_far_beyond_the_duals_is_warned_of_and_the_default_is_not() {
    let place = Place::new();
    let swings = |text: &String| text.contains("λ swings") && text.contains("start from a smaller λ");
    for (law, gain) in [("multiplicative", "method.law.alpha"), ("density", "method.law.kappa")] {
        let kind = format!("kind = \"{law}\"");
        let far = place.warnings(&format!("far-{law}"), &kind, "lambda = 30.0", &[]);
        assert!(far.iter().any(|text| swings(text) && text.contains(gain)), "{law}: {far:?}");
        let near = place.warnings(&format!("near-{law}"), &kind, "", &[]);
        assert!(!near.iter().any(swings), "{law}: {near:?}");
    }
}

/// Before the first update nothing can have swung yet.
#[test]
fn a_gain_at_which_lambda_will_swing_is_warned_of_before_it_does() {
    let place = Place::new();
    let settings = ["train.epochs=1", "method.period=100"];
    let strong = place.warnings("strong", "kind = \"multiplicative\", alpha = 1000.0", "", &settings);
    assert!(strong.iter().any(|text| text.contains("will oscillate: loop gain")), "{strong:?}");
    let weak = place.warnings("weak", "kind = \"multiplicative\", alpha = 0.001", "", &settings);
    assert!(!weak.iter().any(|text| text.contains("loop gain")), "{weak:?}");
}

#[test]
fn nothing_is_overwritten() {
    let place = Place::new();
    let run = place.train("run", "kind = \"dense\"", &["train.epochs=1"]);
    let error = train(place.recipe("kind = \"dense\"", &[]), &run).unwrap_err();
    assert!(matches!(error, Error::Exists(_)) && error.hint().unwrap().contains("--resume"), "{error}");
}

#[test]
fn a_checkpoint_of_another_architecture_is_refused_by_name() {
    let place = Place::new();
    let run = place.train("run", "kind = \"dense\"", &["train.epochs=1"]);
    let config = run.join("last/config.toml");
    let text = std::fs::read_to_string(&config).unwrap().replace("channels = 4", "channels = 8");
    std::fs::write(&config, text).unwrap();
    let message = |error: Error| error.to_string();
    let loaded = message(Trained::load(&run.join("last")).err().unwrap());
    assert!(loaded.contains("model.safetensors") && loaded.contains("shape"), "{loaded}");
    let resumed = message(Trainer::resume(&run, &()).err().unwrap());
    assert!(resumed.contains("model.safetensors"), "{resumed}");
}

#[test]
fn a_validation_speaker_missing_from_training_is_named() {
    let place = Place::new();
    let error = train(place.recipe("kind = \"dense\"", &["data.validation=test.csv"]), &place.path("run"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("s00005") && error.contains("not among the 5 speakers"), "{error}");
    assert!(!place.path("run").exists(), "a refused experiment leaves nothing");
}

#[test]
fn a_missing_corpus_or_run_is_named() {
    let place = Place::new();
    let error = train(place.recipe("kind = \"dense\"", &["data.root=/nowhere"]), &place.path("run")).unwrap_err();
    assert!(error.to_string().contains("/nowhere/train.csv") && error.is_user_mistake(), "{error}");
    assert!(error.hint().unwrap().contains("data.root"));
    let audio = place.path("audio");
    std::fs::create_dir(&audio).unwrap();
    let root = format!("data.root={}", audio.display());
    let hint = train(place.recipe("kind = \"dense\"", &[&root]), &place.path("run")).unwrap_err().hint().unwrap();
    assert!(hint.contains(&format!("bregman prepare folder {0} --out {0}/train.csv", audio.display())), "{hint}");
    let folder = Experiment::read(&[&audio], &[""; 0]).unwrap_err();
    assert!(folder.to_string().contains("is a folder, not a recipe"), "{folder}");
    assert!(Trainer::resume(&place.path("run"), &()).err().unwrap().to_string().contains("nothing to resume"));
    assert!(Trained::load(&place.path("voices")).err().unwrap().to_string().contains("neither a run nor a checkpoint"));
}

#[test]
fn the_feature_cache_changes_nothing_but_the_time() {
    let place = Place::new();
    let cache = format!("data.cache={}", place.path("cache").display());
    for run in ["first", "second"] {
        place.train(run, "kind = \"dense\"", &["train.epochs=1", &cache]);
    }
    assert_eq!(metrics(&place.path("first")), metrics(&place.path("second")));
    let features =
        |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().path().extension().is_some_and(|e| e == "features");
    assert_eq!(
        std::fs::read_dir(place.path("cache")).unwrap().filter_map(|entry| features(entry).then_some(())).count(),
        2
    );
}
