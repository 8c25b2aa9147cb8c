//! `bregman report` and `bregman plot` as a user calls them.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use common::{bregman, data, epoch_line, mistake, start, step_line, success, synth, text, timeless_metrics, write_run};
use serde_json::Value;

/// A tiny network, trained and evaluated once per process.
struct World {
    dir: PathBuf,
    recipe: PathBuf,
    run: PathBuf,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir); // left by an earlier process with the same id
    let (voices, recipe, run) = (dir.join("voices"), dir.join("recipe.toml"), dir.join("a <b> run"));
    synth(&voices, [6, 6, 3], ["0.7", "0.9"]);
    let settings = format!(
        "[model]\nkind = \"resnet\"\nblocks = [1, 1, 1, 1]\nchannels = 4\nembedding = 16\n[data]\nroot = {voices:?}\n\
         seconds = 0.3\nvalidation = 0.2\nfeatures = {{ bins = 16 }}\n[train]\nepochs = 2\nbatch = 4\n\
         [method]\nkind = \"adaptive\"\ntarget = 0.5\ngroups = [{{ initial_sparsity = 0.5 }}]\n"
    );
    std::fs::write(&recipe, settings).unwrap();
    success(&bregman(&["train", text(&recipe), "--set", "method.target=0.6", "--out", text(&run)]));
    let trials = voices.join("trials.txt");
    success(&bregman(&["evaluate", text(&run), "--trials", text(&trials), "--root", text(&voices)]));
    World { dir, recipe, run }
});

#[test]
fn a_report_holds_the_numbers_of_a_trained_and_evaluated_run() {
    let world = &*WORLD;
    let report = world.dir.join("one.html");
    let printed: Value =
        serde_json::from_str(&success(&bregman(&["report", text(&world.run), "-o", text(&report), "--json"]))).unwrap();
    assert_eq!(
        (printed["runs"][0]["status"].as_str(), printed["runs"][0]["evaluations"].as_u64()),
        (Some("finished"), Some(1))
    );
    let data = data(&report);
    let run = &data["runs"][0];
    let logged = timeless_metrics(&world.run);
    let losses: Vec<f64> =
        logged.iter().filter(|line| line["kind"] == "step").map(|line| line["loss"].as_f64().unwrap()).collect();
    let shown = run["curves"]["metrics"]["loss"]["mean"].as_array().unwrap();
    assert_eq!(shown.len(), losses.len());
    assert!(
        shown.iter().zip(&losses).all(|(shown, loss)| (shown.as_f64().unwrap() - loss).abs() <= 1e-5 * loss),
        "six digits"
    );
    assert_eq!(
        (run["name"].as_str(), run["target"].as_f64(), run["title"].as_str()),
        (Some("a <b> run"), Some(0.6), Some("LinBreg → 60 %"))
    );
    let last = logged.iter().rfind(|line| line["kind"] == "epoch").unwrap();
    let names =
        |layers: &Value| layers.as_array().unwrap().iter().map(|layer| layer["name"].clone()).collect::<Vec<_>>();
    assert_eq!(names(&run["layers"]["layers"]), names(&last["layers"]));
    let evaluation = &run["evaluations"][0];
    assert_eq!((evaluation["domain"].as_str(), evaluation["test"].as_str()), (Some("in"), Some("voices trials")));
    assert!(evaluation["intervals"]["eer"][1].as_f64() >= evaluation["eer"].as_f64());
    let histogram = &evaluation["histogram"];
    let sum =
        |class: &str| histogram[class].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum::<u64>();
    assert_eq!(Some(sum("targets") + sum("others")), evaluation["trials"].as_u64());
    assert!(run["recipe"].as_str().unwrap().contains("target = 0.6") && data["live"].is_null());
    assert!(run["started"].as_str().unwrap().contains("--set method.target=0.6"));
}

