use bregman_base::simd::Level;
use proptest::prelude::*;

use super::super::columns::{Geometry, Plain, TapWindow};
use super::super::reference::{Random, assert_close, product};
use super::*;

const TOLERANCE: f64 = 1e-6;
/// bf16 has 8 significant bits.
const ROUNDED_TOLERANCE: f64 = 1.0 / 256.0;

fn sparse(rows: usize, channels: usize, taps: usize, weights: &[f32]) -> SparseMatrix {
    let mut matrix = SparseMatrix::new(rows, channels, taps);
    matrix.refresh(weights, channels * taps);
    matrix
}

/// The weights a matrix holds, in dense form, read back from each orientation.
pub(super) fn expand(matrix: &SparseMatrix) -> [Vec<f32>; 2] {
    let SparseMatrix { rows, channels, taps, .. } = *matrix;
    let [mut forward, mut backward] = [vec![0.0; rows * channels * taps], vec![0.0; rows * channels * taps]];
    for index in 0..matrix.forward.len() {
        let first_row = matrix.row_blocks.range(index / matrix.channel_blocks.count()).start;
        let first_channel = matrix.channel_blocks.range(index % matrix.channel_blocks.count()).start;
        let entries = |tile: &Tile| -> Vec<(usize, usize, f32)> {
            let of_row = |row: usize| (tile.start[row] as usize..tile.start[row + 1] as usize).map(move |at| (row, at));
            (0..tile.rows())
                .flat_map(of_row)
                .map(|(row, at)| (row, usize::from(tile.column[at]), tile.value[at]))
                .collect()
        };
        for (row, column, value) in entries(&matrix.forward[index]) {
            forward[(first_row + row) * channels * taps + first_channel * taps + column] = value;
        }
        for (channel, column, value) in entries(&matrix.backward[index]) {
            let (row, tap) = (first_row + column / taps, column % taps);
            backward[(row * channels + first_channel + channel) * taps + tap] = value;
        }
    }
    [forward, backward]
}

#[test]
fn products_match_f64_at_every_share_of_zeros_and_odd_sizes() {
    let mut random = Random::new(1);
    for zeros in [0.0, 0.5, 0.9, 0.99, 1.0] {
        for (items, rows, columns, len) in
            [(1, 1, 1, 1), (2, 7, 13, 7), (1, 33, 20, 301), (3, 19, 130, 97), (1, 70, 1500, 17)]
        {
            let weights = random.values(rows * columns, zeros);
            let matrix = sparse(rows, columns, 1, &weights);
            let x = random.values(items * columns * len, 0.0);
            let x = Plain::new(&x, items, columns, len);
            let mut y = vec![f32::NAN; items * rows * len];
            matrix.multiply(&x, SumStart::Zero, &Output::new(&mut y, items, rows, len));
            assert_close(&y, &product(rows, |row, column| weights[row * columns + column], &x), TOLERANCE);

            let dy = random.values(items * rows * len, 0.0);
            let dy = Plain::new(&dy, items, rows, len);
            let mut dx = vec![f32::NAN; items * columns * len];
            matrix.multiply_transposed(&dy, SumStart::Zero, &Output::new(&mut dx, items, columns, len));
            assert_close(&dx, &product(columns, |column, row| weights[row * columns + column], &dy), TOLERANCE);
        }
    }
}

#[test]
fn a_dilated_convolution_and_its_input_gradient_match_the_definition() {
    let mut random = Random::new(2);
    for (taps, dilation, padding, len) in [(3, 2, 2, 301), (5, 1, 2, 7), (3, 4, 4, 1), (3, 1, 0, 50), (5, 3, 1, 40)] {
        let (items, rows, channels) = (2, 9, 12);
        let weights = random.values(rows * channels * taps, 0.8);
        let matrix = sparse(rows, channels, taps, &weights);
        let x = random.values(items * channels * len, 0.0);
        let geometry = Geometry::signal(len, taps, dilation, padding);
        let view = TapWindow::forward(Plain::new(&x, items, channels, len), &geometry);
        let out_len = len + 2 * padding - dilation * (taps - 1);
        let mut y = vec![0.0; items * rows * out_len];
        matrix.multiply(&view, SumStart::Zero, &Output::new(&mut y, items, rows, out_len));

        let dy = random.values(items * rows * out_len, 0.0);
        let back = TapWindow::backward(Plain::new(&dy, items, rows, out_len), &geometry);
        let mut dx = vec![0.0; items * channels * len];
        matrix.multiply_transposed(&back, SumStart::Zero, &Output::new(&mut dx, items, channels, len));

        let (mut exact_y, mut exact_dx) = (vec![(0.0, 0.0); y.len()], vec![(0.0, 0.0); dx.len()]);
        for item in 0..items {
            for (index, &w) in weights.iter().enumerate() {
                let (row, channel, tap) = (index / taps / channels, index / taps % channels, index % taps);
                for t in 0..out_len {
                    let Some(source) = (t + tap * dilation).checked_sub(padding).filter(|&source| source < len) else {
                        continue;
                    };
                    let (at_y, at_x) = ((item * rows + row) * out_len + t, (item * channels + channel) * len + source);
                    let add = |sum: &mut (f64, f64), other: f32| {
                        let term = f64::from(w) * f64::from(other);
                        *sum = (sum.0 + term, sum.1 + term.abs());
                    };
                    add(&mut exact_y[at_y], x[at_x]);
                    add(&mut exact_dx[at_x], dy[at_y]);
                }
            }
        }
        assert_close(&y, &exact_y, TOLERANCE);
        assert_close(&dx, &exact_dx, TOLERANCE);
    }
}

