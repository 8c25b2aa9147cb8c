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

/// A sound with pauses, of nobody.
fn speech_like(seconds: usize) -> Vec<f32> {
    let sample = |i: usize| {
        let t = i as f32 / 16_000.0;
        let syllable = if t % 0.5 < 0.35 { 0.3 } else { 0.1 };
        syllable * (2_000.0 * t % std::f32::consts::TAU + (9.0 * t).sin()).sin()
    };
    (0..16_000 * seconds).map(sample).collect()
}

fn wav(samples: &[f32]) -> Vec<u8> {
    wav_bytes(&Audio { samples: samples.to_vec(), rate: 16_000 })
}

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
    let refusals = [
        "model.breg: this browser cannot decode it as audio.",
        "sound.breg: not a usable model file: it does not begin as one (bregman export RUN -o model.breg makes one).",
        "Model: voices.breg, 366 kB, embeddings of 128 values", // still
        "",
    ];
    assert_eq!(report["refusals"], json!(refusals), "{report}");
    let number = |key: &str| report[key].as_str().unwrap().parse::<f64>().unwrap();
    assert!((number("score") - score).abs() <= 1e-4, "{report} against {score}");
    assert_eq!(
        (number("threshold"), report["decision"].as_str().unwrap()),
        (0.25, if score > 0.25 { "same" } else { "another" })
    );
    assert!(number("time") > 0.0 && report["text"].as_str().unwrap().contains("real time"), "{report}");
}

#[test]
fn a_long_recording_has_the_mean_embedding_of_its_pieces() {
    let Some(chromium) = bregman_skip::chromium_or_skip() else { return };
    let Some(web) = common::web() else { return };
    let model = common::model();
    let runtime = bregman_runtime::Model::from_bytes(&model).unwrap();
    let (long, short) = (wav(&speech_like(72)), wav(&speech_like(3)));
    let embedding = |samples: &[f32]| runtime.embed(samples).unwrap();
    let samples = |wav: &[u8]| bregman_audio::decode_bytes(wav, "wav").unwrap().samples;
    let mut mean = vec![0.0; runtime.embedding_size()];
    let long_samples = samples(&long);
    for piece in long_samples.chunks(long_samples.len() / 3) {
        let piece = embedding(piece);
        let length = piece.iter().map(|value| value * value).sum::<f32>().sqrt();
        mean.iter_mut().zip(&piece).for_each(|(sum, value)| *sum += value / length / 3.0);
    }
    let score = bregman_runtime::cosine(&mean, &embedding(&samples(&short)));
    let server = Server::start(&web, [("model.breg", model), ("first.wav", long), ("second.wav", short)]);
    let report = server.play(&chromium, tempfile::tempdir().unwrap().path(), &[], "files");
    let found = report["score"].as_str().unwrap().parse::<f64>().unwrap();
    assert!((found - score).abs() <= 1e-4, "{report} against {score}");
}

#[test]
fn the_page_answers_while_a_long_file_is_embedded() {
    let Some(chromium) = bregman_skip::chromium_or_skip() else { return };
    let Some(web) = common::web() else { return };
    let ([first, second], _) = common::sounds(&common::model());
    let long = wav(&speech_like(20 * 60));
    let server = Server::start(&web, [("long.wav", long), ("first.wav", first), ("second.wav", second)]);
    let report = server.play(&chromium, tempfile::tempdir().unwrap().path(), &[], "long");
    assert!(report["stuck"].as_f64().unwrap() < 0.5, "the page's own thread embeds: {report}");
    assert_eq!(report["decided meanwhile"], true, "{report}");
    let shares: Vec<f64> = serde_json::from_value(report["shares"].clone()).unwrap();
    assert!(shares.len() >= 5 && shares[..shares.len() - 1].is_sorted(), "progress is shown: {report}");
    assert_eq!(report["notes"][0], "20 min 0 s from long.wav", "{report}");
    assert!(report["notes"][1].as_str().unwrap().contains("from first.wav"), "the last file chosen counts: {report}");
    assert_eq!(report["unfinished"], 0, "{report}");
}

