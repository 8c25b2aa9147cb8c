//! Evaluation and daily use as a user runs them: one tiny network, trained once per process.

mod common;

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::LazyLock;

use common::{bregman, json, mistake, success, synth, text, verdict};
use serde_json::Value;

/// A corpus of synthetic voices and a network that has seen a little of it.
struct World {
    voices: PathBuf,
    recipe: PathBuf,
    run: PathBuf,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    // A folder per process: nextest runs every test in its own process.
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("evaluation-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir); // left by an earlier process with the same id
    let (voices, recipe, run) = (dir.join("voices"), dir.join("recipe.toml"), dir.join("run"));
    synth(&voices, [7, 6, 3], ["1.0", "1.5"]);
    let settings = format!(
        "[model]\nkind = \"ecapa\"\nchannels = 16\nembedding = 16\n[data]\nroot = {voices:?}\nseconds = 1.0\n\
         [method]\nkind = \"adaptive\"\ntarget = 0.5\n[train]\nepochs = 2\nbatch = 8\n"
    );
    std::fs::write(&recipe, settings).unwrap();
    success(&bregman(&["train", text(&recipe), "--out", text(&run)]));
    World { voices, recipe, run }
});

impl World {
    /// `bregman evaluate` on the trials of the held-out voices.
    fn evaluate(&self, more: &[&str]) -> Output {
        let trials = self.voice("trials.txt");
        bregman(&[&["evaluate", text(&self.run), "--root", text(&self.voices), "--trials", &trials], more].concat())
    }

    /// A file of the corpus.
    fn voice(&self, name: &str) -> String {
        text(&self.voices.join(name)).to_owned()
    }

    /// Recordings of the held-out speakers, as the trial list names them.
    fn recordings(&self, target: bool) -> (String, String) {
        let list = std::fs::read_to_string(self.voice("trials.txt")).unwrap();
        let line = list.lines().find(|line| line.starts_with(if target { "1 " } else { "0 " })).unwrap();
        let names: Vec<&str> = line.split_whitespace().collect();
        (self.voice(names[1]), self.voice(names[2]))
    }
}

#[test]
fn shards_evaluate_like_the_files_they_were_packed_from() {
    let world = &*WORLD;
    let shards = world.voices.with_file_name("shards");
    success(&bregman(&["shard", &world.voice("test.csv"), "--out", text(&shards)]));
    let evaluate = |root: &Path| {
        let report = json(&bregman(&[
            "evaluate",
            text(&world.run),
            "--root",
            text(root),
            "--trials",
            &world.voice("trials.txt"),
            "--json",
        ]));
        ["eer", "min_dcf", "trials", "speakers"].map(|key| report[key].clone())
    };
    assert_eq!(evaluate(&shards), evaluate(&world.voices));
}

#[test]
fn evaluate_prints_rates_with_intervals_and_keeps_embeddings() {
    let world = &*WORLD;
    let dir = tempfile::tempdir().unwrap();
    let scores = dir.path().join("scores.txt");
    let cohort = world.voice("train.csv");
    let args = ["--json", "--cohort", &cohort, "--as-norm", "600", "--scores", text(&scores)];
    let report = json(&world.evaluate(&args));
    let number = |key: &str| report[key].as_f64().unwrap_or_else(|| panic!("{key} in {report}"));
    assert!(
        (0.0..=1.0).contains(&number("eer")) && (0.0..=1.0).contains(&number("min_dcf")) && number("sparsity") > 0.0
    );
    assert_eq!(
        (report["scoring"].as_str(), report["cohort_speakers"].as_u64(), report["top_n"].as_u64()),
        (Some("as-norm"), Some(4), Some(4))
    );
    assert_eq!(report["speakers"], 3);
    let interval = &report["intervals"]["eer"];
    assert!(interval[0].as_f64() <= Some(number("eer")) && interval[1].as_f64() >= Some(number("eer")), "{interval}");
    assert!(report["cosine"]["eer"].is_number() && report["det"].as_array().unwrap().len() > 2);

    // The score file gives the same rate, and is not overwritten.
    let (values, labels) = bregman_speaker::score::read_scores(&scores).unwrap();
    assert_eq!(bregman_speaker::score::Det::new(&values, &labels).unwrap().eer(), number("eer"));
    assert!(mistake(&world.evaluate(&args)).contains("--force"));

    // All embeddings are stored now, and the numbers are the same.
    let again = json(&world.evaluate(&["--json", "--cohort", &cohort, "--as-norm", "600", "--jobs", "1"]));
    assert_eq!((again["computed"].as_u64(), again["eer"].as_f64()), (Some(0), Some(number("eer"))));
    let table = success(&world.evaluate(&["--cohort", &cohort, "--center", "--bootstrap", "0"]));
    assert!(table.contains("EER %") && table.contains("cosine, centred"), "{table}");
}

