//! The gradient at the non-zeros, and a refresh that keeps the structure.

use bregman_base::simd::Level;
use proptest::prelude::*;

use super::super::reference::{Random, assert_close};
use super::*;

/// bf16 has 8 significant bits, and both operands are rounded.
const ROUNDED_TOLERANCE: f64 = 1.0 / 128.0;

/// All ways to multiply that run here, with the error each may make.
fn all_ways() -> Vec<(Dots, f64)> {
    let arches = || Level::ALL.iter().filter_map(|level| level.arch());
    let mut ways: Vec<_> = arches().map(|arch| (Dots::F32(arch), 1e-6)).collect();
    ways.extend(arches().map(|arch| (Dots::Rounded(arch), ROUNDED_TOLERANCE)));
    ways.push((Dots::best(true), ROUNDED_TOLERANCE));
    ways
}

/// A layer with some weights, X, dY and its exact gradient at the non-zeros: `Σ dy · x̃` and `Σ |dy · x̃|`.
struct Case {
    matrix: SparseMatrix,
    weights: Vec<f32>,
    geometry: Option<Geometry>,
    items: usize,
    rows: usize,
    channels: usize,
    x: Vec<f32>,
    dy: Vec<f32>,
}

impl Case {
    fn new(random: &mut Random, [items, rows, channels]: [usize; 3], geometry: Geometry, zeros: f32) -> Self {
        let pointwise = geometry.kernel == [1, 1] && geometry.stride == [1, 1];
        let taps = geometry.kernel[0] * geometry.kernel[1];
        let weights = random.values(rows * channels * taps, zeros);
        let mut matrix = SparseMatrix::new(rows, channels, taps);
        matrix.refresh(&weights, channels * taps);
        let [output, input] = [geometry.output(), geometry.input].map(|[high, wide]| high * wide);
        let (x, dy) = (random.values(items * channels * input, 0.0), random.values(items * rows * output, 0.0));
        Self { matrix, weights, geometry: (!pointwise).then_some(geometry), items, rows, channels, x, dy }
    }

    fn operands(&self) -> [Plain<'_>; 2] {
        let Self { items, rows, channels, .. } = *self;
        [
            Plain::new(&self.x, items, channels, self.x.len() / items / channels),
            Plain::new(&self.dy, items, rows, self.dy.len() / items / rows),
        ]
    }

    fn exact(&self) -> Vec<(f64, f64)> {
        match &self.geometry {
            None => self.exact_of(&self.operands()[0]),
            Some(geometry) => self.exact_of(&TapWindow::forward(self.operands()[0], geometry)),
        }
    }

    fn exact_of(&self, x: &impl Columns) -> Vec<(f64, f64)> {
        let dy = self.operands()[1];
        let mut line = vec![0.0; x.len()];
        let entry = |(at, &weight): (usize, &f32)| {
            let mut sum = (0.0, 0.0);
            for item in (0..self.items).filter(|_| weight != 0.0) {
                x.fill(item, at % x.rows(), 0, &mut line);
                for (&a, &b) in dy.row(item, at / x.rows()).iter().zip(&line) {
                    let term = f64::from(a) * f64::from(b);
                    sum = (sum.0 + term, sum.1 + term.abs());
                }
            }
            sum
        };
        self.weights.iter().enumerate().map(entry).collect()
    }

    fn gradient(&self, dots: Dots) -> Vec<f32> {
        let [x, dy] = self.operands();
        let mut dw = vec![f32::NAN; self.weights.len()];
        let target = Output::new(&mut dw, 1, self.rows, self.matrix.columns());
        self.matrix.sampled(dots, self.geometry.as_ref(), &x, &dy, &mut Buffer::default(), &target);
        dw
    }
}

fn map(input: [usize; 2], kernel: [usize; 2], stride: usize, padding: [usize; 2], dilation: usize) -> Geometry {
    Geometry { input, kernel, stride: [stride; 2], padding, dilation: [dilation; 2] }
}

#[test]
fn the_gradient_at_the_nonzeros_is_that_of_the_definition_and_zero_elsewhere() {
    let mut random = Random::new(1);
    for (size, geometry) in [
        ([1, 1, 1], map([1, 1], [1, 1], 1, [0, 0], 1)),
        ([2, 7, 13], map([1, 7], [1, 1], 1, [0, 0], 1)),
        ([1, 9, 1500], map([1, 700], [1, 1], 1, [0, 0], 1)),
        ([3, 19, 30], map([1, 97], [1, 3], 1, [0, 2], 2)),
        ([2, 5, 6], map([1, 40], [1, 5], 1, [0, 1], 3)),
        ([2, 6, 130], map([9, 31], [3, 3], 1, [1, 1], 1)),
        ([3, 6, 5], map([70, 90], [3, 3], 1, [1, 1], 1)),
        ([2, 6, 5], map([10, 7], [3, 3], 2, [1, 1], 1)),
        ([2, 6, 5], map([8, 31], [1, 1], 2, [0, 0], 1)),
    ] {
        for zeros in [0.0, 0.5, 0.9, 1.0] {
            let case = Case::new(&mut random, size, geometry, zeros);
            let exact = case.exact();
            for (dots, tolerance) in all_ways() {
                assert_close(&case.gradient(dots), &exact, tolerance);
            }
        }
    }
}