#[test]
fn a_refresh_can_take_some_columns_of_a_wider_matrix() {
    let weights = Random::new(9).values(5 * 11, 0.5);
    let mut matrix = SparseMatrix::new(5, 4, 1);
    matrix.refresh(&weights[3..], 11);
    let exact: Vec<f32> = weights.chunks(11).flat_map(|row| &row[3..7]).copied().collect();
    assert_eq!(expand(&matrix)[0], exact);
}

#[test]
fn a_channels_first_batch_gives_the_same_as_an_items_first_one() {
    let mut random = Random::new(10);
    let (items, rows, columns, len) = (3, 6, 10, 37);
    let matrix = sparse(rows, columns, 1, &random.values(rows * columns, 0.5));
    let x = random.values(columns * items * len, 0.0);
    let [mut split, mut whole] = [vec![0.0; rows * items * len], vec![0.0; rows * items * len]];
    let view = Plain::strided(&x, [items, columns, len], items * len, len);
    matrix.multiply(&view, SumStart::Zero, &Output::strided(&mut split, [items, rows, len], items * len, len));
    let view = Plain::new(&x, 1, columns, items * len);
    matrix.multiply(&view, SumStart::Zero, &Output::new(&mut whole, 1, rows, items * len));
    assert_eq!(split, whole);
}

#[test]
fn strided_views_leave_their_surroundings_alone() {
    let mut random = Random::new(3);
    let (items, rows, columns, len) = (2, 6, 10, 37);
    let weights = random.values(rows * columns, 0.5);
    let matrix = sparse(rows, columns, 1, &weights);
    let x = random.values(5000, 0.0);
    let x = Plain::strided(&x[3..], [items, columns, len], len + 5, 700);
    let mut y = vec![7.0; 1000];
    matrix.multiply(&x, SumStart::Zero, &Output::strided(&mut y[11..], [items, rows, len], len + 9, 400));
    let exact = product(rows, |row, column| weights[row * columns + column], &x);
    let mut ours = Vec::new();
    for item in 0..items {
        for row in 0..rows {
            let at = 11 + item * 400 + row * (len + 9);
            ours.extend_from_slice(&y[at..at + len]);
            y[at..at + len].fill(7.0);
        }
    }
    assert_close(&ours, &exact, TOLERANCE);
    assert!(y.iter().all(|&value| value == 7.0), "something outside the view was written");
}

#[test]
fn bias_and_accumulation_are_added_once_even_across_tiles() {
    let mut random = Random::new(4);
    let (rows, columns, len) = (5, 2 * TILE_COLUMNS + 3, 20);
    for zeros in [0.9, 1.0] {
        let weights = random.values(rows * columns, zeros);
        let matrix = sparse(rows, columns, 1, &weights);
        let (x, bias) = (random.values(columns * len, 0.0), random.values(rows, 0.0));
        let x = Plain::new(&x, 1, columns, len);
        let mut exact = product(rows, |row, column| weights[row * columns + column], &x);
        let mut y = vec![f32::NAN; rows * len];
        matrix.multiply(&x, SumStart::Bias(&bias), &Output::new(&mut y, 1, rows, len));
        for (at, (sum, scale)) in exact.iter_mut().enumerate() {
            *sum += f64::from(bias[at / len]);
            *scale += 1.0;
        }
        assert_close(&y, &exact, TOLERANCE);
        y.fill(2.0);
        matrix.multiply(&x, SumStart::Accumulate, &Output::new(&mut y, 1, rows, len));
        for (at, (sum, scale)) in exact.iter_mut().enumerate() {
            *sum += 2.0 - f64::from(bias[at / len]);
            *scale += 2.0;
        }
        assert_close(&y, &exact, TOLERANCE);
    }
}

#[test]
fn results_are_identical_for_any_number_of_threads() {
    let mut random = Random::new(5);
    let (items, rows, columns, len) = (3, 40, 1100, 301);
    let weights = random.values(rows * columns, 0.9);
    let x = random.values(items * columns * len, 0.0);
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool");
        pool.install(|| {
            let mut y = vec![0.0; items * rows * len];
            let matrix = sparse(rows, columns, 1, &weights);
            matrix.multiply(
                &Plain::new(&x, items, columns, len),
                SumStart::Zero,
                &Output::new(&mut y, items, rows, len),
            );
            y
        })
    };
    let one = run(1);
    for threads in [2, 3, 7] {
        assert!(run(threads) == one, "{threads} threads give other bits than one");
    }
}

