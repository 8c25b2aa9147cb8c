//! Sliding windows: what is computed once gives what computing it anew gives.

mod common;

use bregman_audio::{FbankConfig, FbankStream};
use bregman_runtime::{Error, Model, ModelFile, Options, SlidingOptions, ValueFormat};
use common::{campplus, distance, ecapa, random, resnet};
use proptest::prelude::*;

const BINS: usize = 24;
/// Samples of a frame's hop.
const HOP: usize = 160;

fn model(file: &ModelFile, threads: usize) -> Model {
    let options = Options { threads, ..Options::default() };
    let calibrated = file.layers.iter().any(|layer| layer.input_range.is_some());
    let format = if calibrated { ValueFormat::Int8 } else { ValueFormat::F32 };
    Model::from_bytes_with(&file.to_bytes(format).unwrap(), &options).unwrap()
}

fn models() -> [ModelFile; 6] {
    let mut whole_numbers = random(ecapa(32, BINS, 8, true), 0.1, 4).file;
    whole_numbers.calibrate(&[voice(20_000)]).unwrap();
    [
        random(ecapa(16, BINS, 8, true), 0.7, 1).file,
        random(resnet([1, 2, 1, 1], 4, BINS, 8), 0.7, 2).file,
        random(campplus(4, BINS, 8), 0.3, 3).file,
        whole_numbers,
        // whole utterances go through most of the layers of these by Winograd's method
        random(resnet([1, 1, 1, 1], 16, BINS, 8), 0.1, 5).file,
        random(campplus(16, BINS, 8), 0.1, 6).file,
    ]
}

/// Loudness and pitch change, so that features and their mean do.
fn voice(samples: usize) -> Vec<f32> {
    let sound = |i: usize| {
        let time = i as f32 / 16_000.0;
        (0.2 + 0.15 * (3.0 * time).sin()) * (i as f32 * (0.05 + 0.01 * time.sin())).sin()
            + 0.02 * ((i * 7919) % 101) as f32 / 101.0
    };
    (0..samples).map(sound).collect()
}

/// Whole frames of the filterbank, minus the mean of the last `span`.
fn features(samples: &[f32], span: usize) -> Vec<f32> {
    let mut stream = FbankStream::new(FbankConfig { bins: BINS, ..FbankConfig::speechbrain() }).unwrap();
    stream.push(samples);
    let frames: Vec<Vec<f32>> = std::iter::from_fn(|| stream.pop().map(<[f32]>::to_vec)).collect();
    let normal = |t: usize| {
        let to = (t + 1).max(span.min(frames.len()));
        let last = &frames[to.saturating_sub(span)..to];
        let mean = |bin: usize| last.iter().map(|frame| f64::from(frame[bin])).sum::<f64>() / last.len() as f64;
        (0..BINS).map(|bin| frames[t][bin] - mean(bin) as f32).collect::<Vec<f32>>()
    };
    (0..frames.len()).flat_map(normal).collect()
}