#[test]
fn a_page_that_cannot_start_says_why_at_its_top() {
    let Some(chromium) = bregman_skip::chromium_or_skip() else { return };
    let Some(web) = common::web() else { return };
    for (name, content, sentence) in [
        ("worker.js", "this is no script", "This page cannot start: the network's program is not running"),
        ("bregman.wasm", "no module", "This page cannot start: WebAssembly"),
        ("voices.breg", "no model", "voices.breg: not a usable model file"),
    ] {
        let server = Server::start(&web, [(name, content.into())]);
        let report = server.play(&chromium, tempfile::tempdir().unwrap().path(), &[], "fail");
        assert!(report["problem"].as_str().unwrap().starts_with(sentence), "{report}");
    }
}

#[test]
fn a_network_that_stops_while_it_embeds_is_explained() {
    let Some(chromium) = bregman_skip::chromium_or_skip() else { return };
    let Some(web) = common::web() else { return };
    let ([first, _], _) = common::sounds(&common::model());
    let script = std::fs::read_to_string(web.join("bregman.js")).unwrap();
    let start = "  embed(samples) {\n";
    assert!(script.contains(start));
    let stops = script.replace(start, &format!("{start}throw new WebAssembly.RuntimeError(\"unreachable\");"));
    let server = Server::start(&web, [("bregman.js", stops.into()), ("first.wav", first)]);
    let report = server.play(&chromium, tempfile::tempdir().unwrap().path(), &[], "stops");
    let sentence = report["problem"].as_str().unwrap();
    assert!(sentence.contains("unreachable") && sentence.contains("reload this page"), "{report}");
}

#[test]
fn the_thread_of_the_network_can_send_nothing_elsewhere() {
    let Some(chromium) = bregman_skip::chromium_or_skip() else { return };
    let Some(web) = common::web() else { return };
    // the same server under another name
    let worker = r#"
        onmessage = async ({ data: { number } }) => {
            const elsewhere = new URL("/elsewhere", import.meta.url);
            elsewhere.hostname = "localhost";
            const error = await fetch(elsewhere, { mode: "no-cors" }).then(() => "sent", () => "refused");
            postMessage({ number, error });
        };"#;
    let server = Server::start(&web, [("worker.js", worker.into())]);
    let report = server.play(&chromium, tempfile::tempdir().unwrap().path(), &[], "fail");
    assert_eq!(report["problem"], "This page cannot start: refused.", "{report}");
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
    assert_eq!(third["focus"], json!(["Record", "Record"]), "the keyboard goes on from there: {third}");

    let found = play(&hears(0, 2), "identify");
    let score = |rank: usize| found["scores"][rank][1].as_f64().unwrap();
    assert_eq!((&found["scores"][0][0], &found["scores"][1][0]), (&ANA.into(), &"Ben".into()), "{found}");
    assert!(score(0) > score(1), "{found}");
    assert!(found["answer"].as_str().unwrap().contains(ANA), "{found}");
    assert_eq!(found["reloaded"], people(&[(ANA, 2), ("Ben", 1)]), "{found}");
    assert_eq!(found["with another model"], people(&[]), "{found}");
    assert!(found["note"].as_str().unwrap().contains("2 people are enrolled with another model"), "{found}");
    assert_eq!(found["without Ben"], people(&[(ANA, 2)]), "{found}");
    assert_eq!(found["focus"], "Enrolled", "{found}");
    assert_eq!((&found["kept after all"], &found["forgotten"]), (&people(&[(ANA, 2)]), &people(&[])), "{found}");
    assert_eq!(found["forgotten for good"], people(&[]), "{found}");
}

#[test]
fn the_microphone_works_at_the_address_that_the_server_of_python_prints() {
    let Some(chromium) = bregman_skip::chromium_or_skip() else { return };
    let Some(web) = common::web() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("speech.wav");
    std::fs::write(&path, wav(&speech_like(4))).unwrap();
    let mut server = Server::start(&web, []);
    server.address = server.address.replace("127.0.0.1", "0.0.0.0");
    let report = server.play(&chromium, &folder.path().join("profile"), &microphone(&path), "listen");
    assert_eq!((&report["problem"], &report["enrollable"]), (&json!(""), &json!(true)), "{report}");
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
