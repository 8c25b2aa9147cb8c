//! What must hold of every backend besides its numbers, and that compressed weights multiply as dense ones do.

use bregman_tensor::{
    Backend, Block, Conv, Convolution, Copies, Cpu, DeviceMemory, OutputStart, Shape, Tensor, Weight, WeightPolicy,
};
use proptest::prelude::*;

use crate::harness::{Random, exact, poisoned, read_exact, tensor, values};

/// All of them.
pub(crate) fn all<B: Backend>(backend: &B) {
    column_blocks(backend);
    clipping(backend);
    non_finite_values(backend);
    lengths(backend);
}

/// A host slice of the wrong size is an error, and an empty one is not.
fn lengths<B: Backend>(backend: &B) {
    let shape = Shape::signal(3, 2, 5);
    let mut x = poisoned(backend, shape);
    assert!(backend.write(&[0.0; 29], x.view_mut()).is_err(), "write");
    assert!(backend.write_frames(&[0.0; 31], x.view_mut()).is_err(), "write frames");
    assert!(backend.read(x.view(), &mut [0.0; 31]).is_err(), "read");
    let mut buffer = exact(backend, &[1.0, 2.0, 3.0]);
    assert!(backend.upload(&[0.0; 4], &mut buffer).is_err(), "upload");
    assert!(backend.download(&buffer, &mut [0.0; 4]).is_err(), "download");
    backend.upload(&[], &mut buffer).unwrap();
    backend.upload(&[7.0], &mut buffer).unwrap();
    assert_eq!(read_exact(backend, &buffer, 3), [7.0, 2.0, 3.0], "the first places");
    assert_eq!(read_exact(backend, &exact(backend, &[]), 0), [] as [f32; 0], "nothing");
}

/// Column blocks of a weight multiply and differentiate as the concatenated input.
fn column_blocks<B: Backend>(backend: &B) {
    let mut random = Random(3);
    let (batch, width, outputs, sizes) = (2, 13, 6, [3, 5]);
    let total: usize = sizes.iter().sum();
    let weight = random.values(outputs * total);
    let value = exact(backend, &weight);
    let parts: Vec<Tensor<B>> = sizes
        .iter()
        .map(|&size| {
            let shape = Shape::signal(size, batch, width);
            tensor(backend, shape, &random.values(shape.len()))
        })
        .collect();
    let mut joined = poisoned(backend, Shape::signal(total, batch, width));
    backend.copy(parts[0].view(), joined.channels_mut(0..sizes[0])).unwrap();
    backend.copy(parts[1].view(), joined.channels_mut(sizes[0]..total)).unwrap();

    let block = |first: usize, columns: usize| Block { rows: outputs, stride: total, first, columns, taps: 1 };
    let blocks = [block(0, sizes[0]), block(sizes[0], sizes[1]), block(0, total)];
    let copies = blocks.map(|block| {
        let mut copies = B::Copies::default();
        backend.refresh(&value, None, block, &mut copies).unwrap();
        copies
    });
    let weight = |i: usize| Weight { value: &value, mask: None, block: blocks[i], copies: &copies[i] };
    let shape = Shape::signal(outputs, batch, width);
    let (mut whole, mut sum) = (poisoned(backend, shape), poisoned(backend, shape));
    backend.conv_forward(&Conv::POINTWISE, joined.view(), weight(2), OutputStart::Zero, whole.view_mut()).unwrap();
    backend.conv_forward(&Conv::POINTWISE, parts[0].view(), weight(0), OutputStart::Zero, sum.view_mut()).unwrap();
    backend.conv_forward(&Conv::POINTWISE, parts[1].view(), weight(1), OutputStart::Keep, sum.view_mut()).unwrap();
    let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
    assert!(close(&values(backend, &whole), &values(backend, &sum)));

    let (mut dwhole, mut dparts) =
        (exact(backend, &vec![f32::NAN; outputs * total]), exact(backend, &vec![f32::NAN; outputs * total]));
    backend.conv_backward_weight(&Conv::POINTWISE, joined.view(), whole.view(), blocks[2], &mut dwhole).unwrap();
    for i in 0..2 {
        backend.conv_backward_weight(&Conv::POINTWISE, parts[i].view(), whole.view(), blocks[i], &mut dparts).unwrap();
    }
    let [dwhole, dparts] = [dwhole, dparts].map(|dw| read_exact(backend, &dw, outputs * total));
    assert!(close(&dwhole, &dparts));
}