#[test]
fn a_test_in_noise_and_rooms_is_another_test_and_leaves_the_threshold_alone() {
    let world = &*WORLD;
    let clean = json(&world.evaluate(&["--json"]));
    let threshold = std::fs::read(world.run.join("threshold.json")).unwrap();
    let hard = json(&world.evaluate(&["--json", "--noise", "-5", "--room", "0.6"]));
    assert!(hard["computed"].as_u64() > Some(0), "embeddings of clean audio are not those of noisy audio");
    assert_ne!(hard["det"], clean["det"]);
    assert_eq!(hard["test"], "voices trials noise -5 dB, room 0.6 s");
    assert_eq!(std::fs::read(world.run.join("threshold.json")).unwrap(), threshold);
    let again = json(&world.evaluate(&["--json", "--noise", "-5", "--room", "0.6"]));
    assert_eq!((again["computed"].as_u64(), &again["det"]), (Some(0), &hard["det"]));
    assert!(mistake(&world.evaluate(&["--noise", "nan"])).contains("signal-to-noise"));
}

#[test]
fn models_of_several_utterances_are_evaluated_through_the_map() {
    let world = &*WORLD;
    let (trials, map) = (world.voice("trials_multi.txt"), world.voice("enroll.map"));
    let args = ["evaluate", text(&world.run), "--root", text(&world.voices), "--trials", &trials];
    let report = json(&bregman(&[&args[..], &["--enroll", &map, "--json"]].concat()));
    assert!(report["eer"].is_number());
    let message = mistake(&bregman(&args));
    assert!(message.contains("names have no audio") && message.contains("trials_multi.txt"), "{message}");
}

#[test]
fn mistakes_in_an_evaluation_are_named() {
    let world = &*WORLD;
    let dir = tempfile::tempdir().unwrap();
    let (list, root) = (dir.path().join("list.txt"), text(&world.voices));
    let (a, b) = world.recordings(true);
    let relative = |path: &str| path.strip_prefix(root).unwrap().trim_start_matches('/').to_owned();
    let (a, b) = (relative(&a), relative(&b));
    let with_trials = |content: String| {
        std::fs::write(&list, content).unwrap();
        mistake(&bregman(&["evaluate", text(&world.run), "--root", root, "--trials", text(&list)]))
    };
    assert!(with_trials(format!("1 {a} {b}\n0 {a} nobody/1.wav\n")).contains("'nobody/1.wav' (entry 2)"));
    assert!(with_trials(format!("1 {a} {b}\n")).contains("no non-target trials"));
    assert!(with_trials(format!("0 {a} {b}\n")).contains("no target trials"));
    assert!(with_trials(format!("1 {a}\n")).contains("line 1: 2 fields"));

    assert!(mistake(&world.evaluate(&["--as-norm", "600"])).contains("--as-norm needs a cohort"));
    assert!(mistake(&world.evaluate(&["--center"])).contains("--center needs a cohort"));
    assert!(mistake(&world.evaluate(&["--cohort", "missing.csv"])).contains("missing.csv"));
    let one = dir.path().join("one.csv");
    std::fs::write(&one, format!("path,speaker\n{root}/{a},x\n")).unwrap();
    assert!(mistake(&world.evaluate(&["--cohort", text(&one)])).contains("cohort = 1 speakers: expected 2 or more"));
    assert!(mistake(&world.evaluate(&["--max-seconds", "0"])).contains("--max-seconds 0"));
    let trials = world.voice("trials.txt");
    let elsewhere =
        mistake(&bregman(&["evaluate", text(&world.run), "--trials", &trials, "--root", text(&dir.path().join("no"))]));
    assert!(elsewhere.contains("no such folder"), "{elsewhere}");
    assert!(
        mistake(&bregman(&["evaluate", text(dir.path()), "--trials", &trials, "--root", root]))
            .contains("neither a run nor a checkpoint")
    );
}

