use proptest::prelude::*;

use super::super::columns::{Geometry, Plain, TapWindow};
use super::super::reference::{Random, assert_close, product};
use super::*;

/// Products of bf16 operands are exact in f32; what remains is the rounding of sums.
const TOLERANCE: f64 = 1e-6;

/// Values that are bf16 already, so that only the sums round.
fn rounded(mut values: Vec<f32>) -> Vec<f32> {
    let mut narrow = vec![0; values.len()];
    to_bf16(&values, &mut narrow);
    to_f32(&narrow, &mut values);
    values
}

/// One matrix of another layout: `X[k, t]` with items side by side, as the inner dimension of a weight gradient.
fn side_by_side(x: &impl Columns) -> Vec<f32> {
    let mut all = vec![0.0; x.rows() * x.items() * x.len()];
    for (at, piece) in all.chunks_exact_mut(x.len()).enumerate() {
        x.fill(at % x.items(), at / x.items(), 0, piece);
    }
    all
}

#[test]
fn every_kernel_gives_the_three_products_on_odd_sizes() {
    let mut random = Random::new(1);
    for kernel in Kernel::all_here() {
        for (items, rows, columns, len) in
            [(1, 1, 1, 1), (2, 7, 13, 7), (1, 33, 20, 301), (3, 50, 65, 97), (1, 17, 1100, 100)]
        {
            let weights = rounded(random.values(rows * columns, 0.2));
            let (x, dy) =
                (rounded(random.values(items * columns * len, 0.0)), rounded(random.values(items * rows * len, 0.0)));
            let (x, dy) = (Plain::new(&x, items, columns, len), Plain::new(&dy, items, rows, len));
            let mut a = Packed::default();

            a.pack(&weights, rows, columns, columns);
            let mut y = vec![f32::NAN; items * rows * len];
            super::product::product(kernel, &a, &Straight(&x), SumStart::Zero, &Output::new(&mut y, items, rows, len));
            assert_close(&y, &product(rows, |row, column| weights[row * columns + column], &x), TOLERANCE);

            a.pack_transposed(&weights, rows, columns, 1, columns);
            let mut dx = vec![f32::NAN; items * columns * len];
            super::product::product(
                kernel,
                &a,
                &Straight(&dy),
                SumStart::Zero,
                &Output::new(&mut dx, items, columns, len),
            );
            assert_close(&dx, &product(columns, |column, row| weights[row * columns + column], &dy), TOLERANCE);

            a.pack_batch(&dy);
            let mut dw = vec![f32::NAN; rows * columns];
            super::product::product(
                kernel,
                &a,
                &Transposed(&x),
                SumStart::Zero,
                &Output::new(&mut dw, 1, rows, columns),
            );
            let (wide_x, wide_dy, inner) = (side_by_side(&x), side_by_side(&dy), items * len);
            let x_transposed: Vec<f32> =
                (0..inner * columns).map(|at| wide_x[at % columns * inner + at / columns]).collect();
            let exact = product(rows, |row, k| wide_dy[row * inner + k], &Plain::new(&x_transposed, 1, inner, columns));
            assert_close(&dw, &exact, TOLERANCE);
        }
    }
}

