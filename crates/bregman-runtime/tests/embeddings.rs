//! Embeddings equal the training engine's, whatever the sparsity, length, number format, instructions and number of
//! threads.

mod common;

use bregman_runtime::{Instructions, Model, Options, Runs, Tuning, ValueFormat};
use common::{Pair, campplus, distance, ecapa, features, golden, random, resnet, speechbrain};

fn model(pair: &Pair, format: ValueFormat, options: &Options) -> Model {
    Model::from_bytes_with(&pair.file.to_bytes(format).unwrap(), options).unwrap()
}

/// Lengths around the edges of blocks and vectors.
const FRAMES: [usize; 12] = [1, 2, 5, 15, 79, 80, 81, 83, 84, 163, 241, 300];

fn networks() -> Vec<Pair> {
    let sparsities = [0.0, 0.5, 0.9, 0.99];
    let each = |sparsity| {
        [
            random(ecapa(32, 80, 48, true), sparsity, 1),
            random(ecapa(16, 24, 10, false), sparsity, 2),
            random(resnet([1, 2, 1, 1], 8, 24, 20), sparsity, 3),
            random(resnet([2, 1, 1, 1], 3, 8, 7), sparsity, 4),
            random(campplus(8, 24, 20), sparsity, 5),
            random(campplus(3, 8, 7), sparsity, 6),
            // channels enough for Winograd's method
            random(resnet([1, 1, 1, 1], 17, 24, 9), sparsity, 7),
            random(campplus(16, 24, 20), sparsity, 8),
            random(speechbrain(32, 96, 80, 48, true), sparsity, 9),
            random(speechbrain(16, 32, 24, 10, false), sparsity, 10),
        ]
    };
    sparsities.into_iter().flat_map(each).collect()
}

#[test]
fn golden_models_give_the_training_engines_and_the_references_embeddings() {
    for (mut pair, case) in golden() {
        let input = if case["kind"] == "campplus" { "campplus_input" } else { "model_input" };
        let input = bregman_golden::Tensors::load(input);
        let (x, shape) = (input.f32("x"), input.shape("x"));
        let expected = bregman_golden::Tensors::load(&format!("{}_expected", pair.name)).f32("eval_embedding");
        let (exact, half) =
            (model(&pair, ValueFormat::F32, &Options::default()), model(&pair, ValueFormat::F16, &Options::default()));
        for (item, reference) in x.chunks_exact(shape[1] * shape[2]).zip(expected.chunks_exact(exact.embedding_size()))
        {
            let engine = pair.expected(item);
            for (model, limit) in [(&exact, 1e-6), (&half, 1e-5)] {
                let ours = model.embed_features(item).unwrap();
                let (a, b) = (distance(&ours, &engine), distance(&ours, reference));
                assert!(a < limit && b < limit, "{}: {a:e} from the engine, {b:e} from the reference", pair.name);
            }
            // and not only their directions
            let ours = exact.embed_features(item).unwrap();
            let largest = reference.iter().fold(0f32, |largest, value| largest.max(value.abs()));
            let worst = ours.iter().zip(reference).fold(0f32, |worst, (a, b)| worst.max((a - b).abs()));
            assert!(worst <= 5e-5 * largest, "{}: {worst} of {largest}", pair.name);
        }
    }
}

/// For CPUs that are emulated (`tools/check/aarch64`): all networks and lengths take minutes there.
#[test]
fn a_small_network_of_each_kind_gives_the_training_engines_embedding() {
    for mut pair in [
        random(ecapa(16, 24, 10, false), 0.9, 2),
        random(resnet([1, 1, 1, 1], 17, 24, 9), 0.0, 7), // by Winograd's method
        random(campplus(3, 8, 7), 0.5, 6),
        random(speechbrain(16, 32, 24, 10, false), 0.9, 10),
    ] {
        let features = features(83, pair.file.architecture.features, 1);
        let model = model(&pair, ValueFormat::F32, &Options::default());
        let distance = distance(&model.embed_features(&features).unwrap(), &pair.expected(&features));
        assert!(distance < 1e-4, "{}: {distance:e}", pair.name);
    }
}

#[test]
fn embeddings_equal_the_training_engines_at_every_sparsity_and_length() {
    for mut pair in networks() {
        let bins = pair.file.architecture.features;
        let model = model(&pair, ValueFormat::F32, &Options::default());
        let fewest = pair.file.architecture.fewest_frames();
        for frames in FRAMES.into_iter().filter(|&frames| frames >= fewest) {
            let features = features(frames, bins, frames as u64);
            let distance = distance(&model.embed_features(&features).unwrap(), &pair.expected(&features));
            assert!(distance < 1e-4, "{}, {frames} frames: {distance:e}", pair.name);
        }
    }
}

#[test]
fn every_instruction_set_and_number_of_threads_computes_the_same() {
    for pair in networks() {
        let bins = pair.file.architecture.features;
        let features = features(163, bins, 9);
        let reference = model(&pair, ValueFormat::F32, &Options::default()).embed_features(&features).unwrap();
        for instructions in Instructions::available() {
            let embeddings: Vec<Vec<f32>> = [1, 2, 3]
                .iter()
                .map(|&threads| {
                    model(&pair, ValueFormat::F32, &Options { threads, instructions, ..Options::default() })
                        .embed_features(&features)
                        .unwrap()
                })
                .collect();
            assert!(
                embeddings.iter().all(|embedding| *embedding == embeddings[0]),
                "{}: threads with {instructions:?}",
                pair.name
            );
            let distance = distance(&embeddings[0], &reference);
            assert!(distance < 1e-5, "{} with {instructions:?}: {distance:e}", pair.name);
        }
    }
}

/// It rounds otherwise, so an embedding would depend on the CPU if costs that are measured there decided.
#[test]
fn the_file_alone_decides_which_layers_run_by_winograds_method() {
    let by_winograd = |architecture: bregman_runtime::Architecture, sparsity, tuning| {
        let pair = random(architecture, sparsity, 1);
        let model = model(&pair, ValueFormat::F32, &Options { tuning, ..Options::default() });
        let layers = model.layers().iter().filter(|layer| layer.runs == Runs::Winograd);
        layers.map(|layer| layer.name.clone()).collect::<Vec<_>>()
    };
    for tuning in [Tuning::BuiltIn, Tuning::Measured] {
        let resnet = |channels, sparsity| by_winograd(resnet([2, 1, 1, 1], channels, 24, 20), sparsity, tuning);
        // all with 3 × 3 taps but the stem and the three that have a stride of two
        let expected = [
            "layer1.0.conv1",
            "layer1.0.conv2",
            "layer1.1.conv1",
            "layer1.1.conv2",
            "layer2.0.conv2",
            "layer3.0.conv2",
            "layer4.0.conv2",
        ];
        assert_eq!(resnet(16, 0.0), expected);
        assert_eq!(resnet(16, 0.5), expected);
        assert_eq!(resnet(16, 0.7), expected);
        assert_eq!(resnet(16, 0.9), [""; 0], "the non-zeros are fewer");
        assert_eq!(resnet(4, 0.0), expected[5..], "fewer than sixteen channels");
        // its stride is over rows only
        let campplus = |sparsity| by_winograd(campplus(16, 24, 20), sparsity, tuning);
        assert_eq!(campplus(0.0).len(), 9, "{:?}", campplus(0.0));
        assert_eq!(campplus(0.7).len(), 6, "half of what is computed with a stride is of no use");
    }
}