#[test]
fn a_checkpoint_of_another_architecture_is_refused() {
    let world = &*WORLD;
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = dir.path().join("checkpoint");
    std::fs::create_dir(&checkpoint).unwrap();
    for name in ["model.safetensors", "optimizer.safetensors", "state.json", "config.toml"] {
        std::fs::copy(world.run.join("last").join(name), checkpoint.join(name)).unwrap();
    }
    let config = std::fs::read_to_string(checkpoint.join("config.toml")).unwrap();
    assert!(config.contains("channels = 16"), "{config}");
    std::fs::write(checkpoint.join("config.toml"), config.replace("channels = 16", "channels = 24")).unwrap();
    let trials = world.voice("trials.txt");
    let message =
        mistake(&bregman(&["evaluate", text(&checkpoint), "--trials", &trials, "--root", text(&world.voices)]));
    assert!(message.contains("model.safetensors"), "{message}");
}

#[test]
fn unreadable_audio_is_left_out_and_counted_unless_strict() {
    let world = &*WORLD;
    let dir = tempfile::tempdir().unwrap();
    let list = std::fs::read_to_string(world.voice("trials.txt")).unwrap();
    let mut names: Vec<&str> = list.lines().flat_map(|line| line.split_whitespace().skip(1)).collect();
    names.sort_unstable();
    names.dedup();
    for name in &names {
        std::fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
        std::fs::copy(world.voice(name), dir.path().join(name)).unwrap();
    }
    std::fs::write(dir.path().join(names[0]), b"RIFF nonsense").unwrap();
    let trials = world.voice("trials.txt");
    let args = ["evaluate", text(&world.run), "--trials", &trials, "--root", text(dir.path())];
    let report = json(&bregman(&[&args[..], &["--json"]].concat()));
    let gone = list.lines().filter(|line| line.contains(names[0])).count() as u64;
    assert_eq!((report["left_out"].as_u64(), report["unreadable"].as_array().unwrap().len()), (Some(gone), 1));
    assert!(success(&bregman(&args)).contains("trials were left out"));
    let strict = bregman(&[&args[..], &["--strict"]].concat());
    assert_eq!(strict.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&strict.stderr).contains(names[0]));
}

#[test]
fn verify_enroll_and_identify_work_one_after_the_other() {
    let world = &*WORLD;
    let dir = tempfile::tempdir().unwrap();
    let (run, known) = (text(&world.run), dir.path().join("known.json"));
    let known = text(&known);
    let (a, b) = world.recordings(false);

    let same = verdict(&bregman(&["verify", &a, &a, "--run", run, "--threshold", "0.999", "--json"]));
    assert!(same["same"] == true && same["score"].as_f64() > Some(0.999_999), "{same}");
    let never = verdict(&bregman(&["verify", &a, &b, "--run", run, "--threshold", "1.0", "--json"]));
    assert_eq!(never["same"], false);
    success(&world.evaluate(&[]));
    assert!(success(&bregman(&["verify", &a, &a, "--run", run])).contains("threshold"), "evaluate has found one");

    success(&bregman(&["enroll", "ann", &a, "--run", run, "--speakers", known]));
    assert!(success(&bregman(&["enroll", "bob", &b, "--run", run, "--speakers", known])).contains("knows 2 speakers"));
    assert!(mistake(&bregman(&["enroll", "bob", &b, "--run", run, "--speakers", known])).contains("--force"));
    let found = verdict(&bregman(&["identify", &b, "--run", run, "--speakers", known, "--threshold", "0.9", "--json"]));
    assert_eq!((found["speaker"].as_str(), found["matches"].as_array().unwrap().len()), (Some("bob"), 2));
    let nobody = bregman(&["identify", &b, "--run", run, "--speakers", known, "--threshold", "1.1"]);
    assert!(nobody.stdout.starts_with(b"unknown") && nobody.status.code() == Some(3), "{nobody:?}");

    // A file from before it had a format number, and one of a later program.
    let stored = std::fs::read_to_string(known).unwrap();
    assert!(stored.starts_with("{\"format\":1,"), "{stored}");
    std::fs::write(known, stored.replacen("\"format\":1,", "", 1)).unwrap();
    success(&bregman(&["identify", &b, "--run", run, "--speakers", known, "--threshold", "0.9"]));
    std::fs::write(known, stored.replacen("\"format\":1,", "\"format\":2,", 1)).unwrap();
    assert!(mistake(&bregman(&["identify", &b, "--run", run, "--speakers", known])).contains("format 2"));
    // An embedding of another length has no score.
    let mut cut: Value = serde_json::from_str(&stored).unwrap();
    let size = cut["speakers"]["ann"]["embedding"].as_array().unwrap().len();
    cut["speakers"]["ann"]["embedding"].as_array_mut().unwrap().pop();
    std::fs::write(known, cut.to_string()).unwrap();
    let refused = mistake(&bregman(&["identify", &b, "--run", run, "--speakers", known, "--threshold", "0.9"]));
    let problem = format!("'ann' has {} values, where the network's embeddings have {size}", size - 1);
    assert!(refused.contains(&problem) && refused.contains("known.json"), "{refused}");
    std::fs::write(known, stored).unwrap();

    // Embeddings with other settings cannot be compared with these.
    let other = bregman(&["identify", &b, "--run", run, "--speakers", known, "--max-seconds", "0.5"]);
    assert!(mistake(&other).contains("another network or other settings"));
    assert!(
        mistake(&bregman(&["verify", &a, "missing.wav", "--run", run, "--threshold", "0"])).contains("missing.wav")
    );
}

