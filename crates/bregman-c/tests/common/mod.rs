//! A small WeSpeaker model and two recordings, from the golden files.

use bregman_train::Deployable;

/// The bytes of a model file with a threshold.
pub(crate) fn model() -> Vec<u8> {
    let network = Deployable::open(&bregman_golden::file("model.pt")).unwrap();
    let mut model = network.to_model().unwrap();
    model.threshold = Some(bregman_runtime::Threshold { cosine: 0.25, eer: Some(0.05), trials: None });
    model.to_bytes(bregman_runtime::ValueFormat::F32).unwrap()
}
