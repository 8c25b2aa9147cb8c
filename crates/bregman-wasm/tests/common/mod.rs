//! The built module, a small WeSpeaker model from the golden files, and two recordings.

use std::path::{Path, PathBuf};
use std::process::Command;

use bregman_audio::Audio;
use bregman_train::Deployable;

/// The folder of the page with the module in it; a skip if the compiler lacks the target.
pub(crate) fn web() -> Option<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let libraries =
        Command::new(rustc).args(["--print", "target-libdir", "--target", "wasm32-unknown-unknown"]).output();
    let installed = |output: std::process::Output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir();
    if !libraries.is_ok_and(installed) {
        let why = "the compiler has no wasm32-unknown-unknown (rustup target add wasm32-unknown-unknown)";
        bregman_skip::skip("wasm32", why);
        return None;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(folder.join("build")).arg("--quiet").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(folder.join("web"))
}

/// A model file with a threshold of 0.25.
pub(crate) fn model() -> Vec<u8> {
    let network = Deployable::open(&bregman_golden::file("model.pt")).unwrap();
    let mut model = network.to_model().unwrap();
    model.threshold = Some(bregman_runtime::Threshold { cosine: 0.25, eer: Some(0.05), trials: None });
    model.to_bytes(bregman_runtime::ValueFormat::F32).unwrap()
}

/// WAV files of two recordings, and their score computed by the native runtime.
pub(crate) fn sounds(model: &[u8]) -> ([Vec<u8>; 2], f64) {
    let runtime = bregman_runtime::Model::from_bytes(model).unwrap();
    let sounds = [1.0, 1.3].map(|pitch| {
        let sample = |i: i32| 0.3 * (i as f32 * 0.02 * pitch).sin() + 0.1 * (i as f32 * 0.3 / pitch).cos();
        bregman_audio::wav_bytes(&Audio { samples: (0..24_000).map(sample).collect(), rate: 16_000 })
    });
    let embedding = |wav: &Vec<u8>| runtime.embed(&bregman_audio::decode_bytes(wav, "wav").unwrap().samples).unwrap();
    let score = bregman_runtime::cosine(&embedding(&sounds[0]), &embedding(&sounds[1]));
    (sounds, score)
}