#[test]
fn speakers_enrolled_at_the_same_time_are_all_there() {
    let world = &*WORLD;
    let dir = tempfile::tempdir().unwrap();
    let known = dir.path().join("known.json");
    let (a, _) = world.recordings(false);
    let enroll = |name: usize| {
        common::start(&["enroll", &name.to_string(), &a, "--run", text(&world.run), "--speakers", text(&known)])
    };
    let children: Vec<_> = (0..8).map(enroll).collect();
    children.into_iter().for_each(|mut child| assert!(child.wait().unwrap().success()));
    let stored: Value = serde_json::from_slice(&std::fs::read(&known).unwrap()).unwrap();
    assert_eq!(stored["speakers"].as_object().unwrap().len(), 8);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no lock is left");
}

#[test]
fn embed_writes_one_line_per_utterance() {
    let world = &*WORLD;
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("embeddings.csv");
    let manifest = world.voice("test.csv");
    success(&bregman(&["embed", text(&world.run), "--manifest", &manifest, "--out", text(&out)]));
    let csv = std::fs::read_to_string(&out).unwrap();
    assert_eq!(csv.lines().count(), 18);
    assert!(csv.lines().all(|line| line.split(',').count() == 2 + 16), "{csv}");
    let (a, _) = world.recordings(true);
    let one = json(&bregman(&["embed", text(&world.run), &a, "--json"]));
    assert_eq!(one[0]["embedding"].as_array().unwrap().len(), 16);

    // windows that slide over a file, the last one to its end
    let window = ["embed", text(&world.run), &a, "--window", "0.5", "--hop", "0.25"];
    let lines = success(&bregman(&window));
    let windows = json(&bregman(&[&window[..], &["--json"]].concat()));
    let windows = windows.as_array().unwrap();
    assert!(windows.len() > 2 && windows.len() == lines.lines().count(), "{lines}");
    assert!(lines.lines().all(|line| line.split(',').count() == 3 + 16), "{lines}");
    let second = |key: &str| windows[1][key].as_f64().unwrap();
    assert!((second("start") - 0.25).abs() < 1e-9 && (second("end") - 0.75).abs() < 1e-9);
    assert!(mistake(&bregman(&["embed", text(&world.run), &a, "--window", "0"])).contains("--window 0"));
    assert!(mistake(&bregman(&["embed", text(&world.run), &a, "--window", "1", "--hop=-1"])).contains("--hop"));
}

