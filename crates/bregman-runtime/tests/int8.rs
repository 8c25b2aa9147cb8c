//! Layers in whole numbers of 8 bits: close to f32, the same with all instructions and numbers of threads, and stored.

mod common;

use bregman_runtime::{Error, Instructions, Model, ModelFile, Options, Runs, ValueFormat};
use common::{distance, ecapa, features, random, resnet};

/// A network calibrated on random utterances; its layers have enough non-zeros for whole numbers.
fn calibrated(sparsity: f32) -> ModelFile {
    let mut file = random(ecapa(64, 40, 24, true), sparsity, 11).file;
    file.calibrate_features(&(0..4).map(|seed| features(160, 40, seed)).collect::<Vec<_>>()).unwrap();
    file
}

fn open(file: &ModelFile, options: &Options) -> Model {
    Model::from_bytes_with(&file.to_bytes(ValueFormat::Int8).unwrap(), options).unwrap()
}

fn int8_layers(model: &Model) -> usize {
    model.layers().iter().filter(|layer| layer.runs == Runs::Int8).count()
}

#[test]
fn a_calibrated_model_computes_in_whole_numbers_and_stays_close_to_f32() {
    for sparsity in [0.0, 0.5] {
        let file = calibrated(sparsity);
        let exact = Model::from_bytes(&file.to_bytes(ValueFormat::F32).unwrap()).unwrap();
        let model = open(&file, &Options::default());
        assert!(int8_layers(&exact) == 0 && int8_layers(&model) >= 10, "{} layers", int8_layers(&model));
        for frames in [1, 17, 33, 65, 80, 81, 163] {
            let features = features(frames, 40, 100 + frames as u64);
            let distance =
                distance(&model.embed_features(&features).unwrap(), &exact.embed_features(&features).unwrap());
            assert!(distance < 0.02, "{frames} frames at {sparsity}: {distance:e}");
            assert!(distance > 0.0, "nothing was rounded");
        }
    }
}

#[test]
fn whole_numbers_are_the_same_with_all_instructions_and_threads() {
    let (file, features) = (calibrated(0.5), features(163, 40, 9));
    let reference = open(&file, &Options::default()).embed_features(&features).unwrap();
    for instructions in Instructions::available() {
        for threads in [1, 2, 3] {
            let embedding = open(&file, &Options { threads, instructions, ..Options::default() })
                .embed_features(&features)
                .unwrap();
            // between layers there are f32, whose last bit may decide between two codes
            let distance = distance(&embedding, &reference);
            assert!(distance < 1e-4, "{threads} threads with {instructions:?}: {distance:e}");
        }
    }
}

#[test]
fn ranges_are_stored_with_8_bit_weights_only_and_read_back() {
    let file = calibrated(0.5);
    let bytes = file.to_bytes(ValueFormat::Int8).unwrap();
    assert_eq!(bytes[8..12], 2u32.to_le_bytes());
    let read = ModelFile::from_bytes(&bytes).unwrap();
    let ranges = |file: &ModelFile| file.layers.iter().map(|layer| layer.input_range).collect::<Vec<_>>();
    assert_eq!(ranges(&read), ranges(&file));
    for format in [ValueFormat::F16, ValueFormat::F32] {
        let bytes = file.to_bytes(format).unwrap();
        assert_eq!(bytes[8..12], 1u32.to_le_bytes(), "earlier programs read it");
        assert!(ranges(&ModelFile::from_bytes(&bytes).unwrap()).iter().all(Option::is_none));
    }
}

#[test]
fn layers_with_few_weights_stay_in_f32() {
    let mut file = random(ecapa(64, 40, 24, true), 0.97, 11).file;
    file.calibrate_features(&[features(160, 40, 1)]).unwrap();
    let model = open(&file, &Options::default());
    let many = |layer: &&bregman_runtime::LayerInfo| layer.nonzero >= 16 * layer.shape[0];
    assert!(model.layers().iter().all(|layer| layer.runs != Runs::Int8 || many(&layer)));
    assert!(int8_layers(&model) < model.layers().len() / 2);
}

#[test]
fn a_calibration_that_cannot_work_says_why() {
    let mut file = random(ecapa(16, 24, 10, true), 0.5, 1).file;
    let refused = |result: Result<(), Error>| result.unwrap_err().to_string();
    assert!(refused(file.calibrate_features(&[] as &[Vec<f32>])).contains("no utterances"));
    assert!(refused(file.calibrate_features(&[vec![0.0; 25]])).contains("25 feature values"));
    assert!(refused(file.calibrate_features(&[vec![f32::NAN; 24]])).contains("not finite"));
    assert!(refused(file.calibrate(&[vec![0.5f32; 10]])).contains("are too few"));
    let mut other = random(resnet([1, 1, 1, 1], 4, 24, 20), 0.5, 1).file;
    assert!(refused(other.calibrate_features(&[features(20, 24, 1)])).contains("f32 only"));
    file.layers[0].input_range = Some(f32::NAN);
    assert!(refused(file.to_bytes(ValueFormat::Int8).map(drop)).contains("input range"));
}
