//! The page in Chromium: a script acts like a user and reports what the page then shows.

#[path = "../common/mod.rs"]
mod common;
mod server;

use std::path::Path;

use bregman_audio::{Audio, wav_bytes};
use bregman_speaker::{SynthConfig, SynthCorpus};
use serde_json::json;
use server::Server;

/// A name that would be trouble if it were read as HTML.
const ANA: &str = "Ana <img src=x> & Co.";

/// Flags of a browser whose microphone hears `recording`, once.
fn microphone(recording: &Path) -> Vec<String> {
    vec![
        "--use-fake-device-for-media-stream".to_owned(),
        "--use-fake-ui-for-media-stream".to_owned(),
        format!("--use-file-for-fake-audio-capture={}%noloop", recording.display()),
    ]
}

#[test]
fn the_page_verifies_two_recordings_in_a_browser() {
    let Some(chromium) = bregman_skip::chromium_or_skip() else { return };
    let Some(web) = common::web() else { return };
    let model = common::model();
    let ([first, second], score) = common::sounds(&model);
    let server = Server::start(&web, [("model.breg", model), ("first.wav", first), ("second.wav", second)]);
    let profile = tempfile::tempdir().unwrap();
    let report = server.play(&chromium, profile.path(), &[], "files");
    assert!(
        report["refusal"].as_str().unwrap().contains("model.breg: this browser cannot decode it as audio"),
        "{report}"
    );
    let number = |key: &str| report[key].as_str().unwrap().parse::<f64>().unwrap();
    assert!((number("score") - score).abs() <= 1e-4, "{report} against {score}");
    assert_eq!(
        (number("threshold"), report["decision"].as_str().unwrap()),
        (0.25, if score > 0.25 { "same" } else { "another" })
    );
    assert!(number("time") > 0.0 && report["text"].as_str().unwrap().contains("real time"), "{report}");
}

#[test]
fn the_page_learns_voices_from_the_microphone_and_keeps_them_until_it_is_told_to_forget() {
    let Some(chromium) = bregman_skip::chromium_or_skip() else { return };
    let Some(web) = common::web() else { return };
    let config = SynthConfig { speakers: 3, held_out: 1, seconds: [3.0, 3.5], distortion: 0.0, ..Default::default() };
    let voices = SynthCorpus::new(config).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let hears = |speaker: usize, number: usize| {
        let quiet = vec![0.0; 8_000];
        let speech = voices.render(speaker, number).into_iter().map(|sample| f32::from(sample) / 32_768.0).collect();
        let path = folder.path().join(format!("{speaker}-{number}.wav"));
        let samples = [quiet.clone(), speech, quiet].concat();
        std::fs::write(&path, wav_bytes(&Audio { samples, rate: 16_000 })).unwrap();
        microphone(&path)
    };
    let server = Server::start(&web, [("other.breg", common::model())]);
    let profile = tempfile::tempdir().unwrap();
    let play = |flags: &[String], act: &str| server.play(&chromium, profile.path(), flags, act);
    let enrol = |flags: &[String], name: &str| {
        let name: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
        play(flags, &format!("enrol={name}"))
    };
    let people = |names: &[(&str, u32)]| json!(names);

    let first = enrol(&hears(0, 0), ANA);
    assert_eq!((&first["before"], &first["people"]), (&people(&[]), &people(&[(ANA, 1)])), "{first}");
    let seconds = first["seconds"].as_f64().unwrap();
    assert!((2.5..=4.5).contains(&seconds), "the quiet second around the speech is left out: {first}");
    enrol(&hears(0, 1), ANA);
    let third = enrol(&hears(1, 0), "Ben");
    assert_eq!(
        (&third["before"], &third["people"]),
        (&people(&[(ANA, 2)]), &people(&[(ANA, 2), ("Ben", 1)])),
        "{third}"
    );
    assert_eq!(third["images"], 0, "a name is text: {third}");

    let found = play(&hears(0, 2), "identify");
    let score = |rank: usize| found["scores"][rank][1].as_f64().unwrap();
    assert_eq!((&found["scores"][0][0], &found["scores"][1][0]), (&ANA.into(), &"Ben".into()), "{found}");
    assert!(score(0) > score(1), "{found}");
    assert!(found["answer"].as_str().unwrap().contains(ANA), "{found}");
    assert_eq!(found["reloaded"], people(&[(ANA, 2), ("Ben", 1)]), "{found}");
    assert_eq!(found["with another model"], people(&[]), "{found}");
    assert!(found["note"].as_str().unwrap().contains("2 people are enrolled with another model"), "{found}");
    assert_eq!(found["without Ben"], people(&[(ANA, 2)]), "{found}");
    assert_eq!((&found["kept after all"], &found["forgotten"]), (&people(&[(ANA, 2)]), &people(&[])), "{found}");
    assert_eq!(found["forgotten for good"], people(&[]), "{found}");
}

#[test]
fn a_microphone_that_is_denied_or_silent_is_explained_in_a_sentence() {
    let Some(chromium) = bregman_skip::chromium_or_skip() else { return };
    let Some(web) = common::web() else { return };
    let folder = tempfile::tempdir().unwrap();
    let silence = folder.path().join("silence.wav");
    std::fs::write(&silence, wav_bytes(&Audio { samples: vec![0.0; 48_000], rate: 16_000 })).unwrap();
    let server = Server::start(&web, []);
    let denied = ["--use-fake-device-for-media-stream".to_owned(), "--deny-permission-prompts".to_owned()];
    for (flags, sentence) in [
        (denied.to_vec(), "The microphone is blocked for this page. Allow it in the site's settings"),
        (microphone(&silence), "Nothing was heard. Is the microphone muted, or is it the wrong one?"),
    ] {
        let profile = tempfile::tempdir().unwrap();
        let report = server.play(&chromium, profile.path(), &flags, "listen");
        assert!(report["problem"].as_str().unwrap().starts_with(sentence), "{report}");
        assert_eq!(report["enrollable"], false, "{report}");
    }
}
