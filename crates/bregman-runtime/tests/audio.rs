//! From samples: the same embeddings as training and evaluation see, in any form of calling it.

mod common;

use bregman_audio::FbankConfig;
use bregman_runtime::{Error, FrontEnd, Model, ModelFile, Options, ValueFormat};
use bregman_speaker::Extractor;
use common::{distance, ecapa, random, resnet};

fn voice(samples: usize) -> Vec<f32> {
    (0..samples)
        .map(|i| {
            (0.3 + 0.2 * (i as f32 * 0.0007).sin()) * (i as f32 * 0.06).sin() + 0.02 * ((i * 7919) % 101) as f32 / 101.0
        })
        .collect()
}

fn model(file: &ModelFile, threads: usize) -> Model {
    Model::from_bytes_with(&file.to_bytes(ValueFormat::F32).unwrap(), &Options { threads, ..Options::default() })
        .unwrap()
}

fn kaldi() -> FbankConfig {
    FbankConfig { bins: 24, ..FbankConfig::kaldi(bregman_audio::Window::Hamming) }
}

#[test]
fn samples_become_the_embeddings_that_evaluation_computes() {
    for mut pair in [random(ecapa(16, 80, 12, true), 0.8, 1), random(resnet([1, 1, 1, 1], 4, 80, 12), 0.8, 2)] {
        let model = model(&pair.file, 1);
        let mut extractor = Extractor::new(&FbankConfig::speechbrain()).unwrap();
        for length in [400, 8_000, 48_123] {
            let samples = voice(length);
            let features = extractor.extract(&mut samples.clone(), 0).data.clone();
            let distance = distance(&model.embed(&samples).unwrap(), &pair.expected(&features));
            assert!(distance < 1e-4, "{}, {length} samples: {distance:e}", pair.name);
        }
    }
}

#[test]
fn audio_shorter_than_a_window_is_refused_with_what_is_needed() {
    let mut pair = random(ecapa(8, 24, 4, false), 0.5, 3);
    for config in [kaldi(), FbankConfig { bins: 24, ..FbankConfig::speechbrain() }] {
        pair.file.front_end = FrontEnd::from(&config);
        let model = model(&pair.file, 1);
        assert_eq!((model.rate(), model.shortest()), (16_000, 400));
        for length in [0, 1, 399] {
            let error = model.embed(&voice(length)).unwrap_err();
            assert!(matches!(error, Error::TooShort { samples, needed: 400, rate: 16_000 } if samples == length));
            assert!(error.to_string().contains("400 (0.025 s)"), "{error}");
        }
        assert!(model.embed(&voice(400)).unwrap().iter().all(|value| value.is_finite()));
    }
}

#[test]
fn input_that_is_not_finite_or_no_whole_frames_is_refused() {
    let pair = random(ecapa(8, 24, 4, false), 0.5, 3);
    let model = model(&pair.file, 1);
    let mut samples = voice(1000);
    samples[500] = f32::NAN;
    assert!(matches!(model.embed(&samples), Err(Error::NotFinite)));
    assert!(matches!(model.embed_features(&[]), Err(Error::Features { .. })));
    assert!(matches!(model.embed_features(&[0.0; 25]), Err(Error::Features { values: 25, bins: 24 })));
    assert!(matches!(model.embed_features(&[f32::INFINITY; 24]), Err(Error::NotFinite)));
}

#[test]
fn a_batch_gives_what_single_utterances_give_and_their_errors() {
    let pair = random(resnet([1, 1, 1, 1], 4, 24, 12), 0.8, 2);
    let model = model(&pair.file, 2);
    let utterances = [voice(9_000), voice(10), voice(16_000), voice(8_001)];
    let slices: Vec<&[f32]> = utterances.iter().map(Vec::as_slice).collect();
    for (together, alone) in model.embed_batch(&slices).into_iter().zip(&slices) {
        match (together, model.embed(alone)) {
            (Ok(together), Ok(alone)) => assert_eq!(together, alone),
            (Err(Error::TooShort { .. }), Err(Error::TooShort { .. })) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_stream_embeds_exactly_its_last_seconds() {
    let pair = random(ecapa(8, 24, 4, true), 0.5, 4);
    let model = model(&pair.file, 1);
    let samples = voice(40_000);
    let mut stream = model.stream(0.5);
    assert!(matches!(stream.embed(), Err(Error::TooShort { samples: 0, .. })));
    let mut heard = 0;
    for piece in [100, 399, 1, 7_000, 123, 9_000, 20_000, 500] {
        stream.push(&samples[heard..heard + piece]);
        heard += piece;
        let last = &samples[heard.saturating_sub(8_000)..heard];
        assert_eq!(stream.samples(), last);
        assert_eq!(stream.embed().ok(), model.embed(last).ok());
    }
    stream.clear();
    assert_eq!(stream.seconds(), 0.0);
}

#[test]
fn one_model_serves_many_threads() {
    let pair = random(ecapa(8, 24, 4, true), 0.5, 4);
    let model = model(&pair.file, 1);
    let expected: Vec<Vec<f32>> = (0..4).map(|i| model.embed(&voice(4_000 + 1_000 * i)).unwrap()).collect();
    std::thread::scope(|scope| {
        for (i, expected) in expected.iter().enumerate() {
            let model = &model;
            scope.spawn(move || {
                (0..20).for_each(|_| assert_eq!(model.embed(&voice(4_000 + 1_000 * i)).unwrap(), *expected))
            });
        }
    });
}
