//! Networks of others embed samples as their toolkits do: from the features on which they were trained.

use std::path::Path;

use bregman_golden::Tensors;
use bregman_nn::{Architecture, SpeechBrainEcapaConfig, TrainableModel};
use bregman_nn::{Array, CampPlusConfig, Checkpoint, EcapaConfig, NetworkConfig, ResNetConfig, Values};
use bregman_runtime::{Model, ValueFormat, cosine};
use bregman_tensor::Cpu;
use bregman_train::config::FrontEndChoice::{self, SpeechBrain, ThreeDSpeaker, WeSpeaker};
use bregman_train::{Deployable, Error};

const BINS: usize = 80;

fn ecapa() -> NetworkConfig {
    EcapaConfig { channels: 8, embedding: 12, global_context: false }.into()
}

fn resnet() -> NetworkConfig {
    ResNetConfig { blocks: [1; 4], channels: 2, embedding: 9 }.into()
}

fn campplus() -> NetworkConfig {
    CampPlusConfig { head: 2, channels: 4, growth: 2, bottleneck: 2, embedding: 6 }.into()
}

fn speechbrain() -> NetworkConfig {
    SpeechBrainEcapaConfig { channels: 8, pooled: 16, embedding: 5, global_context: true }.into()
}

/// A network with random weights, with a classifier or without.
fn state(network: NetworkConfig, classes: Option<usize>) -> Checkpoint {
    let architecture = Architecture::new(BINS, network);
    TrainableModel::new(Cpu::new(), &architecture, classes, 7).unwrap().state().unwrap()
}

/// One whose norms have counted `batches`, and the first norm of each dense layer `first`.
fn counted(network: NetworkConfig, first: Values, batches: Values) -> Checkpoint {
    let mut state = state(network, None);
    for (name, array) in &mut state.tensors {
        if name.ends_with("num_batches_tracked") {
            let values = if name.contains("nonlinear1") { &first } else { &batches };
            *array = Array { shape: Vec::new(), values: values.clone() };
        }
    }
    state
}

/// Kaldi's filterbank of samples × 32768, and of samples in ±1, where the floor of the logarithm is higher.
fn kaldi(golden: &Tensors, utterance: &str, window: &str) -> [Vec<f32>; 2] {
    let scaled = golden.f32(&format!("{utterance}.knf_{window}"));
    let shift = 2.0 * 32768f32.ln();
    let decoded = scaled.iter().map(|log| (log - shift).max(f32::EPSILON.ln())).collect();
    [scaled, decoded].map(without_mean)
}

fn without_mean(mut features: Vec<f32>) -> Vec<f32> {
    let frames = features.len() / BINS;
    for bin in 0..BINS {
        let mean = (0..frames).map(|frame| features[frame * BINS + bin]).sum::<f32>() / frames as f32;
        (0..frames).for_each(|frame| features[frame * BINS + bin] -= mean);
    }
    features
}

fn written(folder: &Path, state: &Checkpoint) -> std::path::PathBuf {
    let path = folder.join("network.safetensors");
    state.write(&path).unwrap();
    path
}

fn runtime(network: &Deployable) -> Model {
    Model::from_bytes(&network.to_model().unwrap().to_bytes(ValueFormat::F32).unwrap()).unwrap()
}

#[test]
fn samples_are_embedded_from_the_features_of_the_toolkit() {
    let folder = tempfile::tempdir().unwrap();
    let golden = Tensors::load("features");
    let names = golden.names();
    let utterances: Vec<&str> = names.iter().filter_map(|name| name.strip_suffix(".waveform_i16")).collect();
    assert!(!utterances.is_empty(), "no waveforms among the golden numbers");
    let (wespeaker, three_d_speaker) = (("hamming", 0), ("povey", 1));
    let twice = counted(campplus(), Values::I64(vec![86]), Values::I64(vec![43]));
    for (what, state, asked, (window, scale)) in [
        ("WeSpeaker's ECAPA", state(ecapa(), Some(3)), None, wespeaker),
        ("WeSpeaker's ResNet", state(resnet(), None), None, wespeaker),
        ("WeSpeaker's CAM++", state(campplus(), Some(3)), None, wespeaker),
        ("WeSpeaker's CAM++ without classifier", state(campplus(), None), Some(WeSpeaker), wespeaker),
        ("3D-Speaker's CAM++", twice, None, three_d_speaker),
        ("3D-Speaker's CAM++, fine-tuned", state(campplus(), None), Some(ThreeDSpeaker), three_d_speaker),
        ("3D-Speaker's ECAPA", state(speechbrain(), None), Some(ThreeDSpeaker), three_d_speaker),
    ] {
        let network = Deployable::open_with(&written(folder.path(), &state), asked).unwrap();
        assert_eq!(network.front_end_found().is_none(), asked.is_some(), "{what}");
        let model = runtime(&network);
        for utterance in &utterances {
            let samples = golden.f32(&format!("{utterance}.waveform_i16"));
            let samples: Vec<f32> = samples.iter().map(|sample| sample / 32768.0).collect();
            let apart = |(window, scale): (&str, usize)| {
                let expected = model.embed_features(&kaldi(&golden, utterance, window)[scale]).unwrap();
                1.0 - cosine(&model.embed(&samples).unwrap(), &expected)
            };
            let (right, wrong) = (apart((window, scale)), apart((window, 1 - scale)));
            println!("{what}, {utterance}: 1 - cosine {right:e}; in the other scale {wrong:e}");
            assert!(right <= 1e-6, "{what}, {utterance}: 1 - cosine {right:e}");
        }
    }
}

#[test]
fn what_a_file_does_not_tell_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let open = |state: &Checkpoint| Deployable::open(&written(folder.path(), state));
    let same = Values::I64(vec![43]);
    for silent in [state(campplus(), None), counted(campplus(), same.clone(), same)] {
        let error = open(&silent).map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::FrontEndUnknown(_)) && error.is_user_mistake(), "{error}");
        assert!(error.to_string().contains("network.safetensors"), "{error}");
        assert!(error.hint().unwrap().contains("--front-end 3d-speaker or wespeaker"));
    }
    let assumed = open(&state(speechbrain(), None)).unwrap();
    assert_eq!(*assumed.features(), SpeechBrain.fbank(BINS).unwrap());
    assert!(assumed.front_end_found().unwrap().starts_with("speechbrain: assumed"));
    let mine: FrontEndChoice = r#"{"window": "povey"}"#.parse().unwrap();
    let asked = Deployable::open_with(&written(folder.path(), &state(ecapa(), Some(3))), Some(mine)).unwrap();
    assert_eq!((asked.features(), asked.front_end_found()), (&mine.fbank(BINS).unwrap(), None), "a user knows better");
}

/// WeSpeaker's `avg_model.pt`, the mean of several checkpoints, has counters in floating point.
#[test]
fn an_average_of_checkpoints_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let average = counted(resnet(), Values::F32(vec![4.5]), Values::F32(vec![4.5]));
    let network = Deployable::open(&written(folder.path(), &average)).unwrap();
    let counters = network.model().state().unwrap().tensors.into_iter().filter(|(name, _)| name.ends_with("tracked"));
    assert!(counters.map(|(_, array)| array.values).all(|count| count == Values::I64(vec![5])));
}