#[test]
fn the_command_in_the_report_trains_the_same_network_again() {
    let world = &*WORLD;
    let report = world.dir.join("again.html");
    success(&bregman(&["report", text(&world.run), "-o", text(&report)]));
    let command = data(&report)["runs"][0]["reproduce"].as_str().unwrap().to_owned();
    let program = Path::new(env!("CARGO_BIN_EXE_bregman")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    success(&Command::new("sh").args(["-c", &command]).env("PATH", path).output().unwrap());
    let again = world.dir.join("a <b> run-again");
    assert_eq!(timeless_metrics(&again), timeless_metrics(&world.run));
    let weights = |run: &Path| std::fs::read(run.join("last/model.safetensors")).unwrap();
    assert!(weights(&again) == weights(&world.run), "the same bits");
}

#[test]
fn damaged_runs_are_shown_with_notes_about_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let cut = write_run(&at("cut"), 3, 0.9, "linbreg");
    let log = std::fs::read_to_string(cut.join("metrics.jsonl")).unwrap();
    std::fs::write(cut.join("metrics.jsonl"), &log[..log.len() - 40]).unwrap();
    std::fs::create_dir(at("empty")).unwrap();
    std::fs::create_dir(at("bare")).unwrap();
    std::fs::write(at("bare").join("metrics.jsonl"), step_line(1, 0.5) + "rubbish\n" + &step_line(2, 0.5)).unwrap();
    let broken = write_run(&at("broken"), 1, 0.9, "adabreg");
    std::fs::write(broken.join("config.toml"), "method = [").unwrap();
    std::fs::write(broken.join("evaluations/here.json"), "{\"test\":").unwrap();
    let diverged = write_run(&at("diverged"), 1, 0.9, "adabreg");
    std::fs::write(diverged.join("metrics.jsonl"), "{\"kind\":\"step\",\"step\":1,\"loss\":null,\"sparsity\":0.9}\n")
        .unwrap();

    let report = at("report.html");
    let runs: Vec<PathBuf> = ["cut", "empty", "bare", "broken", "diverged"].map(at).to_vec();
    let args: Vec<&str> = ["report", "-o", text(&report)].into_iter().chain(runs.iter().map(|run| text(run))).collect();
    success(&bregman(&args));
    let data = data(&report);
    let run = |name: &str| data["runs"].as_array().unwrap().iter().find(|run| run["name"] == name).unwrap();
    let says = |name: &str, expected: &str| {
        let notes = run(name)["notes"].to_string();
        assert!(notes.contains(expected), "{name}: {notes}");
    };
    says("cut", "cut off");
    says("cut", "not finished: 2 of 4 epochs, 30 steps");
    assert_eq!(run("cut")["epochs"]["epoch"].as_array().unwrap().len(), 2, "what is whole is shown");
    says("empty", "metrics.jsonl is missing");
    assert_eq!(run("empty")["status"], "empty");
    says("bare", "line 2 of metrics.jsonl cannot be understood");
    says("bare", "config.toml is missing");
    says("bare", "no epoch has ended yet");
    assert_eq!(run("bare")["curves"]["last"], serde_json::json!([1, 2]));
    says("broken", "config.toml, line 1");
    says("broken", "here.json");
    assert_eq!(run("broken")["evaluations"].as_array().unwrap().len(), 1, "the other one is shown");
    says("diverged", "not a number at step 1");
}

#[test]
fn mistakes_end_with_code_2_and_leave_other_files_alone() {
    let dir = tempfile::tempdir().unwrap();
    let run = write_run(&dir.path().join("run"), 1, 0.9, "linbreg");
    let precious = dir.path().join("precious.html");
    std::fs::write(&precious, "my thesis").unwrap();
    assert!(mistake(&bregman(&["report", text(&run), "-o", text(&precious)])).contains("--force"));
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "my thesis");
    let report = dir.path().join("report.html");
    assert!(
        mistake(&bregman(&["report", "/nowhere/run", "-o", text(&report)])).contains("/nowhere/run: no such folder")
    );
    success(&bregman(&["report", text(&run), "-o", text(&report)]));
    assert!(mistake(&bregman(&["report", text(&run), "-o", text(&report)])).contains("--force"), "also a page");
    success(&bregman(&["report", text(&run), "-o", text(&report), "--force"]));
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "temporary files left behind: {left:?}");

    let figure = dir.path().join("figure.svg");
    let plot = |what: &str, out: &Path| bregman(&["plot", text(&run), "--what", what, "-o", text(out)]);
    assert!(mistake(&plot("sparsity", &dir.path().join("figure.doc"))).contains(".svg, .png or .pdf"));
    assert!(mistake(&plot("colour", &figure)).contains("possible values"));
    success(&plot("sparsity", &figure));
    assert!(mistake(&plot("sparsity", &figure)).contains("--force"));
    let bare = dir.path().join("bare");
    std::fs::create_dir(&bare).unwrap();
    assert!(
        mistake(&bregman(&["plot", text(&bare), "--what", "det", "-o", text(&dir.path().join("det.svg"))]))
            .contains("bregman evaluate")
    );
}

