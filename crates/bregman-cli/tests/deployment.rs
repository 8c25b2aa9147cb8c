//! From a trained run to a model file and its use, as a user runs it.

mod common;

use std::path::Path;

use common::{bregman, success, text, tiny_run, verdict};
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    common::json(&bregman(args))
}

fn mistake(args: &[&str]) -> String {
    common::mistake(&bregman(args))
}

#[test]
fn a_run_becomes_a_file_that_verifies_as_the_run_does() {
    let dir = tempfile::tempdir().unwrap();
    let (voices, run, _) = tiny_run(dir.path());
    let file = |name: &str| text(&dir.path().join(name)).to_owned();
    let (model, trials) = (file("model.breg"), text(&voices.join("trials.txt")).to_owned());
    let export =
        ["export", text(&run), "-o", &model, "--values", "f32", "--trials", &trials, "--root", text(&voices), "--json"];
    let exported = json(&export);
    let bytes = std::fs::metadata(&model).unwrap().len();
    assert_eq!(exported["bytes"].as_u64(), Some(bytes));
    assert!(mistake(&export).contains("--force"));

    let list = std::fs::read_to_string(&trials).unwrap();
    let names: Vec<&str> = list.lines().next().unwrap().split_whitespace().collect();
    let (first, second) = (text(&voices.join(names[1])).to_owned(), text(&voices.join(names[2])).to_owned());
    let verify = |network: &[&str]| verdict(&bregman(&[&["verify", &first, &second, "--json"], network].concat()));
    let by_model = verify(&["--model", &model]);
    let by_run = verify(&["--run", text(&run), "--threshold", "0.5"]);
    let number = |value: &Value, key: &str| value[key].as_f64().unwrap_or_else(|| panic!("no {key} in {value}"));
    assert!((number(&by_model, "score") - number(&by_run, "score")).abs() < 1e-4, "{by_model} and {by_run}");
    assert_eq!(number(&by_model, "threshold"), number(&exported["threshold"], "cosine"));
    assert!(number(&by_model, "open_ms") > 0.0 && number(&by_model, "embed_ms") > 0.0);
    let printed = success(&bregman(&["verify", &first, &first, "--model", &model]));
    assert!(printed.contains("speaker: score") && printed.contains("ms to embed"), "{printed}");

    // the sizes in the file add up, and the pattern is drawn for a file and for a run
    let (svg, png) = (file("pattern.svg"), file("pattern.png"));
    let inspected = json(&["inspect", &model, "--plot", &svg, "--json"]);
    let layers = inspected["layers"].as_array().unwrap();
    let sum = |key: &str| layers.iter().map(|layer| number(layer, key)).sum::<f64>();
    assert_eq!(sum("nonzero"), number(&inspected, "nonzero"));
    assert!((sum("time_share") - 1.0).abs() < 1e-9 && sum("bytes") < bytes as f64);
    assert!(
        layers
            .iter()
            .all(|layer| number(layer, "zeros") >= 0.0 && number(layer, "multiply_adds") >= number(layer, "nonzero"))
    );
    assert!(success(&bregman(&["inspect", &model])).contains("layer2.se_res2block.1.convs.0"));
    success(&bregman(&["inspect", text(&run), "--plot", &png]));
    assert!(mistake(&["inspect", text(&run), "--plot", &png]).contains("--force"));
    success(&bregman(&["inspect", text(&run), "--plot", &png, "--force"]));
    assert!(
        std::fs::read_to_string(&svg).unwrap().starts_with("<svg")
            && std::fs::read(&png).unwrap().starts_with(b"\x89PNG")
    );
    assert!(mistake(&["inspect", &model, "--plot", &file("pattern.gif")]).contains(".svg or .png"));

    let bench = json(&["bench", &model, "--seconds", "1", "--repeats", "2", "--hop", "0.5", "--calibrate", "--json"]);
    assert!(["file_ms", "live_ms", "anew_ms"].iter().all(|times| number(&bench["sliding"], times) > 0.0), "{bench}");
    let rows = bench["rows"].as_array().unwrap();
    assert!(
        rows[0]["threads"] == 1
            && rows.iter().all(|row| number(row, "total_ms") > 0.0 && number(row, "utterances_per_second") > 0.0)
    );
    assert!(success(&bregman(&["bench", &model, "--seconds", "1", "--repeats", "1"])).contains("× real time"));

    // many threads, two models: each serves every request once at least, every embedding is that of the first time, and
    // memory stays flat
    let soaked = json(&["bench", &model, text(&run), "--soak", "1s", "--threads", "5", "--json"]);
    let latency = |key: &str| number(&soaked["latency_ms"], key);
    assert!(latency("p50") <= latency("p90") && latency("p99") <= latency("p999") && latency("p999") <= latency("max"));
    assert_eq!((number(&soaked, "models"), number(&soaked, "threads"), number(&soaked, "different")), (2.0, 5.0, 0.0));
    assert!(number(&soaked, "requests") >= 5.0 * 12.0 && soaked["memory_mb"].as_array().unwrap().len() <= 50);
    assert!(mistake(&["bench", &model, &model]).contains("more than one model"));
}

#[test]
fn invalid_models_and_short_audio_are_one_line_errors() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| text(&dir.path().join(name)).to_owned();
    std::fs::write(file("notes.breg"), "not a model").unwrap();
    for command in [&["inspect"][..], &["bench"], &["verify", "a.wav", "b.wav", "--model"]] {
        let message = mistake(&[command, &[&*file("notes.breg")]].concat());
        assert!(message.contains("notes.breg") && message.contains("not a usable model file"), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    assert!(mistake(&["bench", &file("absent.breg")]).contains("absent.breg"));
    let (voices, run, _) = tiny_run(dir.path());
    let model = file("model.breg");
    success(&bregman(&["export", text(&run), "-o", &model]));
    let voice = text(&voices.join("trials.txt")).to_owned();
    assert!(mistake(&["verify", &voice, &voice, "--model", &model]).contains("no threshold"));
    let short = file("short.wav");
    bregman_audio::write_wav(Path::new(&short), &bregman_audio::Audio { samples: vec![0.1; 300], rate: 16_000 })
        .unwrap();
    let message = mistake(&["verify", &short, &short, "--model", &model, "--threshold", "0.5"]);
    assert!(message.contains("short.wav") && message.contains("it has 300 samples (0.019 s)"), "{message}");
}
