//! Multiplying with compressed weights gives what multiplying with dense ones gives, whatever the share of zeros.

use bregman_tensor::{Backend, Block, Conv, Copies, Cpu, Shape, Start, Storage, Tensor, Weight, WeightPolicy};
use proptest::prelude::*;

/// Forward output and input gradient of one convolution, for the same data, multiplied one way.
fn products(
    policy: WeightPolicy,
    conv: Conv,
    input: Shape,
    rows: usize,
    x: &[f32],
    dy: &[f32],
    weight: &[f32],
) -> [Vec<f32>; 2] {
    let backend = Cpu::new().with_weights(policy);
    let tensor = |shape: Shape, values: &[f32]| {
        let mut tensor = Tensor::empty(&backend).unwrap();
        tensor.resize(&backend, shape).unwrap();
        backend.write(values, tensor.view_mut()).unwrap();
        tensor
    };
    let output = conv.output(input, rows);
    let columns = input.channels * conv.taps();
    let block = Block { rows, stride: columns, first: 0, columns, taps: conv.taps() };
    let mut value = backend.alloc(weight.len(), Storage::Exact).unwrap();
    backend.upload(weight, &mut value).unwrap();
    let mut copies = Copies::default();
    backend.refresh(&value, block, &mut copies).unwrap();
    let weight = Weight { value: &value, block, copies: &copies };
    let (mut y, mut dx) = (tensor(output, &vec![f32::NAN; output.len()]), tensor(input, &vec![f32::NAN; input.len()]));
    backend.conv_forward(&conv, tensor(input, x).view(), weight, Start::Zero, y.view_mut()).unwrap();
    backend
        .conv_backward_input(&conv, weight, tensor(output, &dy[..output.len()]).view(), false, dx.view_mut())
        .unwrap();
    [y, dx].map(|tensor| {
        let mut values = vec![0.0; tensor.shape().len()];
        backend.read(tensor.view(), &mut values).unwrap();
        values
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn sparse_and_dense_products_agree_to_1e_5(
        channels in 1usize..40, rows in 1usize..40, batch in 1usize..4, height in 1usize..7, width in 1usize..70,
        zeros in prop::sample::select(vec![0u32, 50, 90, 99, 100]), kind in 0usize..5, seed in 0u64..1000,
    ) {
        let conv = [Conv::POINTWISE, Conv::same_1d(3, 2), Conv::same_1d(5, 1), Conv::square(3, 1), Conv::square(3, 2)][kind];
        let input = Shape { channels, batch, height, width };
        let mut state = seed;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        let x: Vec<f32> = (0..input.len()).map(|_| draw()).collect();
        let dy: Vec<f32> = (0..input.len() / channels * rows).map(|_| draw()).collect();
        let chance = zeros as f32 / 50.0 - 1.0;
        let weight: Vec<f32> = (0..rows * channels * conv.taps()).map(|_| if draw() < chance { 0.0 } else { draw() }).collect();
        let dense = products(WeightPolicy::Dense, conv, input, rows, &x, &dy, &weight);
        let sparse = products(WeightPolicy::Sparse, conv, input, rows, &x, &dy, &weight);
        for (dense, sparse) in dense.iter().zip(&sparse) {
            let scale = dense.iter().fold(0.0f32, |scale, value| scale.max(value.abs()));
            let error = dense.iter().zip(sparse).fold(0.0f32, |error, (a, b)| error.max((a - b).abs()));
            prop_assert!(error <= 1e-5 * scale, "error {error:e} at scale {scale:e}");
            prop_assert!(zeros < 100 || sparse.iter().all(|&value| value == 0.0));
        }
    }
}