#[test]
fn convolutions_agree_with_their_virtual_operand() {
    let mut random = Random::new(2);
    let (items, rows, channels) = (2, 20, 9);
    // 1-D with dilation, forward
    let (taps, len) = (3, 61);
    let weights = rounded(random.values(rows * channels * taps, 0.0));
    let x = rounded(random.values(items * channels * len, 0.0));
    let geometry = Geometry::signal(len, taps, 2, 2);
    let view = TapWindow::forward(Plain::new(&x, items, channels, len), &geometry);
    let mut a = Packed::default();
    a.pack(&weights, rows, channels * taps, channels * taps);
    let mut y = vec![0.0; items * rows * len];
    multiply(&a, &view, SumStart::Zero, &Output::new(&mut y, items, rows, len));
    assert_close(&y, &product(rows, |row, k| weights[row * channels * taps + k], &view), TOLERANCE);
    // its input gradient: A[c, (o, τ)] = W[o, c, τ]
    let dy = rounded(random.values(items * rows * len, 0.0));
    let view = TapWindow::backward(Plain::new(&dy, items, rows, len), &geometry);
    a.pack_transposed(&weights, rows, channels, taps, channels * taps);
    let mut dx = vec![0.0; items * channels * len];
    multiply(&a, &view, SumStart::Zero, &Output::new(&mut dx, items, channels, len));
    let transposed = |channel: usize, k: usize| weights[(k / taps * channels + channel) * taps + k % taps];
    assert_close(&dx, &product(channels, transposed, &view), TOLERANCE);
    // 2-D with stride, weight gradient
    let geometry = Geometry { input: [7, 9], kernel: [3, 3], stride: [2, 2], padding: [1, 1], dilation: [1, 1] };
    let out: usize = geometry.output().iter().product();
    let (x, dy) = (rounded(random.values(items * channels * 63, 0.0)), rounded(random.values(items * rows * out, 0.0)));
    let (view, dy) =
        (TapWindow::forward(Plain::new(&x, items, channels, 63), &geometry), Plain::new(&dy, items, rows, out));
    a.pack_batch(&dy);
    let mut dw = vec![0.0; rows * channels * 9];
    gradient(&a, &view, SumStart::Zero, &Output::new(&mut dw, 1, rows, channels * 9));
    let (wide_x, wide_dy, inner, columns) = (side_by_side(&view), side_by_side(&dy), items * out, channels * 9);
    let x_transposed: Vec<f32> = (0..inner * columns).map(|at| wide_x[at % columns * inner + at / columns]).collect();
    let exact = product(rows, |row, k| wide_dy[row * inner + k], &Plain::new(&x_transposed, 1, inner, columns));
    assert_close(&dw, &exact, TOLERANCE);
}

#[test]
fn rounding_the_operands_costs_at_most_two_to_the_minus_eight_each() {
    let mut random = Random::new(3);
    let (rows, columns, len) = (30, 200, 50);
    let (weights, x) = (random.values(rows * columns, 0.0), random.values(columns * len, 0.0));
    let x = Plain::new(&x, 1, columns, len);
    let mut a = Packed::default();
    a.pack(&weights, rows, columns, columns);
    let mut y = vec![0.0; rows * len];
    multiply(&a, &x, SumStart::Zero, &Output::new(&mut y, 1, rows, len));
    let exact = product(rows, |row, column| weights[row * columns + column], &x);
    assert_close(&y, &exact, 2.0 * 2f64.powi(-8));
    // and errors average out: the typical one is far smaller, or something is truncated instead of rounded
    let mean =
        y.iter().zip(&exact).map(|(&y, &(value, scale))| (f64::from(y) - value) / scale).sum::<f64>() / y.len() as f64;
    assert!(mean.abs() < 1e-4, "mean error {mean:e}");
}

#[test]
fn strided_results_start_from_bias_or_what_is_there_and_touch_nothing_else() {
    let mut random = Random::new(4);
    let (items, rows, columns, len) = (2, 18, 700, 37);
    let weights = rounded(random.values(rows * columns, 0.0));
    let bias = rounded(random.values(rows, 0.0));
    let x = rounded(random.values(items * columns * (len + 3), 0.0));
    let x = Plain::strided(&x, [items, columns, len], items * (len + 3), len + 3);
    let mut a = Packed::default();
    a.pack(&weights, rows, columns, columns);
    for kernel in Kernel::all_here() {
        for start in [SumStart::Bias(&bias), SumStart::Accumulate] {
            let mut y = vec![7.0; 4000];
            let at = |item: usize, row: usize| 5 + item * 1500 + row * (len + 4);
            super::product::product(
                kernel,
                &a,
                &Straight(&x),
                start,
                &Output::strided(&mut y[5..], [items, rows, len], len + 4, 1500),
            );
            let mut exact = product(rows, |row, column| weights[row * columns + column], &x);
            let mut ours = Vec::new();
            for (line, exact) in exact.chunks_exact_mut(len).enumerate() {
                let (item, row) = (line / rows, line % rows);
                let begin = if start == SumStart::Accumulate { 7.0 } else { bias[row] };
                exact.iter_mut().for_each(|(sum, scale)| (*sum, *scale) = (*sum + f64::from(begin), *scale + 7.0));
                let piece = &mut y[at(item, row)..][..len];
                ours.extend_from_slice(piece);
                piece.fill(7.0);
            }
            assert_close(&ours, &exact, TOLERANCE);
            assert!(y.iter().all(|&value| value == 7.0), "something outside the view was written");
        }
    }
}