#[test]
fn rounded_gradients_are_exact_on_values_that_need_no_rounding() {
    let mut random = Random::new(2);
    for geometry in [map([1, 301], [1, 1], 1, [0, 0], 1), map([12, 31], [3, 3], 1, [1, 1], 1)] {
        let mut case = Case::new(&mut random, [2, 9, 40], geometry, 0.8);
        let whole = |value: &mut f32| *value = (*value * 4.0).round();
        case.x.iter_mut().for_each(whole);
        case.dy.iter_mut().for_each(whole);
        let exact: Vec<f32> = case.exact().iter().map(|&(sum, _)| sum as f32).collect();
        for (dots, _) in all_ways() {
            assert_eq!(case.gradient(dots), exact, "{dots:?}");
        }
    }
}

#[test]
fn gradients_are_identical_for_any_number_of_threads() {
    let case = Case::new(&mut Random::new(5), [1, 40, 1100], map([1, 900], [1, 1], 1, [0, 0], 1), 0.9);
    for rounded in [false, true] {
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool");
            pool.install(|| case.gradient(Dots::best(rounded)))
        };
        let one = run(1);
        for threads in [2, 3, 7, 16] {
            assert!(run(threads) == one, "{threads} threads give other bits than one");
        }
    }
}

#[test]
fn a_gradient_leaves_columns_outside_of_its_block_alone_and_reads_no_zero_weight() {
    // 0 · ∞ would be NaN: a zero weight's gradient must not be computed at all
    let mut matrix = SparseMatrix::new(2, 2, 1);
    matrix.refresh(&[1.0, 0.0, 0.0, 1.0], 2);
    let (x, dy) = ([f32::INFINITY, 3.0], [0.0, 2.0]);
    let mut dw = [7.0; 8];
    let target = Output::strided(&mut dw[1..], [1, 2, 2], 4, 8);
    let (x, dy) = (Plain::new(&x, 1, 2, 1), Plain::new(&dy, 1, 2, 1));
    matrix.gradient(None, &x, &dy, false, &mut Buffer::default(), &target);
    assert!(dw[1].is_nan(), "the only product of row 0 is 0 · ∞");
    assert_eq!([dw[0], dw[2], dw[3], dw[4], dw[5], dw[6], dw[7]], [7.0, 0.0, 7.0, 7.0, 0.0, 6.0, 7.0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_refresh_of_values_holds_the_new_weights_in_both_orientations(
        rows in 1usize..60,
        channels in 1usize..400,
        taps in 1usize..10,
        zeros in 0f32..1.0,
        seed in any::<u64>(),
    ) {
        let mut random = Random::new(seed);
        let columns = channels * taps;
        let mut weights = random.values(rows * columns, zeros);
        let mut matrix = SparseMatrix::new(rows, channels, taps);
        matrix.refresh(&weights, columns);
        let entries = matrix.nnz();
        for _ in 0..3 {
            // every fifth weight becomes zero, the others change
            weights.iter_mut().for_each(|w| *w = if random.unit() < 0.2 { 0.0 } else { *w * (0.5 + random.unit()) });
            matrix.refresh_values(&weights, columns);
            prop_assert_eq!(matrix.nnz(), entries);
            for orientation in super::tests::expand(&matrix) {
                prop_assert_eq!(&orientation, &weights);
            }
        }
        let x = random.values(channels * 20, 0.0);
        let dy = random.values(rows * 20, 0.0);
        let geometry = Geometry::signal(20, taps, 1, 0);
        let len = geometry.output()[1];
        if taps <= 20 {
            let mut dw = vec![f32::NAN; weights.len()];
            let (x, dy) = (Plain::new(&x, 1, channels, 20), Plain::strided(&dy, [1, rows, len], 20, 0));
            let target = Output::new(&mut dw, 1, rows, columns);
            matrix.gradient(Some(&geometry), &x, &dy, false, &mut Buffer::default(), &target);
            prop_assert!(dw.iter().zip(&weights).all(|(&dw, &w)| w != 0.0 || dw == 0.0), "dw is 0 where w is");
        }
    }
}
