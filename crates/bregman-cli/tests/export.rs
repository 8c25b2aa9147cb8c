//! `bregman export` as a user runs it, on a WeSpeaker checkpoint, which works without training anything.

mod common;

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Output;

use common::{bregman, command, errors, json, mistake, success, text};

fn export(source: &Path, more: &[&str]) -> Output {
    bregman(&[&["export", text(source)], more].concat())
}

#[test]
fn a_wespeaker_checkpoint_becomes_onnx_and_plain_weights() {
    let folder = tempfile::tempdir().unwrap();
    let (onnx, weights) = (folder.path().join("model.onnx"), folder.path().join("model.safetensors"));
    let (onnx, weights) = (onnx.to_str().unwrap(), weights.to_str().unwrap());
    let source = bregman_golden::file("model.pt");
    let output = export(&source, &["--onnx", onnx, "--safetensors", weights, "--json"]);
    success(&output);
    let written: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for (format, file) in [("onnx", onnx), ("safetensors", weights)] {
        assert_eq!(written[format]["file"].as_str(), Some(file));
        assert_eq!(written[format]["bytes"].as_u64(), Some(std::fs::metadata(file).unwrap().len()));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else was left behind");

    // the plain weights are a checkpoint again, and give the same graph
    let again = folder.path().join("again.onnx");
    let pt = folder.path().join("avg_model.pt");
    success(&export(Path::new(weights), &["--pt", pt.to_str().unwrap()]));
    let table = export(&pt, &["--onnx", again.to_str().unwrap()]);
    assert!(table.status.success() && String::from_utf8_lossy(&table.stdout).contains("again.onnx"));
    assert!(std::fs::read(again).unwrap() == std::fs::read(onnx).unwrap());

    assert!(mistake(&export(&source, &["--onnx", onnx])).contains("--force"));
    assert!(export(&source, &["--onnx", onnx, "--force"]).status.success());
}

#[test]
fn a_wespeaker_checkpoint_becomes_a_model_file_with_its_front_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.breg");
    let output = export(&bregman_golden::file("model.pt"), &["-o", path.to_str().unwrap(), "--json"]);
    success(&output);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["bytes"].as_u64(), Some(std::fs::metadata(&path).unwrap().len()));
    let count = |key: &str| report[key].as_f64().unwrap();
    assert!(
        report["threshold"].is_null() && count("nonzero") > 0.99 * count("weights"),
        "dense, and nothing to calibrate on: {report}"
    );
    let model = bregman_runtime::Model::open(&path).unwrap();
    let front_end = &model.front_end().settings()["front_end"];
    assert_eq!((front_end["kind"].as_str(), front_end["window"].as_str()), (Some("kaldi"), Some("hamming")));
    let sounds = ["first.wav", "second.wav"].map(|name| {
        let samples = (0..16_000).map(|i| 0.5 * (i as f32 * 0.003 * name.len() as f32).sin()).collect();
        let file = folder.path().join(name);
        bregman_audio::write_wav(&file, &bregman_audio::Audio { samples, rate: 16_000 }).unwrap();
        file
    });
    let embed = |file: &Path| model.embed(&bregman_audio::load_16k(file).unwrap()).unwrap();
    let score = bregman_runtime::cosine(&embed(&sounds[0]), &embed(&sounds[1]));
    let mut verify = command(&["verify"]);
    verify.args(&sounds).arg("--model").arg(&path).args(["--threshold", "0.5", "--json"]);
    let verdict: serde_json::Value = serde_json::from_slice(&verify.output().unwrap().stdout).unwrap();
    assert!(
        (verdict["score"].as_f64().unwrap() - score).abs() <= 1e-6 && verdict["same"] == (score > 0.5),
        "{verdict} against {score}"
    );
}

/// By way of a sound file of 16 bits, as users have them.
#[test]
fn a_speechbrain_checkpoint_becomes_a_model_file_that_embeds_as_it_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.breg");
    success(&export(&bregman_golden::file("embedding_model.ckpt"), &["-o", text(&path), "--values", "f32"]));
    let model = bregman_runtime::Model::open(&path).unwrap();
    let settings = model.front_end().settings();
    assert_eq!((&settings["front_end"]["n_fft"], &settings["waveform"]), (&400.into(), &"decoded".into()));
    let golden = bregman_golden::Tensors::load("embedding_model_expected");
    let (sound, samples) = (folder.path().join("a.wav"), golden.f32("samples"));
    bregman_audio::write_wav(&sound, &bregman_audio::Audio { samples, rate: 16_000 }).unwrap();
    let embedding = model.embed(&bregman_audio::load_16k(&sound).unwrap()).unwrap();
    let distance = 1.0 - bregman_runtime::cosine(&embedding, &golden.f32("embedding"));
    assert!(distance < 1e-4, "{distance:e}");
}

