//! The published CAM++ of 3D-Speaker, where it is on this machine: its embeddings are those of 3D-Speaker's own code.

use std::path::{Path, PathBuf};

use bregman_audio::load_16k;
use bregman_golden::Tensors;
use bregman_runtime::{Model, ValueFormat};
use bregman_train::Deployable;
use serde_json::Value;

/// The folder of the network, with what it must compute; none, and a recorded skip, where it is not.
fn published() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/models/campplus");
    if folder.is_dir() {
        return Some(folder);
    }
    bregman_skip::skip("corpora", "models/campplus is not in ../shared");
    None
}

fn imported(folder: &Path) -> Model {
    let network = Deployable::open(&folder.join("campplus_cn_en_common.pt")).unwrap();
    Model::from_bytes(&network.to_model().unwrap().to_bytes(ValueFormat::F32).unwrap()).unwrap()
}

fn furthest(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).fold(0.0, |furthest, (a, b)| furthest.max((a - b).abs()))
}

/// 1 − cosine, of which f32 holds seven digits.
fn distance(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    1.0 - dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[test]
fn the_published_network_computes_its_embeddings_from_features() {
    let Some(folder) = published() else { return };
    let (model, expected) = (imported(&folder), Tensors::open(&folder.join("expected.safetensors")));
    let embeddings = expected.f32("embeddings_from_stored_features");
    let largest = embeddings.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    for (i, embedding) in embeddings.chunks_exact(model.embedding_size()).enumerate() {
        let ours = model.embed_features(&expected.f32(&format!("features.{i}"))).unwrap();
        let error = furthest(&ours, embedding) / largest;
        assert!(error <= 2e-5, "utterance {i}: {error:e} of the largest value");
    }
}

#[test]
fn the_published_network_computes_its_embeddings_from_audio() {
    let Some(folder) = published() else { return };
    let (model, expected) = (imported(&folder), Tensors::open(&folder.join("expected.safetensors")));
    let listed = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let embeddings = expected.f32("embeddings");
    let utterances = listed["utterances"].as_array().unwrap();
    assert_eq!(embeddings.len(), utterances.len() * model.embedding_size());
    for (utterance, embedding) in utterances.iter().zip(embeddings.chunks_exact(model.embedding_size())) {
        let text = |key: &str| utterance[key].as_str().unwrap();
        let path = folder.join("../../data").join(text("set")).join(text("path"));
        let ours = model.embed(&load_16k(&path).unwrap()).unwrap();
        let (apart, turned) = (furthest(&ours, embedding), distance(&ours, embedding));
        assert!(apart <= 1e-4 && turned <= 1e-8, "{}: {apart:e} apart, 1 - cosine {turned:e}", path.display());
    }
}
