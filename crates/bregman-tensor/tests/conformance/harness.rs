//! Random numbers, and arrays in and out of a backend.

use bregman_tensor::{Backend, Shape, Storage, Tensor};

/// A small generator, so that a failing case can be repeated.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Uniform in [−1, 1).
    pub(crate) fn values(&mut self, count: usize) -> Vec<f32> {
        let next = |state: &mut u64| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (*state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next(&mut self.0)).collect()
    }

    /// −1, 0 and 1, as often as each other.
    pub(crate) fn whole(&mut self, count: usize) -> Vec<f32> {
        self.values(count).into_iter().map(|v| (1.5 * v).round()).collect()
    }

    /// Values at least 0.1 away from zero, so that no step of a finite difference crosses the kink of a ReLU.
    pub(crate) fn away_from_zero(&mut self, count: usize) -> Vec<f32> {
        self.values(count).into_iter().map(|v| v + 0.1f32.copysign(v)).collect()
    }
}

/// Sets four of five weights to zero.
pub(crate) fn mostly_zero(weight: &mut [f32]) {
    weight.iter_mut().enumerate().filter(|(i, _)| i % 5 != 0).for_each(|(_, w)| *w = 0.0);
}

pub(crate) fn tensor<B: Backend>(backend: &B, shape: Shape, values: &[f32]) -> Tensor<B> {
    let mut tensor = Tensor::empty(backend).unwrap();
    tensor.resize(backend, shape).unwrap();
    backend.write(values, tensor.view_mut()).unwrap();
    tensor
}

/// Unspecified memory must never leak into a result: NaN shows it.
pub(crate) fn poisoned<B: Backend>(backend: &B, shape: Shape) -> Tensor<B> {
    tensor(backend, shape, &vec![f32::NAN; shape.len()])
}

pub(crate) fn values<B: Backend>(backend: &B, tensor: &Tensor<B>) -> Vec<f32> {
    let mut values = vec![0.0; tensor.shape().len()];
    backend.read(tensor.view(), &mut values).unwrap();
    values
}

pub(crate) fn exact<B: Backend>(backend: &B, values: &[f32]) -> B::Buffer {
    let mut buffer = backend.alloc(values.len(), Storage::Exact).unwrap();
    backend.upload(values, &mut buffer).unwrap();
    buffer
}

pub(crate) fn read_exact<B: Backend>(backend: &B, buffer: &B::Buffer, count: usize) -> Vec<f32> {
    let mut values = vec![0.0; count];
    backend.download(buffer, &mut values).unwrap();
    values
}
