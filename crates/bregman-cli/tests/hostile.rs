//! Input that nobody means: refused in one line that says what was found, before it takes memory or time.

mod common;

use std::path::Path;

use bregman_audio::{Audio, write_wav};
use common::{bregman, errors, mistake, success, text, tiny_run};

fn wav(path: &Path, samples: Vec<f32>) {
    write_wav(path, &Audio { samples, rate: 16_000 }).unwrap();
}

#[test]
fn audio_without_speech_is_refused_wherever_a_speaker_is_to_be_recognised() {
    let dir = tempfile::tempdir().unwrap();
    let (voices, run, _) = tiny_run(dir.path());
    let file = |name: &str| dir.path().join(name);
    let (model, known) = (file("model.breg"), file("known.json"));
    success(&bregman(&["export", text(&run), "-o", text(&model)]));
    wav(&file("silence.wav"), vec![0.0; 32_000]);
    wav(&file("constant.wav"), vec![0.5; 32_000]);
    wav(&file("sample.wav"), vec![0.5]);
    let voice = std::fs::read_to_string(voices.join("trials.txt")).unwrap();
    let voice = voices.join(voice.split_whitespace().nth(1).unwrap());

    for network in [&run, &model] {
        for (silent, found) in [
            ("silence.wav", "its 2.0 s are silent"),
            ("constant.wav", "its 2.0 s are silent"),
            ("sample.wav", "it has 1 samples"),
        ] {
            let silent = file(silent);
            let of = ["--model", text(network)];
            let list = ["--speakers", text(&known)];
            for command in [
                &["verify", text(&voice), text(&silent), "--threshold", "0.5"][..],
                &["enroll", "ann", text(&voice), text(&silent), list[0], list[1]],
            ] {
                let message = mistake(&bregman(&[command, &of[..]].concat()));
                assert!(message.contains("no speech in it") && message.contains(found), "{message}");
            }
            assert!(!known.exists(), "nobody was enrolled");
            let embedded = bregman(&["embed", text(network), text(&voice), text(&silent)]);
            assert_eq!(success(&embedded).lines().count(), 1, "only the voice");
            assert!(errors(&embedded).contains(found), "{}", errors(&embedded));
        }
        success(&bregman(&["enroll", "ann", text(&voice), "--speakers", text(&known), "--model", text(network)]));
        let silence = file("silence.wav");
        let who = ["identify", text(&silence), "--speakers", text(&known), "--threshold", "0.5"];
        let message = mistake(&bregman(&[&who[..], &["--model", text(network)]].concat()));
        assert!(message.contains("no speech in it"), "{message}");
        std::fs::remove_file(&known).unwrap();
    }

    // A corpus is embedded as it is, so that no trial of a list is lost, and its silence is counted.
    let manifest = file("corpus.csv");
    std::fs::write(&manifest, format!("path,speaker\n{},a\nsilence.wav,b\n", text(&voice))).unwrap();
    let embedded = bregman(&["embed", text(&model), "--manifest", text(&manifest)]);
    assert_eq!(success(&embedded).lines().count(), 2);
    assert!(errors(&embedded).contains("1 utterances have no speech in them"), "{}", errors(&embedded));

    for name in ["two\nlines", "\u{1b}[2Jann", " ", &"a".repeat(101)] {
        let message =
            mistake(&bregman(&["enroll", name, text(&voice), "--speakers", text(&known), "--model", text(&model)]));
        assert!(message.contains("characters without line breaks") && !message.contains('\u{1b}'), "{message}");
    }
    for threshold in ["nan", "inf"] {
        let asked = ["verify", text(&voice), text(&voice), "--model", text(&model), "--threshold", threshold];
        assert!(mistake(&bregman(&asked)).contains(&format!("--threshold {}", threshold.replace("nan", "NaN"))));
    }
}

#[test]
fn numbers_without_bound_are_refused_by_their_option() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let many = "100000000000";
    let synth = |option: &str, value: &str| mistake(&bregman(&["synth", "--out", text(&out), option, value]));
    assert!(synth("--syllables", many).contains("syllables = 100000000000"));
    assert!(synth("--jobs", "100000").contains("--jobs 100000"));
    let sweep = mistake(&bregman(&["sweep", "--plan", "plan.toml", "--out", text(&out), "--jobs", "100000"]));
    assert!(sweep.contains("--jobs 100000"), "{sweep}");
    let channels = format!("model.channels={many}");
    let recipe = ["recipes", "audiomnist/ecapa-adabreg", "--set", "data.root=x", "--set", &channels];
    let message = mistake(&bregman(&recipe));
    assert!(message.contains("channels = 100000000000"), "{message}");
    assert!(!out.exists());
}

#[test]
#[cfg(unix)]
fn what_never_ends_is_refused_and_a_line_of_megabytes_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let (fifo, out) = (file("fifo.toml"), file("run"));
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let train = |recipe: &Path| mistake(&bregman(&["train", text(recipe), "--out", text(&out)]));
    assert!(train(&fifo).contains("is a FIFO, where a regular file is expected"));
    std::fs::write(file("zero.toml"), "base = \"/dev/zero\"\n").unwrap();
    assert!(train(&file("zero.toml")).contains("/dev/zero: is a device"));
    std::fs::write(file("large.toml"), "#".repeat(2 << 20)).unwrap();
    assert!(train(&file("large.toml")).contains("is larger than 1 MB"));

    let long = format!("path,speaker\na,b\n\u{1b}[2J{},b,c\n", "x".repeat(3 << 20));
    std::fs::write(file("long.csv"), &long).unwrap();
    std::fs::write(file("header.csv"), long.replace("path,speaker", &"x".repeat(3 << 20))).unwrap();
    for list in ["long.csv", "header.csv"] {
        let output = bregman(&["prepare", "csv", text(&file(list)), "--out", text(&file("m.csv"))]);
        let message = mistake(&output);
        assert!(message.len() < 3000 && !message.contains('\u{1b}'), "{} bytes", message.len());
    }
    let recipe = format!("seed = \"{}\"\n[data]\nroot = \"x\"\n", "y".repeat(500_000));
    std::fs::write(file("long.toml"), recipe).unwrap();
    let message = train(&file("long.toml"));
    assert!(message.len() < 3000 && message.contains("long.toml"), "{} bytes", message.len());
}
