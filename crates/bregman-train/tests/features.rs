//! Features that the device computes from samples are those of the loader's threads. What needs a GPU says so and
//! passes without one.

mod common;

use std::sync::atomic::AtomicBool;

use bregman_golden::Tensors;
use bregman_speaker::Extractor;
use bregman_tensor::{Backend, Cpu, Shape, Tensor};
use bregman_train::config::{FeatureConfig, FrontEndKind};
use bregman_train::{Device, Experiment, Open, Trainer, open_cpu};
use common::{corpus, metrics, recipe};

/// Absolute differences of features in dB (SpeechBrain) or natural logarithms (Kaldi): the largest, and the mean. The
/// largest are bins far below the loudest of their frame, which carry that one's rounding errors.
const TOLERANCE: (f32, f32) = (5e-3, 5e-5);

/// Every waveform of the golden numbers, cut into utterances of equal length; levelled when extracted.
fn utterances() -> Vec<Vec<f32>> {
    let tensors = Tensors::load("features");
    let names: Vec<String> = tensors.names().iter().filter(|name| name.ends_with(".waveform_i16")).cloned().collect();
    assert!(!names.is_empty(), "no waveforms among the golden numbers");
    let waveform = |name: &String| tensors.f32(name).into_iter().map(|sample| sample / 32768.0).collect::<Vec<f32>>();
    let all: Vec<f32> = names.iter().flat_map(waveform).collect();
    let length = (all.len() / 5).min(24_000);
    all.chunks_exact(length).map(<[f32]>::to_vec).collect()
}

/// `rounding` is that of the number format in which the device keeps features, relative to their size.
fn features_are_those_of_the_loader<B: Backend>(backend: &B, rounding: f32) {
    let utterances = utterances();
    for (front_end, bins) in [(FrontEndKind::SpeechBrain, 80), (FrontEndKind::Kaldi, 80), (FrontEndKind::Kaldi, 24)] {
        let config = FeatureConfig { front_end, bins, ..FeatureConfig::default() };
        let mut extractor = Extractor::new(&config.fbank()).unwrap();
        let (batch, frames) = (utterances.len(), extractor.frames(utterances[0].len()));
        let mut samples = utterances.clone(); // extracting levels them
        let expected: Vec<f32> =
            samples.iter_mut().flat_map(|samples| extractor.extract(samples, 0).data.clone()).collect();
        let filterbank = backend.filterbank(config.tables().unwrap()).unwrap();
        for shape in [Shape::signal(bins, batch, frames), Shape { channels: 1, batch, height: bins, width: frames }] {
            let mut tensor = Tensor::empty(backend).unwrap();
            tensor.resize(backend, shape).unwrap();
            backend.write_samples(&filterbank, &samples.concat(), tensor.view_mut()).unwrap();
            let mut values = vec![0.0; shape.len()];
            backend.read(tensor.view(), &mut values).unwrap();
            // [bins, frames] of each.
            let at = |i: usize| (i / (frames * bins) * bins + i % bins) * frames + i / bins % frames;
            let apart: Vec<f32> =
                expected.iter().enumerate().map(|(i, x)| (x - values[at(i)]).abs() - rounding * x.abs()).collect();
            let (worst, mean) =
                (apart.iter().copied().fold(0.0, f32::max), apart.iter().sum::<f32>() / apart.len() as f32);
            println!("{front_end:?} {bins} {shape:?}: at most {worst:e}, in the mean {mean:e}");
            assert!(
                worst < TOLERANCE.0 && mean < TOLERANCE.1,
                "{front_end:?} {bins} {shape:?}: at most {worst}, in the mean {mean}"
            );
        }
        let mut wrong = Tensor::empty(backend).unwrap();
        wrong.resize(backend, Shape::signal(bins, batch, frames + 1)).unwrap();
        assert!(backend.write_samples(&filterbank, &samples.concat(), wrong.view_mut()).is_err(), "too many frames");
    }
}

#[test]
fn features_by_products_are_those_of_the_loader() {
    features_are_those_of_the_loader(&Cpu::new(), 0.0);
}

#[cfg(feature = "cuda")]
#[test]
fn features_by_a_gpu_are_those_of_the_loader() {
    use bregman_tensor::{Precision, cuda::Cuda};
    for (precision, rounding) in [(Precision::F32, 0.0), (Precision::Tf32, 0.0), (Precision::Bf16, 1.0 / 256.0)] {
        if let Some(cuda) = Cuda::open_or_skip(precision, bregman_skip::no_gpu) {
            features_are_those_of_the_loader(&cuda, rounding);
        }
    }
}

/// Losses of a short run with features by the loader and by the device, on the device that `open` opens.
fn runs_agree<B: Device>(open: impl Open<B> + Copy) {
    let dir = tempfile::tempdir().unwrap();
    corpus(&dir.path().join("voices"));
    let method = "kind = \"dense\"\noptimizer = { kind = \"adamw\" }";
    let [ours, theirs] = ["loader", "device"].map(|by| {
        let by_whom = format!("data.features_by={by}");
        let experiment = recipe(&dir.path().join("voices"), method, &[&by_whom, "train.lr=0.0003", "train.epochs=2"]);
        let run = dir.path().join(by);
        Trainer::new_on(open, experiment, &run, &()).unwrap().run(&AtomicBool::new(false)).unwrap();
        let losses = |key: &str| metrics(&run).iter().filter_map(|line| line[key].as_f64()).collect::<Vec<_>>();
        [losses("loss"), losses("validation_loss")].concat()
    });
    assert!(ours.len() > 8 && ours.len() == theirs.len(), "{} and {} losses", ours.len(), theirs.len());
    for (a, b) in ours.iter().zip(&theirs) {
        assert!((a - b).abs() < 1e-3 * a.abs().max(0.1), "losses {a} and {b}");
    }
}

#[test]
fn a_run_on_features_by_the_device_is_that_on_features_by_the_loader() {
    runs_agree(open_cpu);
}

#[cfg(feature = "cuda")]
#[test]
fn a_run_on_features_by_a_gpu_is_that_on_features_by_the_loader() {
    use bregman_tensor::{Precision, cuda::Cuda};
    if Cuda::open_or_skip(Precision::F32, bregman_skip::no_gpu).is_some() {
        runs_agree(|precision: Option<Precision>| Cuda::open(0, precision.unwrap_or(Precision::F32)));
    }
}

#[test]
fn what_works_on_features_is_refused_where_the_loader_has_none() {
    let parse = |more: &str| {
        let text = format!(
            "[model]\nkind = \"ecapa\"\n[data]\nroot = \"voices\"\nfeatures_by = \"device\"\n{more}[method]\n\
             kind = \"dense\"\n"
        );
        Experiment::parse(&text, "test", &[] as &[&str]).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(parse(""), Ok(()));
    let cached = parse("cache = \"features\"\n").unwrap_err();
    assert!(cached.contains("data.cache") && cached.contains("features_by"), "{cached}");
    let masked = parse("augment = { mask = {} }\n").unwrap_err();
    assert!(masked.contains("data.augment.mask") && masked.contains("features_by"), "{masked}");
}