#[test]
fn a_sweep_trains_evaluates_skips_and_reports() {
    let world = &*WORLD;
    let dir = tempfile::tempdir().unwrap();
    let (out, trials) = (dir.path().join("sweep"), world.voice("trials.txt"));
    let sweep = |settings: &[&str], recipe: &Path| {
        let lists = [
            "--trials",
            &trials,
            "--root",
            text(&world.voices),
            "--other-trials",
            &trials,
            "--other-root",
            text(&world.voices),
        ];
        let args = [&["sweep", text(recipe), "--out", text(&out), "--jobs", "2", "--json"], settings, &lists].concat();
        bregman(&args)
    };
    let first = json(&sweep(&["--set", "method.target=0.4", "--set", "train.epochs=1"], &world.recipe));
    assert_eq!((first.as_array().unwrap().len(), first[0]["status"].as_str()), (1, Some("finished")));
    for key in ["sparsity", "lambda", "eer", "eer_out_of_domain", "seconds"] {
        assert!(first[0][key].is_number(), "{key} in {first}");
    }

    let both = ["--set", "method.target=0.4,0.7", "--set", "train.epochs=1"];
    assert!(json(&sweep(&both, &world.recipe)).as_array().unwrap().iter().all(|row| row["status"] == "finished"));
    let again = json(&sweep(&both, &world.recipe));
    assert!(
        again.as_array().unwrap().iter().all(|row| row["status"] == "skipped" && row["eer"].is_number()),
        "{again}"
    );
    assert!(again[0]["sparsity"] != again[1]["sparsity"]);

    // A run finished with other settings does not count as finished.
    let longer = sweep(&["--set", "method.target=0.4,0.7", "--set", "train.epochs=2"], &world.recipe);
    let rows: Value = serde_json::from_slice(&longer.stdout).unwrap();
    assert_eq!((longer.status.code(), rows[0]["status"].as_str()), (Some(1), Some("failed")));
    assert!(rows[0]["problem"].as_str().unwrap().contains("other settings"), "{rows}");

    // A mistake in the settings shows before anything runs; a run that fails is reported and the others finish.
    assert!(mistake(&sweep(&["--set", "method.target=0.4,2.0"], &world.recipe)).contains("target"));
    let seeds = sweep(&["--set", "data.root=/nowhere", "--set", "seed=1,2"], &world.recipe);
    assert_eq!(seeds.status.code(), Some(1));
    let rows: Value = serde_json::from_slice(&seeds.stdout).unwrap();
    assert!(
        rows.as_array()
            .unwrap()
            .iter()
            .all(|row| row["status"] == "failed" && row["problem"].as_str().unwrap().contains("/nowhere"))
    );
}

#[test]
fn a_sweep_over_methods_makes_one_table_and_one_picture() {
    let world = &*WORLD;
    let dir = tempfile::tempdir().unwrap();
    let (out, trials) = (dir.path().join("sweep"), world.voice("trials.txt"));
    let sweep = |more: &[&str]| {
        let lists = ["--trials", &trials, "--root", text(&world.voices)];
        let methods = ["--methods", "static,dense-sgd,rigl", "--targets", "0.5,0.8", "--set", "train.epochs=1"];
        bregman(&[&["sweep", text(&world.recipe), "--out", text(&out)], &methods[..], &lists, more].concat())
    };
    let comparison = json(&sweep(&["--set", "seed=1,2", "--json"]));
    let methods = comparison["methods"].as_array().unwrap();
    let named = |method: &str| methods.iter().filter(|row| row["method"] == method).collect::<Vec<_>>();
    assert_eq!((methods.len(), named("static").len(), named("rigl").len(), named("dense-sgd").len()), (5, 2, 2, 1));
    for row in methods {
        assert_eq!(row["runs"], 2, "{row}");
        let [low, high] = [0, 1].map(|end| row["eer_interval"][end].as_f64().unwrap());
        assert!((low..=high).contains(&row["eer"].as_f64().unwrap()), "{row}");
        assert!(row["minutes"].as_f64().unwrap() > 0.0 && row["bytes"].as_f64().unwrap() > 1000.0, "{row}");
        let (target, sparsity) = (row["target"].as_f64().unwrap_or(0.0), row["sparsity"].as_f64().unwrap());
        assert!((sparsity - target).abs() < 0.01, "{row}");
    }
    assert_eq!(comparison["runs"].as_array().unwrap().len(), 10);
    let picture = std::fs::read_to_string(out.join("comparison.svg")).unwrap();
    for word in ["sparsity, %", "training, minutes", "EER, %", "RigL", "static mask", "dense SGD"] {
        assert!(picture.contains(word), "{word}");
    }
    let table = success(&sweep(&["--set", "seed=1,2"]));
    assert!(table.contains("best at 80.00 %: ") && table.contains("comparison.svg"), "{table}");

    let wrong =
        |more: &[&str]| mistake(&bregman(&[&["sweep", text(&world.recipe), "--out", text(&out)], more].concat()));
    assert!(wrong(&["--methods", "rigl", "--set", "method.period=0"]).contains("`method.period` is 0"));
    assert!(wrong(&["--methods", "rigl", "--targets", "0.9,1.5"]).contains("method.target = 1.5"));
    assert!(wrong(&["--methods", "riggle"]).contains("rigl"), "the nearest name");
}