/// Everything said of a recording in pieces of these lengths: at each piece the embedding as if it ended there.
fn in_pieces(model: &Model, options: SlidingOptions, samples: &[f32], pieces: &[usize]) -> Vec<Option<Vec<f32>>> {
    let (mut sliding, mut rest, mut found) = (model.sliding(options).unwrap(), samples, Vec::new());
    for &piece in pieces.iter().cycle() {
        let (now, later) = rest.split_at(piece.min(rest.len()));
        sliding.push(now).unwrap();
        found.push(sliding.embed().ok());
        rest = later;
        if rest.is_empty() {
            return found;
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn any_pieces_of_a_recording_give_the_same_embeddings(
        which in 0usize..6,
        length in 400usize..60_000,
        pieces in prop::collection::vec(1usize..12_000, 1..5),
        window in 0.1f64..2.0,
        mean in 0.1f64..2.0,
    ) {
        let model = model(&models()[which], 1);
        let options = SlidingOptions { window, mean };
        let (samples, mut heard) = (voice(length), 0);
        let at_once = |heard: usize| in_pieces(&model, options, &samples[..heard], &[usize::MAX]).remove(0);
        for (number, ours) in in_pieces(&model, options, &samples, &pieces).into_iter().enumerate() {
            heard = length.min(heard + pieces[number % pieces.len()]);
            prop_assert_eq!(ours, at_once(heard), "{} samples", heard);
        }
        prop_assert_eq!(heard, length);
    }
}

#[test]
fn a_window_longer_than_the_recording_gives_the_embedding_of_its_features() {
    for file in models() {
        let model = model(&file, 2);
        let samples = voice(40_000);
        for mean in [0.3, 9.0] {
            let options = SlidingOptions { window: 9.0, mean };
            let ours = in_pieces(&model, options, &samples, &[5_000]).pop().flatten().unwrap();
            let expected = model.embed_features(&features(&samples, (mean * 100.0) as usize)).unwrap();
            assert!(distance(&ours, &expected) < 1e-6, "{:?}", model.architecture());
        }
    }
}

#[test]
fn the_windows_of_a_recording_are_those_of_a_stream_that_has_heard_more() {
    for file in models() {
        let model = model(&file, 1);
        let samples = voice(16_000 * 3);
        // ends at every 8th frame, as the columns of a ResNet do
        let options = SlidingOptions { window: 0.96, mean: 0.5 };
        let windows = model.embed_windows(&samples, options, 0.4).unwrap();
        let (last, regular) = windows.split_last().unwrap();
        assert_eq!(regular.len(), 6);
        assert!(regular.iter().enumerate().all(|(i, window)| (window.start - 0.4 * i as f64).abs() < 1e-9));
        assert!(windows.iter().all(|window| (window.end - window.start - 0.96).abs() < 1e-9));

        // of a live stream, whenever a settled window ends where one of these does
        let (mut sliding, mut met) = (model.sliding(options).unwrap(), 0);
        for piece in samples.chunks(HOP) {
            sliding.push(piece).unwrap();
            if let Some(settled) = sliding.embed_settled().unwrap() {
                if let Some(window) = regular.iter().find(|window| (window.end - settled.end).abs() < 1e-9) {
                    assert_eq!(&settled, window);
                    met += 1;
                }
                assert!(sliding.seconds() - settled.end < sliding.context() + 0.1);
            }
        }
        assert!(met > 1, "{met} windows, {:?}", model.architecture());
        // and the last one is what the stream says at the end
        assert_eq!(sliding.embed().unwrap(), last.embedding);
    }
}

#[test]
fn a_short_recording_has_one_window() {
    let model = model(&models()[0], 1);
    let samples = voice(8_000);
    let windows = model.embed_windows(&samples, SlidingOptions::default(), 0.5).unwrap();
    assert_eq!((windows.len(), windows[0].start), (1, 0.0));
    let expected = model.embed_features(&features(&samples, 300)).unwrap();
    assert!(distance(&windows[0].embedding, &expected) < 1e-6);
    // and close to what the whole front end makes of it
    assert!(distance(&windows[0].embedding, &model.embed(&samples).unwrap()) < 0.05);
}

#[test]
fn too_little_sound_and_impossible_windows_are_refused() {
    let model = model(&models()[1], 1);
    let mut sliding = model.sliding(SlidingOptions::default()).unwrap();
    sliding.push(&voice(399)).unwrap();
    assert!(matches!(sliding.embed(), Err(Error::TooShort { samples: 399, needed: 400, .. })));
    assert!(sliding.embed_settled().unwrap().is_none());
    assert!(matches!(sliding.push(&[0.0, f32::NAN]), Err(Error::NotFinite)));
    assert_eq!(sliding.seconds(), 399.0 / 16_000.0);
    for window in [0.0, -1.0, f64::NAN, 1e9] {
        let error = model.sliding(SlidingOptions { window, mean: 1.0 }).err().unwrap();
        assert!(matches!(error, Error::Sliding { field: "window", .. }), "{error}");
        let options = SlidingOptions { window: 1.0, mean: window };
        assert!(matches!(model.sliding(options).err().unwrap(), Error::Sliding { field: "mean", .. }));
        let error = model.embed_windows(&voice(8_000), SlidingOptions::default(), window).unwrap_err();
        assert!(matches!(error, Error::Sliding { field: "hop", .. }));
    }
}
