//! After the first utterance of a length, embedding features allocates nothing.

mod common;

use bregman_runtime::{Model, Runs, ValueFormat};
use common::{ecapa, features, random, resnet};

#[global_allocator]
static ALLOCATOR: bregman_memory::Counting = bregman_memory::Counting;

#[test]
fn a_warm_model_allocates_nothing() {
    let [small, maps] = [ecapa(16, 24, 10, true), resnet([1, 1, 1, 1], 4, 24, 20)].map(|it| random(it, 0.9, 1).file);
    let mut whole_numbers = random(ecapa(16, 24, 10, true), 0.5, 1).file;
    whole_numbers.calibrate_features(&[features(80, 24, 2)]).unwrap();
    let winograd = random(resnet([1, 1, 1, 1], 16, 24, 20), 0.1, 1).file;
    let in_f32 = [small, maps, winograd].map(|file| (file, ValueFormat::F32));
    for (file, format) in in_f32.into_iter().chain([(whole_numbers, ValueFormat::Int8)]) {
        let model = Model::from_bytes(&file.to_bytes(format).unwrap()).unwrap();
        assert_eq!(format == ValueFormat::Int8, model.layers().iter().any(|layer| layer.runs == Runs::Int8));
        let features = features(123, 24, 1);
        let mut embedding = vec![0.0; model.embedding_size()];
        model.embed_features_into(&features, &mut embedding).unwrap();
        let ((), taken) = bregman_memory::of_process(|| {
            for _ in 0..3 {
                model.embed_features_into(&features, &mut embedding).unwrap();
            }
        });
        assert_eq!(taken.allocations, 0, "{} in {format:?}", file.architecture);
    }
}
