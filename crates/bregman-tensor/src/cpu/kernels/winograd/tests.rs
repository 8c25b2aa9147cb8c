use proptest::prelude::*;

use super::super::bf16::Kernel;
use super::super::columns::{Columns, Plain, TapWindow};
use super::super::cost::Dense;
use super::super::output::{Output, SumStart};
use super::super::reference::{Random, product};
use super::*;

/// f32, and bf16 with every kernel of this CPU, with the typical error that the rounding of one product may cause.
fn ways() -> Vec<(Dense, f64)> {
    let bf16 = Kernel::all_here().into_iter().map(|kernel| (Dense::Bf16(kernel), 2f64.powi(-9)));
    std::iter::once((Dense::F32, 5e-7)).chain(bf16).collect()
}

/// Rounding errors of products of values up to 1 grow with the root of their number. They do not vanish with the
/// result, as values that only meet in the transformed domain leave theirs behind: so no comparison with the magnitudes
/// of the terms.
#[track_caller]
fn assert_near(ours: &[f32], exact: &[(f64, f64)], inner: usize, tolerance: f64) {
    assert_eq!(ours.len(), exact.len());
    let errors = || ours.iter().zip(exact).map(|(&our, exact)| f64::from(our) - exact.0);
    let scale = tolerance * (inner as f64).sqrt();
    for (at, error) in errors().enumerate() {
        assert!(error.abs() <= 6.0 * scale, "element {at}: {} instead of {}", ours[at], exact[at].0);
    }
    let typical = (errors().map(|error| error * error).sum::<f64>() / ours.len() as f64).sqrt();
    assert!(ours.len() < 100 || typical <= scale, "typical error {typical:e} over {scale:e}");
}

fn geometry(input: [usize; 2], padding: [usize; 2]) -> Geometry {
    Geometry { input, kernel: [3, 3], stride: [1, 1], padding, dilation: [1, 1] }
}

/// dW[row, k] = Σ dY[row, p] · X̃[k, p] over the positions p of all items, with the scale of rounding errors.
fn plain_gradient(dy: &Plain, x: &impl Columns) -> Vec<(f64, f64)> {
    let side_by_side = |x: &dyn Fn(usize, usize, &mut [f32]), rows: usize, items: usize, len: usize| {
        let mut all = vec![0.0; rows * items * len];
        all.chunks_exact_mut(len).enumerate().for_each(|(at, piece)| x(at % items, at / items, piece));
        all
    };
    let inner = x.items() * x.len();
    let wide_x = side_by_side(&|item, row, out| x.fill(item, row, 0, out), x.rows(), x.items(), x.len());
    let wide_dy = side_by_side(&|item, row, out| dy.fill(item, row, 0, out), dy.rows(), dy.items(), dy.len());
    let columns = x.rows();
    let transposed: Vec<f32> = (0..inner * columns).map(|at| wide_x[at % columns * inner + at / columns]).collect();
    product(dy.rows(), |row, k| wide_dy[row * inner + k], &Plain::new(&transposed, 1, inner, columns))
}

/// What the operands of a check consist of.
#[derive(Clone, Copy, PartialEq)]
enum Numbers {
    /// Real numbers: results are rounded.
    Real,
    /// Small integers, weights multiples of 4: bf16 numbers in the transformed domain too, with sums that f32 holds
    /// exactly.
    Whole,
}

impl Numbers {
    fn draw(self, random: &mut Random, len: usize, [limit, step]: [f32; 2]) -> Vec<f32> {
        match self {
            Self::Real => random.values(len, 0.1),
            Self::Whole => {
                (0..len).map(|_| ((2.0 * limit + 1.0) * random.unit()).floor() * step - limit * step).collect()
            }
        }
    }

    #[track_caller]
    fn assert_right(self, ours: &[f32], exact: &[(f64, f64)], inner: usize, tolerance: f64) {
        match self {
            Self::Real => assert_near(ours, exact, inner, tolerance),
            Self::Whole => {
                assert_eq!(ours.len(), exact.len());
                ours.iter()
                    .zip(exact)
                    .enumerate()
                    .for_each(|(at, (&our, exact))| assert_eq!(f64::from(our), exact.0, "element {at}"));
            }
        }
    }
}

/// All three products of one convolution, each way, against the plain sums.
fn check(numbers: Numbers, items: usize, rows: usize, channels: usize, geometry: &Geometry, seed: u64) {
    let mut random = Random::new(seed);
    let [inner, outer] = [geometry.input, geometry.output()].map(|[height, width]| height * width);
    let weights = numbers.draw(&mut random, rows * channels * 9, [3.0, 4.0]);
    let [x, dy] = [channels * inner, rows * outer].map(|len| numbers.draw(&mut random, items * len, [8.0, 1.0]));
    let (x, dy) = (Plain::new(&x, items, channels, inner), Plain::new(&dy, items, rows, outer));
    let window = TapWindow::forward(x, geometry);
    let forward = product(rows, |row, k| weights[row * channels * 9 + k], &window);
    let transposed = |channel: usize, k: usize| weights[(k / 9 * channels + channel) * 9 + k % 9];
    let backward = product(channels, transposed, &TapWindow::backward(dy, geometry));
    let gradients = plain_gradient(&dy, &window);
    for (dense, tolerance) in ways() {
        let mut filters = Filters::default();
        filters.pack(dense, &weights, rows, channels, channels * 9);
        let mut y = vec![f32::NAN; items * rows * outer];
        multiply(&filters, geometry, &x, SumStart::Zero, &Output::new(&mut y, items, rows, outer));
        numbers.assert_right(&y, &forward, 9 * channels, tolerance);

        let bias = random.values(rows, 0.0);
        let mut biased = vec![f32::NAN; y.len()];
        multiply(&filters, geometry, &x, SumStart::Bias(&bias), &Output::new(&mut biased, items, rows, outer));
        let mut twice = y.clone();
        multiply(&filters, geometry, &x, SumStart::Accumulate, &Output::new(&mut twice, items, rows, outer));
        for (at, &y) in y.iter().enumerate() {
            assert_eq!((biased[at], twice[at]), (y + bias[at / outer % rows], y + y), "the starts differ");
        }

        filters.pack_transposed(dense, &weights, rows, channels, channels * 9);
        let adjoint =
            Geometry { input: geometry.output(), padding: geometry.padding.map(|padding| 2 - padding), ..*geometry };
        let mut dx = vec![f32::NAN; items * channels * inner];
        multiply(&filters, &adjoint, &dy, SumStart::Zero, &Output::new(&mut dx, items, channels, inner));
        numbers.assert_right(&dx, &backward, 9 * rows, tolerance);

        let mut dw = vec![f32::NAN; rows * channels * 9];
        gradient(dense, geometry, &x, &dy, &mut Workspace::default(), &Output::new(&mut dw, 1, rows, channels * 9));
        numbers.assert_right(&dw, &gradients, 4 * tiling::Tiling::new(geometry, items).count(), tolerance);
    }
}

