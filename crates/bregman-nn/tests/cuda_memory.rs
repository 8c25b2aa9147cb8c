//! A batch that does not fit on a GPU is an error that says so, and the model goes on with one that does.
#![cfg(feature = "cuda")]

use bregman_nn::{BatchOutcome, CrossEntropy, Error, Input, Mlp, Result, TrainableModel};
use bregman_tensor::{Backend, Cpu, Margin, Precision, cuda::Cuda};

const FEATURES: usize = 8;
/// Of the hidden layer: 256 KiB per item in f32, for 32 bytes of input.
const WIDTH: usize = 1 << 16;

fn model<B: Backend>(backend: B) -> TrainableModel<B> {
    let network_and_head = |builder: &mut bregman_nn::Builder<B>| -> Result<bregman_nn::NetworkAndHead<B>> {
        let network = Mlp::new(builder, &[FEATURES, WIDTH, 2])?;
        Ok((Box::new(network), Some(Box::new(CrossEntropy::new(builder, 2)?))))
    };
    TrainableModel::with_network(backend, 1, network_and_head).unwrap()
}

fn step<B: Backend>(model: &mut TrainableModel<B>, batch: usize) -> Result<BatchOutcome> {
    let values: Vec<f32> = (0..batch * FEATURES).map(|i| (i * 7 % 11) as f32 / 11.0 - 0.5).collect();
    let labels: Vec<usize> = (0..batch).map(|item| item % 2).collect();
    let margin = Margin { scale: 1.0, margin: 0.0, easy: false };
    model.gradients(Input { values: &values, batch, frames: 1 }, &labels, margin)
}

#[test]
fn a_batch_too_large_for_the_gpu_is_refused_and_a_smaller_one_goes_on() {
    let Some(cuda) = Cuda::open_or_skip(Precision::F32, bregman_skip::no_gpu) else { return };
    let expected = step(&mut model(Cpu::new()), 6).unwrap();
    let mut model = model(cuda);
    for _ in 0..2 {
        // 256 GiB for the hidden layer
        let Err(Error::Device(error)) = step(&mut model, 1 << 20) else { panic!("no GPU has so much memory") };
        let asked = (4 * WIDTH) << 20;
        assert!(
            matches!(error, bregman_tensor::Error::OutOfMemory { asked: Some(bytes), free: Some(_) } if bytes == asked),
            "{error}"
        );
        assert!(error.to_string().starts_with("out of GPU memory: 262144.0 MiB asked for, "), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("train.batch")), "{error}");
        for _ in 0..10 {
            // launched one by one, captured, replayed
            let outcome = step(&mut model, 6).unwrap();
            assert!((outcome.loss - expected.loss).abs() <= 1e-4 * expected.loss, "{outcome:?}, not {expected:?}");
            assert_eq!(outcome.correct, expected.correct);
        }
    }
}