#[test]
fn a_plan_tests_every_run_on_every_list_and_compares_it_with_the_baseline() {
    let world = &*WORLD;
    let dir = tempfile::tempdir().unwrap();
    let (out, plan) = (dir.path().join("sweep"), dir.path().join("plan.toml"));
    let (recipe, trials, root) = (text(&world.recipe), world.voice("trials.txt"), text(&world.voices));
    let runs = format!(
        "recipe = [{recipe:?}]\nset = [\"train.epochs=1\"]\nseeds = [1, 2]\nbaseline = \"dense-sgd\"\n\
         [[runs]]\nmethods = [\"dense-sgd\", \"static\"]\ntargets = [0.5]\n\
         [[runs]]\nname = \"by layer\"\nmethods = [\"static\"]\ntargets = [0.5]\n\
         set = ['method.layers={{sharing=\"uniform\"}}']\n"
    );
    let test = |more: &str| format!("[[tests]]\ntrials = {trials:?}\nroots = [{root:?}]\n{more}\n");
    let tests = test("name = \"clean\"\ndomain = \"in\"")
        + &test("name = \"noisy\"\ndomain = \"out\"\nnoise = 0\nmax_seconds = 1");
    std::fs::write(&plan, runs.clone() + &tests).unwrap();
    let sweep = || bregman(&["sweep", "--plan", text(&plan), "--out", text(&out), "--json"]);
    let comparison = json(&sweep());
    let methods = comparison["methods"].as_array().unwrap();
    assert_eq!((methods.len(), comparison["runs"].as_array().unwrap().len()), (3, 6), "{comparison}");
    for row in methods {
        let tests = row["tests"].as_array().unwrap();
        assert_eq!(tests.iter().map(|test| &test["test"]).collect::<Vec<_>>(), ["clean", "noisy"]);
        assert_ne!(tests[0]["eer"], tests[1]["eer"], "half a second in noise is another test: {row}");
        let is_baseline = row["method"] == "dense-sgd";
        assert!(tests.iter().all(|test| test["difference"].is_null() == is_baseline), "{row}");
    }
    let results = std::fs::read_to_string(out.join("results.csv")).unwrap();
    let columns = "group,method,target,seed,settings,sparsity_percent,lambda,seconds,bytes,";
    assert!(results.starts_with(&format!("{columns}eer_percent clean,eer_percent noisy\n")), "{results}");
    assert!(results.lines().count() == 7 && results.contains("\nby layer,static,0.5,2,,"), "{results}");
    let picture = std::fs::read_to_string(out.join("comparison.svg")).unwrap();
    assert!(picture.contains("EER, %: clean") && picture.contains("EER out of domain, %: noisy"));

    let wrong = |text_of_plan: String| {
        std::fs::write(&plan, text_of_plan).unwrap();
        mistake(&sweep())
    };
    assert!(wrong(runs.clone() + "[[tests]]\ndomain = \"in\"\n").contains("missing field `trials`"));
    assert!(wrong(runs.clone() + &test("domain = \"in\"\nname = \"a\"").repeat(2)).contains("two tests are called a"));
    assert!(wrong(runs.replace("name = \"by layer\"", "")).contains("two runs would be kept in"));
}