#[test]
fn results_are_identical_for_any_number_of_threads() {
    let mut random = Random::new(5);
    let (items, rows, columns, len) = (2, 70, 600, 130);
    let (weights, x) = (random.values(rows * columns, 0.0), random.values(items * columns * len, 0.0));
    let x = Plain::new(&x, items, columns, len);
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool");
        pool.install(|| {
            let mut a = Packed::default();
            a.pack(&weights, rows, columns, columns);
            let mut y = vec![0.0; items * rows * len];
            multiply(&a, &x, SumStart::Zero, &Output::new(&mut y, items, rows, len));
            let dy = Plain::new(&y, items, rows, len);
            a.pack_batch(&dy);
            let mut dw = vec![0.0; rows * columns];
            gradient(&a, &x, SumStart::Zero, &Output::new(&mut dw, 1, rows, columns));
            (y, dw)
        })
    };
    let one = run(1);
    for threads in [2, 3, 8] {
        assert!(run(threads) == one, "{threads} threads give other bits than one");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn phase_by_phase_gradients_agree_with_the_virtual_operand(
        items in 1usize..3,
        rows in 1usize..20,
        channels in 1usize..20,
        input in prop::array::uniform2(1usize..24),
        kernel in prop::array::uniform2(1usize..4),
        stride in prop::array::uniform2(1usize..4),
        padding in prop::array::uniform2(0usize..3),
        dilation in prop::array::uniform2(1usize..3),
        add in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let geometry = Geometry { input, kernel, stride, padding, dilation };
        prop_assume!((0..2).all(|axis| input[axis] + 2 * padding[axis] > dilation[axis] * (kernel[axis] - 1)));
        let mut random = Random::new(seed);
        let (taps, outer, inner) = (kernel[0] * kernel[1], geometry.output().iter().product(), input[0] * input[1]);
        let weights = rounded(random.values(rows * channels * taps, 0.0));
        let dy = rounded(random.values(items * rows * outer, 0.0));
        let dy = Plain::new(&dy, items, rows, outer);
        let before = rounded(random.values(items * channels * inner, 0.0));
        let mut dx = before.clone();
        let (start, output) =
            (if add { SumStart::Accumulate } else { SumStart::Zero }, Output::new(&mut dx, items, channels, inner));
        strided_input_gradient(
            &mut Packed::default(),
            &weights,
            [rows, channels],
            channels * taps,
            &geometry,
            &dy,
            start,
            &output,
        );
        let transposed = |channel: usize, k: usize| weights[(k / taps * channels + channel) * taps + k % taps];
        let mut exact = product(channels, transposed, &TapWindow::backward(dy, &geometry));
        for ((sum, scale), &before) in exact.iter_mut().zip(&before).filter(|_| add) {
            (*sum, *scale) = (*sum + f64::from(before), *scale + f64::from(before.abs()));
        }
        assert_close(&dx, &exact, TOLERANCE);
    }

    #[test]
    fn the_emulated_tile_registers_agree_with_the_portable_kernel(
        rows in 1usize..70, columns in 1usize..600, len in 1usize..120, seed in any::<u64>(),
    ) {
        let mut random = Random::new(seed);
        let (weights, x) = (random.values(rows * columns, 0.5), random.values(columns * len, 0.0));
        let x = Plain::new(&x, 1, columns, len);
        let mut a = Packed::default();
        a.pack(&weights, rows, columns, columns);
        let run = |kernel| {
            let mut y = vec![f32::NAN; rows * len];
            super::product::product(kernel, &a, &Straight(&x), SumStart::Zero, &Output::new(&mut y, 1, rows, len));
            y
        };
        let (emulated, portable) = (run(Kernel::Emulated), run(Kernel::Portable));
        for (a, b) in emulated.iter().zip(&portable) {
            prop_assert!((a - b).abs() <= 1e-5 * columns as f32, "{a} against {b}");
        }
    }
}