/// Clipping scales to the limit and leaves smaller gradients alone.
fn clipping<B: Backend>(backend: &B) {
    let (mut a, mut b) = (exact(backend, &vec![3.0; 50_000]), exact(backend, &vec![4.0; 50_000]));
    let norm = backend.clip(&mut [&mut a, &mut b], 1.0).unwrap();
    assert!((norm - 5.0 * 50_000f32.sqrt()).abs() < 1e-2, "{norm}");
    let after = backend.clip(&mut [&mut a, &mut b], 10.0).unwrap();
    let [a, b] = [a, b].map(|gradient| read_exact(backend, &gradient, 50_000));
    assert!((after - 1.0).abs() < 1e-5 && (b[0] / a[0] - 4.0 / 3.0).abs() < 1e-5, "{after}");
}

/// Values that are not finite are found wherever they are.
fn non_finite_values<B: Backend>(backend: &B) {
    let shape = Shape::signal(3, 2, 10_001);
    for (at, value) in [(0, f32::NAN), (60_005, f32::INFINITY), (30_000, f32::NEG_INFINITY)] {
        let mut content = vec![1.0; shape.len()];
        assert!(backend.all_finite(tensor(backend, shape, &content).view()).unwrap());
        content[at] = value;
        assert!(!backend.all_finite(tensor(backend, shape, &content).view()).unwrap(), "{value} at {at}");
    }
}

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
    let output = conv.output(input, rows);
    let columns = input.channels * conv.taps();
    let block = Block { rows, stride: columns, first: 0, columns, taps: conv.taps() };
    let value = exact(&backend, weight);
    let mut copies = Copies::default();
    backend.refresh(&value, None, block, &mut copies).unwrap();
    let weight = Weight { value: &value, mask: None, block, copies: &copies };
    let (mut y, mut dx) = (poisoned(&backend, output), poisoned(&backend, input));
    backend.conv_forward(&conv, tensor(&backend, input, x).view(), weight, OutputStart::Zero, y.view_mut()).unwrap();
    backend
        .conv_backward_input(&conv, weight, tensor(&backend, output, &dy[..output.len()]).view(), false, dx.view_mut())
        .unwrap();
    [y, dx].map(|tensor| values(&backend, &tensor))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn sparse_and_dense_products_agree_to_1e_5(
        channels in 1usize..40, rows in 1usize..40, batch in 1usize..4, height in 1usize..7, width in 1usize..70,
        zeros in prop::sample::select(vec![0u32, 50, 90, 99, 100]), kind in 0usize..5, seed in 0u64..1000,
    ) {
        let signals = [Conv::POINTWISE, Conv::same_1d(3, 2), Conv::same_1d(5, 1)];
        let conv = signals.into_iter().chain([Conv::square(3, 1), Conv::square(3, 2)]).nth(kind).unwrap();
        let input = Shape { channels, batch, height, width };
        let mut random = Random(seed);
        let (x, dy) = (random.values(input.len()), random.values(input.len() / channels * rows));
        let chance = zeros as f32 / 50.0 - 1.0;
        let count = rows * channels * conv.taps();
        let weight: Vec<f32> = random.values(2 * count).chunks_exact(2)
            .map(|pair| if pair[0] < chance { 0.0 } else { pair[1] })
            .collect();
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
