//! What we export gives nearly our own embeddings in sherpa-onnx, where that is installed (`BREGMAN_PYTHON`, or
//! `python3`, with `sherpa_onnx`).

use std::path::Path;
use std::process::Command;

use bregman_runtime::{Model, ValueFormat, cosine};
use bregman_train::Deployable;
use bregman_train::config::FrontEndChoice::{ThreeDSpeaker, WeSpeaker};

/// Embeds a file of samples, and prints the embedding as JSON.
const SCRIPT: &str = "
import sys, json, numpy, sherpa_onnx
config = sherpa_onnx.SpeakerEmbeddingExtractorConfig(model=sys.argv[1], num_threads=1)
extractor = sherpa_onnx.SpeakerEmbeddingExtractor(config)
stream = extractor.create_stream()
stream.accept_waveform(16000, numpy.fromfile(sys.argv[2], numpy.float32))
stream.input_finished()
print(json.dumps(list(map(float, extractor.compute(stream)))))
";

/// Its filterbank ends at 7600 Hz, has Povey's window, and pads the ends of a recording. That much it moves an
/// embedding of the signal below: 0.016 at most. Samples in the wrong scale move it by 0.29 at least.
const ALIKE: f64 = 0.95;

/// Two seconds of a voice that swells and fades, so quiet that much of it is below the floor of the logarithm where
/// samples are in ±1: only there the scale of the samples does not cancel.
fn quiet_voice() -> Vec<f32> {
    let sample = |i: usize| {
        let t = std::f64::consts::TAU * i as f64 / 16_000.0;
        let swell = (0.5 + 0.5 * (3.0 * t).sin()).powi(6);
        let voice: f64 = (1..40).map(f64::from).map(|k| (130.0 * k * t + k).sin() / k).sum();
        (5e-4 * swell * voice) as f32
    };
    (0..32_000).map(sample).collect()
}

/// The graph with the other value of `normalize_samples`, which is a character in its properties.
fn in_the_other_scale(mut graph: Vec<u8>) -> Vec<u8> {
    let key = b"normalize_samples\x12\x01";
    let value = graph.windows(key.len()).position(|bytes| bytes == key).unwrap() + key.len();
    graph[value] ^= 1; // '0' and '1'
    graph
}

#[test]
fn sherpa_onnx_embeds_samples_as_we_do_with_an_exported_network() {
    let python = std::env::var("BREGMAN_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let installed = Command::new(&python).args(["-c", "import numpy, sherpa_onnx"]).output();
    if !installed.is_ok_and(|output| output.status.success()) {
        return bregman_skip::skip("sherpa-onnx", format!("{python} has no sherpa_onnx"));
    }
    let folder = tempfile::tempdir().unwrap();
    let [graph, sound] = ["model.onnx", "samples.f32"].map(|name| folder.path().join(name));
    let samples = quiet_voice();
    std::fs::write(&sound, samples.iter().flat_map(|sample| sample.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
    let embed = |bytes: &[u8]| -> Vec<f32> {
        std::fs::write(&graph, bytes).unwrap();
        let output = Command::new(&python).args([Path::new("-c"), Path::new(SCRIPT), &graph, &sound]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
    };
    for (name, front_end) in [
        ("campplus_g8_m8.safetensors", ThreeDSpeaker),
        ("campplus_g8_m8.safetensors", WeSpeaker),
        ("model.pt", WeSpeaker),
    ] {
        let network = Deployable::open_with(&bregman_golden::own(name), Some(front_end)).unwrap();
        let model = Model::from_bytes(&network.to_model().unwrap().to_bytes(ValueFormat::F32).unwrap()).unwrap();
        let (ours, onnx) = (model.embed(&samples).unwrap(), network.to_onnx().unwrap());
        let [right, wrong] = [onnx.clone(), in_the_other_scale(onnx)].map(|onnx| cosine(&ours, &embed(&onnx)));
        println!("{name} of {front_end}: cosine {right:.4}, in the other scale {wrong:.4}");
        assert!(right > ALIKE, "{name} of {front_end}: cosine {right}");
        assert!(wrong < ALIKE, "{name} of {front_end}: the scale does not show: cosine {wrong}");
    }
}
