//! What we export runs in sherpa-onnx, where that is installed (`BREGMAN_PYTHON`, or `python3`, with `sherpa_onnx`).

use std::process::Command;

use bregman_train::Deployable;

/// Loads a network and embeds two seconds of noise; prints the number of values, and whether all are finite.
const SCRIPT: &str = "
import sys, numpy, sherpa_onnx
config = sherpa_onnx.SpeakerEmbeddingExtractorConfig(model=sys.argv[1], num_threads=1)
extractor = sherpa_onnx.SpeakerEmbeddingExtractor(config)
stream = extractor.create_stream()
noise = 0.1 * numpy.random.default_rng(1).standard_normal(32000)
stream.accept_waveform(16000, noise.astype(numpy.float32))
stream.input_finished()
embedding = numpy.array(extractor.compute(stream))
print(len(embedding), numpy.isfinite(embedding).all() and embedding.std() > 0)
";

#[test]
fn sherpa_onnx_embeds_with_an_exported_network() {
    let python = std::env::var("BREGMAN_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let installed = Command::new(&python).args(["-c", "import numpy, sherpa_onnx"]).output();
    if !installed.is_ok_and(|output| output.status.success()) {
        return bregman_skip::skip("sherpa-onnx", format!("{python} has no sherpa_onnx"));
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, values) in [("campplus_g8_m8.safetensors", 32), ("model.pt", 16)] {
        let network = Deployable::open(&bregman_golden::own(name)).unwrap();
        assert_eq!(network.model().outputs(), values, "{name}");
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, network.to_onnx().unwrap()).unwrap();
        let output = Command::new(&python).args(["-c", SCRIPT]).arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said.trim(), format!("{values} True"), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