#[test]
fn the_front_end_of_a_checkpoint_is_said_or_named_and_stays_in_the_model_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.breg");
    let out = ["-o", text(&path), "--force"];
    let front_end = || json(&bregman(&["inspect", text(&path), "--json"]))["front_end"].clone();
    let written = |source: &Path, more: &[&str]| {
        let output = export(source, &[&out[..], more].concat());
        success(&output);
        (errors(&output), front_end())
    };
    let (said, found) = written(&bregman_golden::file("model.pt"), &[]);
    assert!(said.starts_with("note: front end: wespeaker: ") && said.lines().count() == 1, "{said}");
    assert_eq!((&found["front_end"]["window"], &found["waveform"]), (&"hamming".into(), &"sixteen".into()));
    let (said, found) = written(&bregman_golden::file("pyannote.bin"), &[]);
    assert!(said.contains("wespeaker: pyannote keeps it"), "{said}");
    assert_eq!(found["waveform"], "sixteen");

    let campplus = bregman_golden::own("campplus_g8_m8.safetensors");
    let message = mistake(&export(&campplus, &out));
    assert!(message.contains("campplus_g8_m8") && message.contains("--front-end 3d-speaker or wespeaker"), "{message}");
    let (said, found) = written(&campplus, &["--front-end", "3d-speaker", "--threshold", "0.31"]);
    assert_eq!((said.as_str(), &found["front_end"]["window"]), ("", &"povey".into()));
    assert_eq!(bregman_runtime::Model::open(&path).unwrap().threshold(), Some(0.31));
    assert!(success(&bregman(&["inspect", text(&path)])).contains("threshold   0.3100\n"));
    let (_, found) = written(&campplus, &["--front-end", r#"{"window": "povey"}"#]);
    assert_eq!(found.get("waveform"), None, "levelled, as our recipes do");

    assert!(mistake(&export(&campplus, &[&out[..], &["--threshold", "1.5"]].concat())).contains("--threshold 1.5"));
    let again = [&out[..], &["--front-end", "wespeaker"]].concat();
    assert!(mistake(&export(&path, &again)).contains("has its own"));
    let other = export(&campplus, &[&out[..], &["--front-end", "kaldi"]].concat());
    assert!(errors(&other).contains("expected wespeaker, 3d-speaker") && other.status.code() == Some(2));
}

#[test]
fn a_model_file_is_calibrated_and_then_computes_in_8_bits() {
    let folder = tempfile::tempdir().unwrap();
    let [model, fast, sound, list] = ["model.breg", "fast.breg", "a.wav", "list.csv"].map(|it| folder.path().join(it));
    success(&export(&bregman_golden::file("model.pt"), &["-o", text(&model), "--values", "f32"]));
    let samples = (0..32_000).map(|i| 0.5 * (i as f32 * 0.02).sin() * (i as f32 * 0.0007).sin()).collect();
    bregman_audio::write_wav(&sound, &bregman_audio::Audio { samples, rate: 16_000 }).unwrap();
    std::fs::write(&list, "utterance,speaker,path,seconds\na,s,a.wav,2\nb,s,a.wav,2\n").unwrap();
    let to_int8 = ["-o", text(&fast), "--values", "int8", "--calibrate"];
    success(&export(&model, &[&to_int8[..], &[text(&sound), "--calibrate", text(&list)]].concat()));
    let [exact, rounded] = [&model, &fast].map(|path| bregman_runtime::Model::open(path).unwrap());
    assert!(rounded.layers().iter().any(|layer| layer.runs == bregman_runtime::Runs::Int8));
    let embed = |model: &bregman_runtime::Model| model.embed(&bregman_audio::load_16k(&sound).unwrap()).unwrap();
    let cosine = bregman_runtime::cosine(&embed(&exact), &embed(&rounded));
    assert!(cosine > 0.98, "{cosine}");
    success(&bregman(&["inspect", text(&fast)]));

    // of a recording too long to be held only the middle is read
    let (long, at) = (folder.path().join("long.wav"), 2 * 16_000 * 9000_u32);
    let mut bytes = std::fs::read(&sound).unwrap();
    bytes[4..8].copy_from_slice(&(2 * at + 36).to_le_bytes());
    bytes[40..44].copy_from_slice(&(2 * at).to_le_bytes());
    let mut file = std::fs::File::create(&long).unwrap();
    file.write_all(&bytes[..44]).unwrap();
    file.seek(SeekFrom::Start(44 + u64::from(at) - 32_000)).unwrap();
    file.write_all(&bytes[44..]).unwrap();
    file.set_len(44 + 2 * u64::from(at)).unwrap();
    let middle = [&to_int8[..], &[text(&long), "--max-seconds", "2", "--force"]].concat();
    let direct = std::fs::read(&fast).unwrap();
    success(&export(&model, &middle));
    assert!(std::fs::read(&fast).unwrap() == direct, "its middle is the sound of the others");

    let again = |more: &[&str]| mistake(&export(&model, &[&["--force"], more].concat()));
    assert!(again(&["-o", text(&fast), "--calibrate", text(&sound)]).contains("--values int8"));
    assert!(again(&["--onnx", text(&fast)]).contains("ONNX"));
    let nothing = folder.path().join("absent.wav");
    assert!(again(&[&to_int8[..], &[text(&nothing)]].concat()).contains("absent.wav"));
}

#[test]
fn invalid_exports_are_one_line_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let target = path("model.onnx");
    let target = ["--onnx", target.to_str().unwrap()];
    assert!(mistake(&export(&path("absent"), &target)).contains("does not exist"));
    std::fs::write(path("notes.pt"), "not a checkpoint").unwrap();
    assert!(mistake(&export(&path("notes.pt"), &target)).contains("notes.pt"));
    assert!(mistake(&export(folder.path(), &target)).contains("neither a run nor a checkpoint"));
    let nowhere = path("absent/model.onnx");
    let unwritable = export(&bregman_golden::file("model.pt"), &["--onnx", nowhere.to_str().unwrap()]);
    assert!(mistake(&unwritable).contains("absent"));
    assert!(!path("model.onnx").exists());
}