#[test]
fn all_three_products_match_the_plain_sums_on_odd_sizes() {
    for (items, rows, channels, input, padding) in [
        (1, 1, 1, [1, 1], [1, 1]),
        (2, 7, 13, [5, 7], [1, 1]),
        (1, 33, 20, [1, 301], [1, 1]),
        (3, 50, 65, [4, 40], [1, 1]),
        (1, 140, 130, [10, 38], [1, 1]),
        (2, 17, 40, [6, 33], [0, 2]),
        (2, 20, 24, [3, 3], [0, 0]),
        (1, 16, 32, [61, 75], [2, 1]),
    ] {
        check(Numbers::Real, items, rows, channels, &geometry(input, padding), 1);
        check(Numbers::Whole, items, rows, channels, &geometry(input, padding), 2);
    }
}

#[test]
fn results_are_identical_for_any_number_of_threads() {
    let mut random = Random::new(5);
    let geometry = geometry([21, 50], [1, 1]);
    let (items, rows, channels, len) = (2, 40, 70, 21 * 50);
    let weights = random.values(rows * channels * 9, 0.0);
    let (x, dy) = (random.values(items * channels * len, 0.0), random.values(items * rows * len, 0.0));
    let (x, dy) = (Plain::new(&x, items, channels, len), Plain::new(&dy, items, rows, len));
    for (dense, _) in ways() {
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool");
            pool.install(|| {
                let mut filters = Filters::default();
                filters.pack(dense, &weights, rows, channels, channels * 9);
                let (mut y, mut dw) = (vec![0.0; items * rows * len], vec![0.0; weights.len()]);
                multiply(&filters, &geometry, &x, SumStart::Zero, &Output::new(&mut y, items, rows, len));
                gradient(
                    dense,
                    &geometry,
                    &x,
                    &dy,
                    &mut Workspace::default(),
                    &Output::new(&mut dw, 1, rows, channels * 9),
                );
                (y, dw)
            })
        };
        let one = run(1);
        assert!(
            [2, 3].into_iter().all(|threads| run(threads) == one),
            "{dense:?}: other bits on other numbers of threads"
        );
    }
}

#[test]
fn memory_used_before_for_something_else_leaves_no_trace() {
    // NaN in every buffer that is reused: vectors run over the ends of strips and lines
    let geometry = geometry([7, 19], [1, 1]);
    let (rows, channels, len) = (17, 21, 7 * 19);
    let mut random = Random::new(6);
    let weights = random.values(rows * channels * 9, 0.0);
    let (x, dy) = (random.values(channels * len, 0.0), random.values(rows * len, 0.0));
    for (dense, _) in ways() {
        let mut workspace = Workspace::default();
        let mut run = |x: &[f32], dy: &[f32]| {
            let mut filters = Filters::default();
            filters.pack(dense, &weights, rows, channels, channels * 9);
            let (mut y, mut dw) = (vec![0.0; rows * len], vec![0.0; weights.len()]);
            let (x, dy) = (Plain::new(x, 1, channels, len), Plain::new(dy, 1, rows, len));
            multiply(&filters, &geometry, &x, SumStart::Zero, &Output::new(&mut y, 1, rows, len));
            gradient(dense, &geometry, &x, &dy, &mut workspace, &Output::new(&mut dw, 1, rows, channels * 9));
            (y, dw)
        };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread pool");
        pool.install(|| {
            let clean = run(&x, &dy);
            let (y, dw) = run(&vec![f32::NAN; x.len()], &vec![f32::NAN; dy.len()]);
            assert!(y.iter().chain(&dw).all(|value| value.is_nan()), "{dense:?}: NaN must stay visible");
            assert!(run(&x, &dy) == clean, "{dense:?}: what was there before shows");
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn all_three_products_are_exact_where_nothing_rounds(
        items in 1usize..3, rows in 1usize..40, channels in 1usize..40, height in 1usize..6, width in 1usize..41,
        padding in prop::array::uniform2(0usize..3), seed in any::<u64>(),
    ) {
        let input = [height, width];
        prop_assume!((0..2).all(|axis| input[axis] + 2 * padding[axis] >= 3));
        check(Numbers::Whole, items, rows, channels, &geometry(input, padding), seed);
    }
}
