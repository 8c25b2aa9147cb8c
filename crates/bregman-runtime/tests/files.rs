//! Model files: written and read back, small, and refused when anything about them is wrong.

mod common;

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bregman_runtime::{Error, Layer, Model, ModelFile, Positions, ValueFormat};
use common::{Pair, distance, ecapa, features, random, resnet};
use proptest::prelude::*;

const FORMATS: [ValueFormat; 3] = [ValueFormat::F32, ValueFormat::F16, ValueFormat::Int8];

fn small(sparsity: f32) -> [Pair; 2] {
    [random(ecapa(8, 8, 4, true), sparsity, 5), random(resnet([1, 1, 1, 1], 2, 8, 3), sparsity, 6)]
}

/// Bytes of both small networks in each format, made once: the property tests read them many times.
fn stored(which: usize, format: usize) -> Vec<u8> {
    static BYTES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let all = || small(0.9).iter().flat_map(|pair| FORMATS.map(|format| pair.file.to_bytes(format).unwrap())).collect();
    BYTES.get_or_init(all)[which * FORMATS.len() + format].clone()
}

#[test]
fn f32_files_read_back_exactly_and_others_within_their_precision() {
    for sparsity in [0.0, 0.6, 0.97] {
        for pair in small(sparsity) {
            let mut exact = ModelFile::from_bytes(&pair.file.to_bytes(ValueFormat::F32).unwrap()).unwrap();
            exact
                .layers
                .iter_mut()
                .zip(&pair.file.layers)
                .for_each(|(read, written)| read.input_mean = written.input_mean.clone());
            assert_eq!(exact, pair.file, "{}", pair.name);
            for (format, error) in [(ValueFormat::F16, 5e-4), (ValueFormat::Int8, 0.5 / 127.0)] {
                let read = ModelFile::from_bytes(&pair.file.to_bytes(format).unwrap()).unwrap();
                for (before, after) in pair.file.layers.iter().zip(&read.layers) {
                    let rows = before.bias.len();
                    let each = before
                        .weight
                        .chunks(before.weight.len() / rows)
                        .zip(after.weight.chunks(after.weight.len() / rows));
                    for (before, after) in each {
                        let largest = before.iter().fold(0f32, |largest, weight| largest.max(weight.abs()));
                        for (before, after) in before.iter().zip(after) {
                            assert!(
                                (before - after).abs() <= error * largest.max(1e-3) * 1.001,
                                "{before} became {after} in {format:?}"
                            );
                            assert!(*before != 0.0 || *after == 0.0, "a zero became {after}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn rounded_files_give_nearly_the_same_embeddings() {
    for sparsity in [0.0, 0.9] {
        for architecture in [ecapa(32, 80, 48, true), ecapa(16, 24, 10, false), resnet([1, 2, 1, 1], 8, 24, 20)] {
            let mut pair = random(architecture, sparsity, 8);
            let features = features(120, pair.file.architecture.features, 3);
            let expected = pair.expected(&features);
            for (format, limit) in [(ValueFormat::F16, 1e-3), (ValueFormat::Int8, 5e-2)] {
                let model = Model::from_bytes(&pair.file.to_bytes(format).unwrap()).unwrap();
                let distance = distance(&model.embed_features(&features).unwrap(), &expected);
                assert!(distance < limit, "{} in {format:?}: {distance:e}", pair.name);
            }
        }
    }
}

/// W·mean + b is what a layer makes of a mean input, before and after rounding: the bias makes up for the rounded
/// weights.
#[test]
fn rounding_leaves_the_output_of_the_mean_input_where_a_norm_was_folded() {
    let file = &random(ecapa(8, 8, 4, true), 0.5, 9).file;
    let last = file.layers.last().unwrap();
    let mean = last.input_mean.as_ref().unwrap();
    let of_mean = |layer: &Layer| -> Vec<f64> {
        let product = |weights: &[f32]| {
            weights.iter().zip(mean).map(|(&weight, &mean)| f64::from(weight) * f64::from(mean)).sum::<f64>()
        };
        layer
            .weight
            .chunks_exact(mean.len())
            .zip(&layer.bias)
            .map(|(weights, &bias)| product(weights) + f64::from(bias))
            .collect()
    };
    for format in [ValueFormat::F16, ValueFormat::Int8] {
        let read = ModelFile::from_bytes(&file.to_bytes(format).unwrap()).unwrap();
        let read = read.layers.last().unwrap();
        assert_ne!(read.bias, last.bias, "{format:?}");
        for (before, after) in of_mean(last).into_iter().zip(of_mean(read)) {
            assert!((before - after).abs() < 1e-5, "{format:?}: {before} became {after}");
        }
    }
}

#[test]
fn each_layer_takes_its_smallest_encoding_and_a_sparse_file_is_small() {
    let size =
        |sparsity, format| random(ecapa(128, 80, 64, true), sparsity, 7).file.to_bytes(format).unwrap().len() as f64;
    let dense = size(0.0, ValueFormat::F32);
    // f16 values; a layer as small as these has many biases beside its weights
    assert!(size(0.95, ValueFormat::F16) < 0.06 * dense, "{} of {dense}", size(0.95, ValueFormat::F16));
    assert!(size(0.99, ValueFormat::F16) < 0.025 * dense, "{} of {dense}", size(0.99, ValueFormat::F16));
    let kinds = |sparsity| {
        let model =
            Model::from_bytes(&random(ecapa(64, 80, 64, true), sparsity, 7).file.to_bytes(ValueFormat::F32).unwrap())
                .unwrap();
        model.layers().iter().map(|layer| layer.positions).collect::<Vec<_>>()
    };
    assert!(kinds(0.0).iter().all(|kind| *kind == Positions::Dense));
    assert!(kinds(0.4).iter().all(|kind| *kind == Positions::Bitmap));
    assert!(kinds(0.95).iter().all(|kind| matches!(kind, Positions::Gaps { .. })));
}

/// A file is read part by part, in the order in which the network is made of its layers.
#[test]
fn a_file_that_is_opened_is_the_model_of_its_bytes() {
    let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    for (sparsity, format) in [0.0, 0.4, 0.95].into_iter().flat_map(|sparsity| FORMATS.map(|format| (sparsity, format)))
    {
        for pair in small(sparsity) {
            let bytes = pair.file.to_bytes(format).unwrap();
            std::fs::write(&path, &bytes).unwrap();
            let [opened, read] = [Model::open(&path).unwrap(), Model::from_bytes(&bytes).unwrap()].map(|model| {
                let features = features(50, model.architecture().features, 1);
                model.embed_features(&features).unwrap()
            });
            assert_eq!(opened, read, "{sparsity} in {format:?}");
        }
    }
}

/// The checksum is known only after the last layer, and yet it is what is said.
#[test]
fn a_damaged_file_is_called_damaged_wherever_the_damage_is() {
    let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    for pair in small(0.5) {
        let bytes = pair.file.to_bytes(ValueFormat::F32).unwrap();
        for at in (16..bytes.len()).step_by(bytes.len() / 40) {
            let mut altered = bytes.clone();
            altered[at] ^= 0x81;
            for damaged in [&altered[..], &bytes[..at]] {
                std::fs::write(&path, damaged).unwrap();
                let error = Model::open(&path).err().expect("it was damaged").to_string();
                assert!(error.contains("checksum"), "byte {at}: {error}");
            }
        }
    }
}

#[test]
fn files_that_are_no_models_are_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = small(0.9)[0].file.to_bytes(ValueFormat::F16).unwrap();
    let open = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        Model::open(&path).map(|_| ()).unwrap_err()
    };
    assert!(matches!(open("empty", b""), Error::Format(_) | Error::File { .. }));
    assert!(matches!(open("text", b"not a model at all"), Error::Format(_)));
    assert!(matches!(open("half", &bytes[..bytes.len() / 2]), Error::Format(problem) if problem.contains("checksum")));
    let mut later = bytes.clone();
    later[8] = 3;
    assert!(matches!(open("later", &later), Error::Version { found: 3, newest: 2 }));
    later[8] = 2; // the version is not part of the sum
    assert!(matches!(open("other", &later), Error::Format(problem) if problem.contains("version 2")));
    assert!(matches!(Model::open(folder.path().join("absent")), Err(Error::File { .. })));
    // a network this program does not know, in an otherwise sound file
    let unknown = rewritten(&bytes, |header| header.replace("\"ecapa\"", "\"xvector\""));
    assert!(Model::from_bytes(&unknown).err().unwrap().to_string().contains("xvector"));
    let huge = rewritten(&bytes, |header| header.replace("\"channels\":8", "\"channels\":88888"));
    assert!(matches!(Model::from_bytes(&huge), Err(Error::Architecture { field: "channels", .. })));
    let front_end = rewritten(&bytes, |header| header.replace("\"bins\":8", "\"bins\":9"));
    assert!(matches!(Model::from_bytes(&front_end), Err(Error::FrontEnd(_))));
}

/// The file with another header, and the sum that belongs to it.
fn rewritten(bytes: &[u8], change: impl Fn(String) -> String) -> Vec<u8> {
    let length = u64::from_le_bytes(bytes[16..24].try_into().unwrap()) as usize;
    let header = change(String::from_utf8(bytes[24..24 + length].to_vec()).unwrap());
    let mut changed = bytes[..16].to_vec();
    changed.extend((header.len() as u64).to_le_bytes());
    changed.extend(header.bytes());
    changed.extend(&bytes[24 + length..]);
    resummed(changed)
}

#[test]
fn layers_are_found_by_name_in_whatever_order_a_file_has_them() {
    for pair in small(0.9) {
        let bytes = pair.file.to_bytes(ValueFormat::F16).unwrap();
        let model = Model::from_bytes(&bytes).unwrap();
        let length = u64::from_le_bytes(bytes[16..24].try_into().unwrap()) as usize;
        let mut payload = &bytes[24 + length..];
        let mut chunks: Vec<&[u8]> =
            model.layers().iter().map(|layer| payload.split_off(..layer.bytes).unwrap()).collect();
        chunks.reverse();
        let reversed = rewritten(&[&bytes[..24 + length], &chunks.concat()].concat(), |header| {
            let mut header: serde_json::Value = serde_json::from_str(&header).unwrap();
            header["layers"].as_array_mut().unwrap().reverse();
            header.to_string()
        });
        let reversed = Model::from_bytes(&reversed).unwrap();
        let features = features(50, model.architecture().features, 4);
        assert_eq!(reversed.embed_features(&features).unwrap(), model.embed_features(&features).unwrap());
        assert!(
            reversed.layers().iter().rev().map(|layer| &layer.name).eq(model.layers().iter().map(|layer| &layer.name))
        );
    }
}

fn resummed(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.len() >= 16 {
        let sum = crc32fast::hash(&bytes[16..]);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

/// A mapped file would end the process with SIGBUS.
#[test]
#[cfg_attr(miri, ignore = "makes files")]
fn a_file_that_is_cut_while_it_is_opened_is_an_error_or_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.breg");
    let bytes = random(ecapa(64, 32, 16, true), 0.0, 5).file.to_bytes(ValueFormat::F32).unwrap();
    std::fs::write(&path, &bytes).unwrap();
    let done = AtomicBool::new(false);
    let outcomes = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
                file.set_len(0).unwrap();
                (&file).write_all(&bytes).unwrap();
                std::thread::yield_now();
            }
        });
        let began = Instant::now();
        let mut outcomes = [0; 2];
        while began.elapsed() < Duration::from_secs(20) && (outcomes[0] < 20 || outcomes[1] < 20) {
            outcomes[usize::from(Model::open(&path).is_ok())] += 1;
        }
        done.store(true, Ordering::Relaxed);
        outcomes
    });
    assert!(outcomes[0] > 0, "it was never cut at the wrong moment: {outcomes:?}");
}

#[test]
fn values_that_cannot_be_stored_are_refused() {
    let pair = &small(0.5)[0];
    for (value, format) in [(f32::NAN, ValueFormat::F32), (f32::INFINITY, ValueFormat::Int8), (1e6, ValueFormat::F16)] {
        let mut file = pair.file.clone();
        file.layers[0].weight[0] = value;
        let error = file.to_bytes(format).unwrap_err();
        assert!(matches!(&error, Error::Tensor { tensor, .. } if tensor == "layer1.conv"), "{error}");
    }
    let mut file = pair.file.clone();
    file.layers[0].bias.pop();
    assert!(file.to_bytes(ValueFormat::F32).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Every single altered byte, and every cut, is found by the sum or the header's checks.
    #[test]
    fn an_altered_or_cut_file_is_refused(
        which in 0usize..2,
        format in 0usize..3,
        at in any::<prop::sample::Index>(),
        flip in 1u8..=255,
        cut in any::<bool>(),
    ) {
        let bytes = stored(which, format);
        let at = at.index(bytes.len());
        let mut altered = bytes.clone();
        if cut { altered.truncate(at) } else { altered[at] ^= flip }
        prop_assert!(Model::from_bytes(&altered).is_err());
        prop_assert!(ModelFile::from_bytes(&altered).is_err());
    }

    /// With a sum made to fit, anything goes but a panic or a read elsewhere: an error, or a model that embeds
    /// something.
    #[test]
    fn a_forged_file_gives_an_error_or_a_working_model(
        which in 0usize..2,
        format in 0usize..3,
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = stored(which, format);
        for (at, flip) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(model) = Model::from_bytes(&resummed(bytes)) {
            let features = features(90, model.architecture().features, 1);
            let _ = model.embed_features(&features);
        }
    }
}