#[test]
fn the_watch_follows_a_run_from_before_its_beginning_to_its_end() {
    let world = &*WORLD;
    let (run, report) = (world.dir.join("watched"), world.dir.join("watched.html"));
    let args = ["report", text(&run), "-o", text(&report), "--watch", "--every", "1"];
    let mut watch = start(&args);
    let until = |what: &str, done: &mut dyn FnMut() -> bool| {
        let began = Instant::now();
        while !done() {
            assert!(began.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    until("a page before the run has begun", &mut || report.exists());
    let first = data(&report);
    assert_eq!((first["live"].as_u64(), first["runs"][0]["status"].as_str()), (Some(1), Some("empty")));
    success(&bregman(&["train", text(&world.recipe), "--out", text(&run)]));
    until("the end of the watch", &mut || watch.try_wait().unwrap().is_some());
    assert!(watch.wait().unwrap().success());
    let last = data(&report);
    assert_eq!((last["live"].as_u64(), last["runs"][0]["status"].as_str()), (None, Some("finished")));
    assert!(last["runs"][0]["steps_done"].as_u64() > Some(0));
}

#[test]
fn a_run_of_many_steps_is_thinned_and_keeps_its_extremes() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("long");
    std::fs::create_dir(&run).unwrap();
    let line = |step: u64| {
        step_line(step, 0.9).replace(
            &format!("\"loss\":{}", 3.0 / step as f64),
            &format!("\"loss\":{}", if step == 7_777 { 99.0 } else { 1.0 }),
        )
    };
    let log: String = (1..=20_000).map(line).chain([epoch_line(1, 0.9)]).collect();
    std::fs::write(run.join("metrics.jsonl"), log).unwrap();
    let report = dir.path().join("report.html");
    success(&bregman(&["report", text(&run), "-o", text(&report)]));
    let curves = &data(&report)["runs"][0]["curves"];
    let loss = &curves["metrics"]["loss"];
    assert_eq!((curves["logged"].as_u64(), loss["mean"].as_array().map(Vec::len)), (Some(20_000), Some(4000)));
    assert!(
        loss["high"].as_array().unwrap().contains(&99.0.into())
            && !loss["mean"].as_array().unwrap().contains(&99.0.into())
    );
}

#[test]
fn figures_are_written_in_every_format_and_of_every_kind() {
    let dir = tempfile::tempdir().unwrap();
    let runs = dir.path().join("runs");
    write_run(&runs.join("a"), 4, 0.9, "linbreg");
    write_run(&runs.join("b"), 4, 0.95, "adabreg");
    let plot = |what: &str, name: &str| {
        let out = dir.path().join(name);
        success(&bregman(&["plot", text(&runs), "--what", what, "-o", text(&out)]));
        std::fs::read(out).unwrap()
    };
    let every = "sparsity,lambda,error,loss,accuracy,validation-loss,validation-accuracy,norm,\
                 lr,margin,speed,groups,layers,heat,eer,eer-out,det,scores";
    let svg = String::from_utf8(plot(every, "all.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>") && svg.contains("width=\"480pt\""));
    for words in ["zeros, %", "Frobenius norm", "false alarms, %", "layer2.conv", "AdaBreg", "same speaker", "λ"] {
        assert!(svg.contains(words), "{words}");
    }

    write_run(&runs.join("c"), 4, 0.95, "prox_sgd");
    let at_chance = common::evaluation("here", "in", 0.95, 0.5).to_string();
    std::fs::write(runs.join("c/evaluations/here.json"), at_chance).unwrap();
    let svg = String::from_utf8(plot("eer", "eer.svg")).unwrap();
    assert!(svg.contains("(not shown: learnt nothing)"), "a network at chance does not set the scale");
    std::fs::remove_dir_all(runs.join("c")).unwrap();

    let png = plot("sparsity,lambda", "two.png");
    let mut reader = png::Decoder::new(std::io::Cursor::new(&png)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let frame = reader.next_frame(&mut pixels).unwrap();
    assert_eq!(frame.width, 4 * 480);
    let blue = pixels.chunks(3).filter(|pixel| **pixel == [0, 114, 178]).count();
    assert!(blue > 1000, "the first run is blue: {blue} pixels");

    let pdf = plot(every, "all.pdf");
    let text = String::from_utf8_lossy(&pdf);
    let table: usize = text.rsplit("startxref\n").next().unwrap().lines().next().unwrap().parse().unwrap();
    let entries = String::from_utf8_lossy(&pdf[table..]).into_owned();
    let places: Vec<usize> =
        entries.lines().filter(|line| line.ends_with(" n ")).map(|line| line[..10].parse().unwrap()).collect();
    assert_eq!(places.len(), 9);
    for (at, &place) in places.iter().enumerate() {
        assert!(
            pdf[place..].starts_with(format!("{} 0 obj", at + 1).as_bytes()),
            "object {} is where the table says",
            at + 1
        );
    }
    assert!(text.contains("/FontFile2") && text.contains("/ToUnicode"));
}
