//! `bregman diarize` as a user calls it: RTTM, JSON, a picture, the error rate, and mistakes.

mod common;

use std::path::Path;

use bregman_audio::{Audio, RATE, pink_noise, wav_bytes};
use bregman_speaker::diarize::{Mixture, MixtureConfig, Rttm};
use bregman_speaker::open_corpus;
use common::{bregman, errors, json, mistake, success, text, tiny_run};

fn write_wav(path: &Path, samples: Vec<f32>) {
    std::fs::write(path, wav_bytes(&Audio { samples, rate: RATE })).unwrap();
}

#[test]
fn who_spoke_when_goes_to_rttm_json_and_a_picture_and_mistakes_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    let (voices, run, _) = tiny_run(dir.path());
    let file = |name: &str| text(&dir.path().join(name)).to_owned();
    let source = open_corpus(&voices.join("train.csv"), None).unwrap();
    let config = MixtureConfig { speakers: 2, turns: 6, pauses: [1.0, 1.5], ..MixtureConfig::default() };
    let mixture = Mixture::draw(&*source, &config, 1).unwrap();
    let [talk, truth, model] = [file("talk.wav"), file("truth.rttm"), text(&run).to_owned()];
    write_wav(Path::new(&talk), mixture.samples.clone());
    let reference = Rttm { recordings: vec![("talk".to_owned(), mixture.truth.clone())] };
    std::fs::write(&truth, reference.text()).unwrap();
    let diarize = |more: &[&str]| bregman(&[&["diarize", &talk, "--model", &model], more].concat());

    let printed = success(&diarize(&["--speakers", "2"]));
    let turns = Rttm::parse(&printed, Path::new("stdout")).unwrap();
    assert!(printed.starts_with("SPEAKER talk 1 "), "{printed}");

    let [out, picture] = [file("talk.rttm"), file("talk.svg")];
    let all = diarize(&["--speakers", "2", "-o", &out, "--plot", &picture, "--reference", &truth, "--collar", "0.25"]);
    assert!(success(&all).contains("turns in "), "{}", success(&all));
    assert!(errors(&all).contains("DER ") && errors(&all).contains("collar 0.25 s"), "{}", errors(&all));
    assert_eq!(Rttm::read(Path::new(&out)).unwrap(), turns);
    let drawn = std::fs::read_to_string(&picture).unwrap();
    assert!(drawn.contains("speaker1") && drawn.contains("seconds, reference"), "{drawn}");

    let answer = json(&diarize(&["--threshold", "-1", "--reference", &truth, "--json"]));
    assert_eq!(answer["speakers"].as_array().unwrap().len(), 1, "every voice is above −1");
    assert_eq!(answer["threshold"], -1.0);
    let [der, confusion, speech] =
        [&answer["errors"]["der"], &answer["errors"]["confusion"], &answer["errors"]["speech"]]
            .map(|number| number.as_f64().unwrap());
    assert!(confusion > 0.1 * speech && der >= confusion / speech, "{answer}");
    assert!(json(&diarize(&["--json"]))["threshold"].as_f64().unwrap() < 1.0);

    // itself as the reference
    let itself = json(&diarize(&["--speakers", "2", "--reference", &out, "--json"]));
    assert!(itself["errors"]["der"].as_f64().unwrap() < 1e-3, "{itself}");

    assert!(mistake(&diarize(&["-o", &out])).contains("already exists"));
    assert!(mistake(&diarize(&["--speakers", "0"])).contains("speakers = 0: expected 1 or more"));
    assert!(mistake(&diarize(&["--hop", "9"])).contains("hop = 9"));
    assert!(mistake(&diarize(&["--plot", &file("a.gif")])).contains("unknown figure format"));
    assert!(mistake(&diarize(&["--reference", &file("none.rttm")])).contains("none.rttm"));
    assert!(mistake(&diarize(&["--reference", &truth, "--collar", "99"])).contains("--collar 99"));
    let wrong = file("wrong.rttm");
    std::fs::write(&wrong, "SPEAKER talk 1 0.0 1.0 <NA> <NA> a\nSPEAKER talk 1 soon 1.0 <NA> <NA> a\n").unwrap();
    assert!(mistake(&diarize(&["--reference", &wrong])).contains("wrong.rttm, line 2: start 'soon'"));
    let others = "SPEAKER a 1 0.0 1.0 <NA> <NA> x\nSPEAKER b 1 0.0 1.0 <NA> <NA> x\n";
    std::fs::write(&wrong, others).unwrap();
    assert!(mistake(&diarize(&["--reference", &wrong])).contains("no turns of 'talk' in it, but of a, b"));

    let short = file("short.wav");
    for (samples, found) in [
        (vec![0.1; 160], "160 samples"),
        (vec![0.0; 48_000], "its 3.0 s are silent"),
        (pink_noise(64_000, 1).iter().map(|x| 0.01 * x).collect(), "steady noise"),
    ] {
        write_wav(Path::new(&short), samples);
        let message = mistake(&bregman(&["diarize", &short, "--model", &model]));
        assert!(message.contains("short.wav") && message.contains(found), "{message}");
    }
    let missing = mistake(&bregman(&["diarize", &file("missing.wav"), "--model", &model]));
    assert!(missing.contains("missing.wav"), "{missing}");
}