#[test]
fn every_instruction_set_gives_the_right_product() {
    let mut random = Random::new(7);
    let (rows, columns, len) = (9, 50, 101);
    let weights = random.values(rows * columns, 0.8);
    let matrix = sparse(rows, columns, 1, &weights);
    let x = random.values(columns * len, 0.0);
    let x = Plain::new(&x, 1, columns, len);
    let exact = product(rows, |row, column| weights[row * columns + column], &x);
    for arch in Level::ALL.iter().filter_map(|level| level.arch()) {
        let mut y = vec![f32::NAN; rows * len];
        matrix.forward(arch, StripFormat::F32, &x, SumStart::Zero, &Output::new(&mut y, 1, rows, len));
        assert_close(&y, &exact, TOLERANCE);
        matrix.forward(arch, StripFormat::Bf16, &x, SumStart::Zero, &Output::new(&mut y, 1, rows, len));
        assert_close(&y, &exact, ROUNDED_TOLERANCE);
    }
}

#[test]
fn rounded_products_are_exact_on_values_that_need_no_rounding() {
    let mut random = Random::new(8);
    for (items, rows, columns, len) in
        [(1, 1, 1, 1), (2, 7, 13, 7), (1, 33, 20, 301), (3, 19, 130, 97), (1, 70, 1500, 33)]
    {
        let weights = random.values(rows * columns, 0.9);
        let matrix = sparse(rows, columns, 1, &weights);
        // quarters up to 16 are bf16 numbers
        let mut quarters = |len: usize| {
            random.values(len, 0.0).into_iter().map(|value| (value * 64.0).round() / 4.0).collect::<Vec<_>>()
        };
        let (x, dy, bias) = (quarters(items * columns * len), quarters(items * rows * len), quarters(rows));
        let (x, dy) = (Plain::new(&x, items, columns, len), Plain::new(&dy, items, rows, len));
        for start in [SumStart::Zero, SumStart::Bias(&bias), SumStart::Accumulate] {
            let [mut plain, mut rounded] = [vec![3.0; items * rows * len], vec![3.0; items * rows * len]];
            matrix.multiply(&x, start, &Output::new(&mut plain, items, rows, len));
            matrix.multiply_rounded(&x, start, &Output::new(&mut rounded, items, rows, len));
            assert_eq!(plain, rounded);
        }
        let [mut plain, mut rounded] = [vec![0.0; items * columns * len], vec![0.0; items * columns * len]];
        matrix.multiply_transposed(&dy, SumStart::Zero, &Output::new(&mut plain, items, columns, len));
        matrix.multiply_transposed_rounded(&dy, SumStart::Zero, &Output::new(&mut rounded, items, columns, len));
        assert_eq!(plain, rounded);
    }
}

#[test]
fn an_infinite_activation_stays_in_its_own_rows() {
    // 0 · ∞ would be NaN: a zero weight must not read the activation at all.
    let matrix = sparse(2, 2, 1, &[1.0, 0.0, 0.0, 1.0]);
    let mut y = [0.0; 2];
    matrix.multiply(&Plain::new(&[f32::INFINITY, 3.0], 1, 2, 1), SumStart::Zero, &Output::new(&mut y, 1, 2, 1));
    assert_eq!(y, [f32::INFINITY, 3.0]);
}

#[test]
fn a_refresh_with_as_many_nonzeros_allocates_nothing() {
    let (rows, columns) = (64, 1300);
    let mut random = Random::new(6);
    let mut matrix = sparse(rows, columns, 1, &random.values(rows * columns, 0.9));
    let addresses = |matrix: &SparseMatrix| -> Vec<_> {
        matrix
            .forward
            .iter()
            .chain(&matrix.backward)
            .map(|tile| (tile.value.as_ptr(), tile.column.as_ptr(), tile.start.as_ptr()))
            .collect()
    };
    let before = addresses(&matrix);
    for _ in 0..5 {
        matrix.refresh(&random.values(rows * columns, 0.92), columns);
        assert!(addresses(&matrix) == before);
    }
}

#[test]
fn negative_zero_is_a_zero_and_nan_is_kept() {
    let matrix = sparse(1, 4, 1, &[-0.0, 0.0, f32::NAN, 1.0]);
    assert_eq!(matrix.nnz(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_refreshed_matrix_holds_exactly_the_weights_in_both_orientations(
        rows in 1usize..60,
        channels in 1usize..400,
        taps in 1usize..10,
        zeros in 0f32..1.0,
        seeds in prop::array::uniform2(any::<u64>()),
    ) {
        let mut matrix = SparseMatrix::new(rows, channels, taps);
        for seed in seeds {
            let weights = Random::new(seed).values(rows * channels * taps, zeros);
            matrix.refresh(&weights, channels * taps);
            let [forward, backward] = expand(&matrix);
            prop_assert_eq!(matrix.nnz(), weights.iter().filter(|&&w| w != 0.0).count());
            prop_assert_eq!(&forward, &weights);
            prop_assert_eq!(&backward, &weights);
        }
    }
}
