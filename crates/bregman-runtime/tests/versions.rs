//! Files of every version that was ever written open, and give the embeddings they gave then.
//!
//! The files in `tests/data` were written by the program of their version and never change: `NAME.breg` and, in
//! `NAME.json`, the embedding of [`features`].

use std::path::{Path, PathBuf};

use bregman_runtime::{Error, Model, ModelFile, Runs};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// 40 frames that look like mean-subtracted filterbanks.
fn features(bins: usize) -> Vec<f32> {
    (0..40 * bins).map(|i| ((i * 7919) % 201) as f32 / 50.0 - 2.0).collect()
}

#[test]
fn a_file_of_version_1_opens_and_embeds_as_it_did() {
    assert_eq!(opens_and_embeds_as_it_did("version1-resnet-int8", 1, 1e-5).threshold(), Some(0.25));
}

/// Layers in whole numbers: a sum in another order may change a code.
#[test]
fn a_file_of_version_2_opens_and_embeds_as_it_did() {
    let model = opens_and_embeds_as_it_did("version2-ecapa-int8", 2, 5e-3);
    assert!(model.layers().iter().any(|layer| layer.runs == Runs::Int8));
}

fn opens_and_embeds_as_it_did(name: &str, version: u32, tolerance: f32) -> Model {
    let bytes = std::fs::read(data(&format!("{name}.breg"))).unwrap();
    assert_eq!(bytes[8..12], version.to_le_bytes());
    let model = Model::from_bytes(&bytes).unwrap();
    let expected = std::fs::read_to_string(data(&format!("{name}.json"))).unwrap();
    let expected: Vec<f32> = serde_json::from_str(&expected).unwrap();
    let got = model.embed_features(&features(model.architecture().features)).unwrap();
    let largest = expected.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(&expected) {
        assert!((got - expected).abs() <= tolerance * largest, "{got}, was {expected}");
    }
    assert_eq!(ModelFile::from_bytes(&bytes).unwrap().layers.len(), model.layers().len());
    model
}

#[test]
fn a_file_of_an_unknown_version_names_both_versions_and_what_to_do() {
    let mut bytes = std::fs::read(data("version1-resnet-int8.breg")).unwrap();
    for version in [0, 3, u32::MAX] {
        bytes[8..12].copy_from_slice(&u32::to_le_bytes(version));
        let error = Model::from_bytes(&bytes).map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::Version { found, newest: 2 } if found == version));
        let message = error.to_string();
        assert!(message.contains(&format!("version {version}")) && message.contains("up to 2"), "{message}");
        assert!(message.contains("update bregman") && message.contains("export"), "{message}");
    }
}
