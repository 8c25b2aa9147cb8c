//! Every command that needs a network takes a run or its model file, and both decide alike; sparsity is one number
//! everywhere.

mod common;

use std::path::Path;

use bregman_speaker::score::{cosine, read_scores};
use common::{bregman, data, mistake, success, text, tiny_run, verdict};
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    common::json(&bregman(args))
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("no {key} in {value}"))
}

/// Two recordings of a trial with this label.
fn pair(voices: &Path, label: &str) -> [String; 2] {
    let list = std::fs::read_to_string(voices.join("trials.txt")).unwrap();
    let line = list.lines().find(|line| line.starts_with(label)).unwrap();
    let names: Vec<&str> = line.split_whitespace().skip(1).collect();
    [0, 1].map(|at| text(&voices.join(names[at])).to_owned())
}

#[test]
fn a_run_and_its_model_file_decide_alike_in_every_command() {
    let dir = tempfile::tempdir().unwrap();
    let (voices, run, _) = tiny_run(dir.path());
    let file = |name: &str| text(&dir.path().join(name)).to_owned();
    let (root, trials) = (text(&voices).to_owned(), text(&voices.join("trials.txt")).to_owned());
    let ([a, b], [c, _]) = (pair(&voices, "0 "), pair(&voices, "1 "));
    for (values, tolerance) in [("f32", 1e-4), ("f16", 5e-3)] {
        let model = file(&format!("{values}.breg"));
        json(&["export", text(&run), "-o", &model, "--values", values, "--trials", &trials, "--root", &root, "--json"]);
        let networks = [text(&run).to_owned(), model];
        let close = |what: &str, [of_run, of_file]: [f64; 2]| {
            assert!((of_run - of_file).abs() < tolerance, "{what} in {values}: {of_run} and {of_file}");
        };

        let evaluated = networks.each_ref().map(|network| {
            let scores = file("scores.txt");
            let list = ["--trials", &trials, "--root", &root, "--scores", &scores, "--force", "--json"];
            (json(&[&["evaluate", network], &list[..]].concat()), read_scores(Path::new(&scores)).unwrap().0)
        });
        let [(of_run, run_scores), (of_file, file_scores)] = &evaluated;
        assert_eq!(run_scores.len(), file_scores.len());
        run_scores.iter().zip(file_scores).for_each(|(&of_run, &of_file)| close("score", [of_run, of_file]));
        assert!(number(of_run, "sparsity") > 0.0 && of_run["zeros_in_file"].is_null(), "{of_run}");
        assert!(number(of_file, "zeros_in_file") > 0.0 && of_file["sparsity"].is_null(), "{of_file}");
        assert_eq!((of_run["domain"].as_str(), of_file["domain"].as_str()), (Some("in"), None));
        close("threshold", [number(of_run, "threshold"), number(of_file, "threshold")]);

        // the threshold of the run's evaluation, and the one inside the file
        for (first, second) in [(&a, &b), (&a, &c)] {
            let verdicts = networks.each_ref().map(|network| {
                let by = |option: &str| verdict(&bregman(&["verify", first, second, option, network, "--json"]));
                let verdict = by("--model");
                assert_eq!(by("--run")["same"], verdict["same"]);
                verdict
            });
            close("score", verdicts.each_ref().map(|verdict| number(verdict, "score")));
            let threshold = verdicts.each_ref().map(|verdict| number(verdict, "threshold"));
            close("threshold", threshold);
            if (number(&verdicts[0], "score") - threshold[0]).abs() > 2.0 * tolerance {
                assert_eq!(verdicts[0]["same"], verdicts[1]["same"]);
            }
        }

        let identified = networks.each_ref().map(|network| {
            let known = format!("{network}.{values}.known.json");
            for (name, recording) in [("ann", &a), ("bob", &b)] {
                json(&["enroll", name, recording, "--model", network, "--speakers", &known, "--json"]);
            }
            let identify =
                |more: &[&str]| verdict(&bregman(&[&["identify", &b, "--speakers", &known, "--json"], more].concat()));
            let found = identify(&["--model", network, "--threshold", "0.5"]);
            assert!(number(&identify(&["--run", network]), "threshold") < 1.0);
            (known, found)
        });
        let [(known, of_run), (_, of_file)] = &identified;
        assert_eq!((of_run["speaker"].as_str(), of_file["speaker"].as_str()), (Some("bob"), Some("bob")));
        close("match", [of_run, of_file].map(|found| number(&found["matches"][1], "score")));
        let other = mistake(&bregman(&["identify", &b, "--model", &networks[1], "--speakers", known]));
        assert!(other.contains("another network or other settings"), "{other}");

        let [of_run, of_file] = networks.each_ref().map(|network| {
            let rows = json(&["embed", network, &a, "--json"]);
            let values = rows[0]["embedding"].as_array().unwrap();
            values.iter().map(|value| value.as_f64().unwrap() as f32).collect::<Vec<f32>>()
        });
        assert!(1.0 - cosine(&of_run, &of_file) < tolerance, "{of_run:?} and {of_file:?}");
        for network in &networks {
            let bench = json(&["bench", network, "--seconds", "1", "--repeats", "1", "--json"]);
            assert!(number(&bench["rows"][0], "total_ms") > 0.0);
        }
    }
}

#[test]
fn train_inspect_report_and_evaluate_state_one_sparsity_and_a_file_its_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let (voices, run, trained) = tiny_run(dir.path());
    let (last, report, model) = (run.join("last"), dir.path().join("report.html"), dir.path().join("model.breg"));
    let sparsity = number(&trained, "sparsity");
    let same = |what: &str, value: f64| assert!((value - sparsity).abs() < 1e-12, "{what}: {value}, not {sparsity}");
    same("inspect", number(&json(&["inspect", text(&last), "--json"]), "sparsity"));
    let printed = json(&["report", text(&run), "-o", text(&report), "--json"]);
    same("report", number(&printed["runs"][0], "sparsity"));
    same("page", number(&data(&report)["runs"][0], "sparsity"));
    let trials = voices.join("trials.txt");
    let args = ["evaluate", text(&last), "--trials", text(&trials), "--root", text(&voices), "--json"];
    same("evaluate", number(&json(&args), "sparsity"));
    let percent = format!("{:.2} %", 100.0 * sparsity);
    assert!(success(&bregman(&["inspect", text(&last)])).contains(&percent));

    // a model file has no classifier: its share of zeros is another one, and is called otherwise
    let exported = json(&["export", text(&last), "-o", text(&model), "--values", "f32", "--json"]);
    let inspected = json(&["inspect", text(&model), "--json"]);
    assert_eq!(number(&exported, "zeros_in_file"), number(&inspected, "zeros_in_file"));
    assert!(exported["sparsity"].is_null() && inspected["sparsity"].is_null());
    let layers = json(&["inspect", text(&last), "--json"]);
    let is_stored = |layer: &&Value| !layer["name"].as_str().unwrap().starts_with("projection.");
    let nonzero = layers["layers"].as_array().unwrap().iter().filter(is_stored).map(|layer| number(layer, "nonzero"));
    assert_eq!(nonzero.sum::<f64>(), number(&exported, "nonzero"));
    assert!(success(&bregman(&["inspect", text(&model)])).contains("zeros in the file"));
}
