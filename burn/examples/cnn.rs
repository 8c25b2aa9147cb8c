//! A small convolutional network is trained to 90 % zeros, to tell in which direction stripes run:
//! `cargo run --release --example cnn`.

use bregman_burn::{Bregman, BregmanConfig, sparse_init, sparsity};
use burn::backend::{Autodiff, NdArray};
use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};

type Engine = Autodiff<NdArray>;

const SIDE: usize = 12;
const DIRECTIONS: usize = 4;

#[derive(Module, Debug)]
struct Cnn<B: Backend> {
    first: Conv2d<B>,
    norm: BatchNorm<B>,
    second: Conv2d<B>,
    pool: AdaptiveAvgPool2d,
    classifier: Linear<B>,
}

impl<B: Backend> Cnn<B> {
    fn new(device: &B::Device) -> Self {
        Self {
            first: Conv2dConfig::new([1, 16], [3, 3]).init(device),
            norm: BatchNormConfig::new(16).init(device),
            second: Conv2dConfig::new([16, 32], [3, 3]).init(device),
            pool: AdaptiveAvgPool2dConfig::new([1, 1]).init(),
            classifier: LinearConfig::new(32, DIRECTIONS).init(device),
        }
    }

    fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let x = relu(self.norm.forward(self.first.forward(images)));
        let x = self.pool.forward(relu(self.second.forward(x)));
        self.classifier.forward(x.flatten(1, 3))
    }
}

/// Stripes with a random phase and noise, and their direction; another batch for every number.
fn batch<B: Backend>(number: u64, size: usize, device: &B::Device) -> (Tensor<B, 4>, Tensor<B, 1, Int>) {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 24) as f32
    };
    let (mut pixels, mut labels) = (vec![], vec![]);
    for _ in 0..size {
        let direction = (random() * DIRECTIONS as f32) as usize % DIRECTIONS;
        let phase = 6.3 * random();
        let (dx, dy) = [(1.0, 0.0), (0.0, 1.0), (0.7, 0.7), (0.7, -0.7)][direction];
        for at in 0..SIDE * SIDE {
            let along = dx * (at % SIDE) as f32 + dy * (at / SIDE) as f32;
            pixels.push((1.5 * along + phase).sin() + 0.5 * (random() - 0.5));
        }
        labels.push(direction as i64);
    }
    let images = Tensor::from_data(TensorData::new(pixels, [size, 1, SIDE, SIDE]), device);
    (images, Tensor::from_data(TensorData::new(labels, [size]), device))
}

fn main() {
    let device = Default::default();
    let mut model = sparse_init(Cnn::<Engine>::new(&device), 0.98, 1);
    let mut optimizer: Bregman<Cnn<Engine>, Engine> = BregmanConfig::adabreg(0.9).init();
    let loss = CrossEntropyLossConfig::new().init(&device);
    for step in 0..300 {
        let (images, labels) = batch(step, 32, &device);
        let value = loss.forward(model.forward(images), labels);
        let gradients = GradientsParams::from_grads(value.backward(), &model);
        model = optimizer.step(0.01, model, gradients);
        if step % 50 == 49 {
            let report = optimizer.report().expect("a step was taken");
            println!("step {:3}: loss {:.3}, zeros {:.1} %", step + 1, value.into_scalar(), 100.0 * report.sparsity);
        }
    }
    let (images, labels) = batch::<Engine>(1 << 40, 256, &device);
    let right = model.forward(images).argmax(1).flatten::<1>(0, 1).equal(labels).int().sum().into_scalar();
    let (accuracy, zeros) = (right as f64 / 256.0, sparsity(&model));
    println!("{:.1} % of directions right with {:.1} % zeros", 100.0 * accuracy, 100.0 * zeros);
    assert!(accuracy > 0.9 && (zeros - 0.9).abs() < 0.01);
}
