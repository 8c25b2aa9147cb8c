//! `bregman demo` from an empty folder to its table, with fewer voices and steps.

mod common;

use common::{bregman, json, mistake, success, text};

#[test]
fn the_demo_trains_exports_measures_and_shows_a_dense_and_two_sparse_networks() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("demo");
    let demo = json(&bregman(&["demo", "--quick", "--out", text(&out), "--json"]));
    let rows = demo["runs"].as_array().unwrap();
    let number = |at: usize, key: &str| rows[at][key].as_f64().unwrap_or_else(|| panic!("{key} of {}", rows[at]));
    for (at, asked) in [(0, 0.0), (1, 0.9), (2, 0.95)] {
        assert!((number(at, "sparsity") - asked).abs() < 0.01, "asked for {asked}: {demo}");
        assert!((0.0..0.5).contains(&number(at, "eer")), "{demo}");
        let file = std::fs::metadata(rows[at]["file"].as_str().unwrap()).unwrap();
        assert_eq!(number(at, "bytes"), file.len() as f64);
        assert!(number(at, "milliseconds") > 0.0 && number(at, "training_seconds") > 0.0, "{demo}");
    }
    assert!(number(1, "bytes") < 0.5 * number(0, "bytes") && number(2, "bytes") < number(1, "bytes"), "{demo}");
    assert!(std::fs::read_to_string(demo["report"].as_str().unwrap()).unwrap().starts_with("<!doctype html>"));

    // The same command again makes the voices anew if it was stopped before all were there, and shows the table;
    // nothing is left to train.
    let last = out.join("voices/train.csv");
    let written = std::fs::read(&last).unwrap();
    std::fs::remove_file(&last).unwrap();
    let table = success(&bregman(&["demo", "--quick", "--out", text(&out)]));
    for expected in ["one utterance", " kB", " ms", "asked for", "90.00 %", "95.00 %", "█", "report.html"] {
        assert!(table.contains(expected), "no '{expected}' in\n{table}");
    }
    assert_eq!(std::fs::read(&last).unwrap(), written);

    // what is no demo's is not touched
    let theirs = dir.path().join("theirs");
    std::fs::create_dir_all(theirs.join("voices")).unwrap();
    for name in ["report.html", "dense.breg", "voices/test.csv"] {
        std::fs::write(theirs.join(name), "kept").unwrap();
    }
    let refused = mistake(&bregman(&["demo", "--quick", "--out", text(&theirs)]));
    assert!(refused.contains("theirs") && refused.contains("choose another --out"), "{refused}");
    for name in ["report.html", "dense.breg", "voices/test.csv"] {
        assert_eq!(std::fs::read(theirs.join(name)).unwrap(), b"kept", "{name}");
    }

    let blocks = |line: &str| line.chars().filter(|c| ('▁'..='█').contains(c)).count();
    assert_eq!(table.lines().filter(|line| blocks(line) > 20).count(), 2, "a curve of each sparse network in\n{table}");
}