#[test]
fn a_sweep_evaluates_with_enrollment_cohort_and_every_root() {
    let world = &*WORLD;
    let dir = tempfile::tempdir().unwrap();
    let (out, empty) = (dir.path().join("sweep"), dir.path().join("empty"));
    std::fs::create_dir(&empty).unwrap();
    let [trials, map, cohort] = ["trials_multi.txt", "enroll.map", "train.csv"].map(|name| world.voice(name));
    let roots = ["--root", text(&empty), "--root", text(&world.voices)];
    let others = ["--other-root", text(&empty), "--other-root", text(&world.voices)];
    let lists = ["--trials", &trials, "--enroll", &map, "--other-trials", &trials, "--other-enroll", &map];
    let cohort = ["--cohort", &cohort, "--cohort-utterances", "2", "--as-norm", "3"];
    let sweep = ["sweep", text(&world.recipe), "--out", text(&out), "--set", "train.epochs=1", "--json"];
    let rows = json(&bregman(&[&sweep[..], &lists, &roots, &others, &cohort].concat()));
    assert!(rows[0]["eer"].is_number() && rows[0]["eer_out_of_domain"].is_number(), "{rows}");
    let run = out.join("run");
    let again = ["evaluate", text(&run), "--trials", &trials, "--enroll", &map, "--json"];
    let direct = json(&bregman(&[&again[..], &roots, &cohort].concat()));
    assert_eq!((&direct["scoring"], &direct["top_n"], &direct["eer"]), (&"as-norm".into(), &3.into(), &rows[0]["eer"]));
    assert_eq!(direct["computed"], 0, "the sweep has embedded them all");

    let alone = mistake(&bregman(&[&sweep[..], &["--as-norm", "3"]].concat()));
    assert!(alone.contains("--as-norm needs a cohort"), "{alone}");
}

#[test]
fn an_unavailable_device_is_an_error_before_any_work() {
    let world = &*WORLD;
    let (first, _) = world.recordings(true);
    let unknown = mistake(&bregman(&["embed", text(&world.run), &first, "--device", "gpu"]));
    assert!(unknown.contains("cuda:N"), "{unknown}");
    let model = mistake(&bregman(&["verify", &first, &first, "--model", "model.breg", "--device", "cuda:0"]));
    assert!(model.contains("a model file runs on the CPU"), "{model}");
    let away = bregman(&["embed", text(&world.run), &first, "--device", "cuda:99"]);
    let message = String::from_utf8_lossy(&away.stderr);
    assert!(!away.status.success() && away.stdout.is_empty() && message.starts_with("error: "), "{message}");
    assert!(
        ["built without CUDA", "could not be loaded", "no GPU number 99"].iter().any(|cause| message.contains(cause)),
        "{message}"
    );
}

#[test]
fn embeddings_and_error_rates_on_a_gpu_equal_those_on_the_cpu() {
    match bregman_train::DeviceChoice::Cuda(0).find() {
        Ok(_) => {}
        Err(error @ bregman_tensor::Error::NotBuilt) => return bregman_skip::skip("cuda", error),
        Err(error) if error.means_no_gpu() => return bregman_skip::no_gpu(&error),
        Err(error) => panic!("the GPU of this machine cannot be used: {error}"),
    }
    let world = &*WORLD;
    let manifest = world.voice("test.csv");
    let [ours, theirs] = ["cpu", "cuda"].map(|device| {
        // Otherwise the second run would find those of the first.
        let _ = std::fs::remove_dir_all(world.run.join("embeddings"));
        let rates = json(&world.evaluate(&["--json", "--device", device]));
        assert!(rates["computed"].as_u64().unwrap() > 0, "{rates}");
        let embedded =
            json(&bregman(&["embed", text(&world.run), "--manifest", &manifest, "--json", "--device", device]));
        (rates["eer"].as_f64().unwrap(), embedded.as_array().unwrap().clone())
    });
    // 18 utterances: one trial may swap its rank.
    assert!((ours.0 - theirs.0).abs() < 0.02, "EER {} and {}", ours.0, theirs.0);
    assert_eq!(ours.1.len(), theirs.1.len());
    for (ours, theirs) in ours.1.iter().zip(&theirs.1) {
        let numbers =
            |row: &Value| row["embedding"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect::<Vec<_>>();
        let length = |values: &[f64]| values.iter().map(|x| x * x).sum::<f64>().sqrt();
        let (a, b) = (numbers(ours), numbers(theirs));
        let apart = length(&a.iter().zip(&b).map(|(a, b)| a - b).collect::<Vec<_>>()) / length(&a);
        assert!(apart < 1e-4, "{}: {apart:e} apart", ours["utterance"]);
    }
}
