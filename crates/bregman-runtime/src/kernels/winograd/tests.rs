//! Against plain sums in f64.

use bregman_base::Rng;
use proptest::prelude::*;

use super::super::{Epilogue, Instructions, Offsets, Place};
use super::*;

/// What transposes maps here; the other levels are tested in `transpose.rs`.
const ARCH: pulp::Arch = pulp::Arch::Scalar;

const EPSILON: f64 = f32::EPSILON as f64 / 2.0;

/// A layer, a map in rows `[channel][row][frame]` without anything around it, and what is stored.
struct Case {
    inputs: usize,
    outputs: usize,
    height: usize,
    width: usize,
    weights: Vec<f32>,
    x: Vec<f32>,
    residual: Vec<f32>,
    vectors: [Vec<f32>; 3],
}

impl Case {
    fn new([inputs, outputs]: [usize; 2], [height, width]: [usize; 2], seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut numbers = |count: usize| (0..count).map(|_| rng.symmetric(1.0)).collect::<Vec<f32>>();
        let map = height * width;
        let (weights, x, residual) = (numbers(outputs * inputs * 9), numbers(inputs * map), numbers(outputs * map));
        Self { inputs, outputs, height, width, weights, x, residual, vectors: [0; 3].map(|_| numbers(outputs)) }
    }

    fn rows(&self) -> Rows {
        Rows { start: 0, pitch: self.width, channel: self.height * self.width }
    }

    fn grid(&self) -> Grid {
        Grid::new(self.height, self.width)
    }

    /// A map in rows as groups of channels.
    fn groups(&self, map: &[f32], channels: usize) -> Buffer {
        let mut groups = Buffer::zeros(self.grid().buffer(channels));
        let (size, channel) = (self.grid().buffer(GROUP), self.rows().channel);
        for (group, y) in groups.chunks_exact_mut(size).enumerate() {
            let first = group * GROUP;
            self.grid().gather(ARCH, GROUP.min(channels - first), self.rows(), &map[first * channel..], y);
        }
        groups
    }

    /// `[output][row][frame]`, with all that can be stored or with the bare sums; also with zeros around it unchanged.
    fn computed(&self, instructions: Instructions, threads: usize, bare: bool) -> Vec<f32> {
        let winograd = Winograd::new(&self.weights, self.inputs * 9, &BlockCosts::BUILT_IN);
        let (x, residual) = (self.groups(&self.x, self.inputs), self.groups(&self.residual, self.outputs));
        let [bias, scale, shift] = &self.vectors;
        let nothing = vec![0.0; self.outputs];
        let epilogue = if bare {
            Epilogue { bias: &nothing, residual: None, relu: false, norm: [&[], &[]] }
        } else {
            Epilogue { bias, residual: Some(residual[..].into()), relu: true, norm: [scale, shift] }
        };
        let mut y = Buffer::zeros(self.grid().buffer(self.outputs));
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let each = |count: usize, work: &Work| {
            pool.scope(|scope| (0..count).for_each(|task| scope.spawn(move |_| work(task))));
        };
        let arch = instructions.arch().unwrap();
        // twice: memory that was used before changes nothing
        let mut scratch = Scratch::default();
        for _ in 0..2 {
            winograd.convolve(arch, &each, threads, [self.grid(); 2], &x, &epilogue, &mut y, &mut scratch);
        }
        let mut rows = vec![0.0; self.outputs * self.rows().channel];
        let groups = y.chunks_exact(self.grid().buffer(GROUP));
        for (group, channels) in groups.zip(rows.chunks_mut(GROUP * self.rows().channel)) {
            self.grid().scatter(ARCH, channels.len() / self.rows().channel, self.rows(), group, channels);
        }
        // what is outside of the map, and channels that fill up a group, are still zero
        assert_eq!(*self.groups(&rows, self.outputs), *y);
        rows
    }

    /// A plain sum in f64.
    fn sum(&self, output: usize, row: usize, frame: usize) -> f64 {
        let mut sum = 0.0;
        for input in 0..self.inputs {
            for (i, j) in (0..9).map(|tap| (tap / 3, tap % 3)) {
                let weight = self.weights[(output * self.inputs + input) * 9 + 3 * i + j];
                sum += f64::from(weight) * self.at(input, (row + i) as isize - 1, (frame + j) as isize - 1);
            }
        }
        sum
    }

    /// Zero outside of the map.
    fn at(&self, input: usize, row: isize, frame: isize) -> f64 {
        let inside = (0..self.height as isize).contains(&row) && (0..self.width as isize).contains(&frame);
        let at = (input * self.height) as isize * self.width as isize + row * self.width as isize + frame;
        if inside { f64::from(self.x[at as usize]) } else { 0.0 }
    }

    /// What rounding can change at most: each number of `|Aᵀ|(Σ|G||g||Gᵀ| ⊙ |Bᵀ||d||B|)|A|` goes through fewer than
    /// `inputs + 30` roundings.
    fn bound(&self, output: usize, row: usize, frame: usize) -> f64 {
        let [top, left] = [row, frame].map(|at| (at / OUTPUTS * OUTPUTS) as isize - 1);
        let mut sums = [[0.0; TILE]; TILE];
        for input in 0..self.inputs {
            let d = |i: usize, j: usize| self.at(input, top + i as isize, left + j as isize);
            let g = |i: usize, j: usize| f64::from(self.weights[(output * self.inputs + input) * 9 + 3 * i + j]);
            let (u, v) = (sandwich::<TILE, 3>(&G, g), sandwich::<TILE, TILE>(&BT, d));
            for (sums, (u, v)) in sums.iter_mut().zip(u.iter().zip(&v)) {
                sums.iter_mut().zip(u.iter().zip(v)).for_each(|(sum, (u, v))| *sum += u * v);
            }
        }
        let y = sandwich::<OUTPUTS, TILE>(&AT, |i, j| sums[i][j]);
        (self.inputs + 30) as f64 * EPSILON * y[row % OUTPUTS][frame % OUTPUTS]
    }
}

const A: f64 = 0.75;
const B: f64 = 1.5;
const ALPHA: f64 = 1.0 / (2.0 * A * A * (A * A - B * B));
const BETA: f64 = 1.0 / (2.0 * B * B * (B * B - A * A));
const BT: [[f64; TILE]; TILE] = [
    [A * A * B * B, 0.0, -A * A - B * B, 0.0, 1.0, 0.0],
    [0.0, -A * B * B, -B * B, A, 1.0, 0.0],
    [0.0, A * B * B, -B * B, -A, 1.0, 0.0],
    [0.0, -A * A * B, -A * A, B, 1.0, 0.0],
    [0.0, A * A * B, -A * A, -B, 1.0, 0.0],
    [0.0, A * A * B * B, 0.0, -A * A - B * B, 0.0, 1.0],
];
const G: [[f64; 3]; TILE] = [
    [1.0 / (A * A * B * B), 0.0, 0.0],
    [ALPHA, ALPHA * A, ALPHA * A * A],
    [ALPHA, -ALPHA * A, ALPHA * A * A],
    [BETA, BETA * B, BETA * B * B],
    [BETA, -BETA * B, BETA * B * B],
    [0.0, 0.0, 1.0],
];
const AT: [[f64; TILE]; OUTPUTS] = [
    [1.0, 1.0, 1.0, 1.0, 1.0, 0.0],
    [0.0, A, -A, B, -B, 0.0],
    [0.0, A * A, A * A, B * B, B * B, 0.0],
    [0.0, A * A * A, -A * A * A, B * B * B, -B * B * B, 1.0],
];

/// `|M| · |x| · |Mᵀ|`
fn sandwich<const N: usize, const K: usize>(matrix: &[[f64; K]; N], x: impl Fn(usize, usize) -> f64) -> [[f64; N]; N] {
    let product = |i: usize, j: usize| {
        let pairs = (0..K * K).map(|at| (at / K, at % K));
        pairs.map(|(k, l)| (matrix[i][k] * x(k, l) * matrix[j][l]).abs()).sum()
    };
    std::array::from_fn(|i| std::array::from_fn(|j| product(i, j)))
}

fn check(case: &Case, instructions: Instructions) {
    let [all, sums] = [false, true].map(|bare| case.computed(instructions, 1, bare));
    let [bias, scale, shift] = &case.vectors;
    for (at, (&ours, &sum)) in all.iter().zip(&sums).enumerate() {
        let (output, place) = (at / case.rows().channel, at % case.rows().channel);
        let [row, frame] = [place / case.width, place % case.width];
        let (expected, bound) = (case.sum(output, row, frame), case.bound(output, row, frame));
        let found = (f64::from(sum) - expected).abs();
        assert!(found <= bound, "output {output} at {row}, {frame}: off by {found:e}, {bound:e} allowed");
        let relu = (expected + f64::from(bias[output]) + f64::from(case.residual[at])).max(0.0);
        let expected = relu * f64::from(scale[output]) + f64::from(shift[output]);
        let (found, bound) = ((f64::from(ours) - expected).abs(), bound + 8.0 * EPSILON * (relu.abs() + 4.0));
        assert!(found <= bound, "stored, output {output} at {row}, {frame}: off by {found:e}, {bound:e} allowed");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn any_map_and_channels_give_the_sums_of_a_plain_convolution(
        inputs in 1usize..36,
        outputs in 1usize..36,
        height in 1usize..8,
        width in 1usize..18,
        seed in 0u64..1000,
    ) {
        check(&Case::new([inputs, outputs], [height, width], seed), Instructions::best());
    }
}

#[test]
fn every_instruction_set_gives_the_sums_of_a_plain_convolution() {
    for instructions in Instructions::available() {
        // all filters first, all inputs first, and more inputs than have their filters in memory at a time
        for (channels, map) in [([20, 40], [9, 90]), ([33, 70], [10, 5]), ([GROUP * CHUNK + 5, 50], [5, 6])] {
            check(&Case::new(channels, map, 1), instructions);
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for (channels, map) in [([32, 32], [20, 61]), ([64, 70], [10, 17])] {
        let case = Case::new(channels, map, 2);
        let one = case.computed(Instructions::best(), 1, false);
        assert!([2, 3].into_iter().all(|threads| case.computed(Instructions::best(), threads, false) == one));
    }
}

/// Of 64 channels that are not negative, as behind a ReLU.
#[test]
fn rounding_is_within_three_times_that_of_a_plain_sum() {
    let mut case = Case::new([64, 32], [12, 24], 3);
    case.x.iter_mut().for_each(|x| *x = x.max(0.0));
    let (mut ours, mut plain, mut size) = (0.0, 0.0, 0.0);
    let sums = case.computed(Instructions::best(), 1, true);
    for (at, (&sum, plainly)) in sums.iter().zip(plain_sums(&case)).enumerate() {
        let (output, place) = (at / case.rows().channel, at % case.rows().channel);
        let exact = case.sum(output, place / case.width, place % case.width);
        ours += (f64::from(sum) - exact).powi(2);
        plain += (f64::from(plainly) - exact).powi(2);
        size += exact.powi(2);
    }
    assert!(ours < 9.0 * plain, "{:e} of the sums, {:e} plainly", (ours / size).sqrt(), (plain / size).sqrt());
}

/// By the weights for plain sums, one row of the map at a time.
fn plain_sums(case: &Case) -> Vec<f32> {
    let winograd = Winograd::new(&case.weights, case.inputs * 9, &BlockCosts::BUILT_IN);
    let (weights, pitch) = (winograd.plain(), case.width + 2);
    let size = (case.height + 2) * pitch;
    let mut x = vec![0.0; case.inputs * size + 200];
    for (row, values) in case.x.chunks_exact(case.width).enumerate() {
        let (channel, row) = (row / case.height, row % case.height);
        x[channel * size + (row + 1) * pitch + 1..][..case.width].copy_from_slice(values);
    }
    let (mut offsets, bias) = (Offsets::default(), vec![0.0; case.outputs]);
    weights.resolve(|column| column / 9 * size + column % 9 / 3 * pitch + column % 3, &mut offsets);
    let epilogue = Epilogue { bias: &bias, residual: None, relu: false, norm: [&[], &[]] };
    let mut sums = vec![0.0; case.outputs * case.height * case.width];
    for row in 0..case.height {
        let mut y = Buffer::zeros(case.outputs * super::super::BLOCK);
        let place = Place { x: row * pitch, y: 0, pitch: super::super::BLOCK, width: case.width };
        let arch = Instructions::best().arch().unwrap();
        // SAFETY: nothing else has y.
        unsafe { weights.apply(arch, &offsets, &x[..], &[], place, &epilogue, bregman_base::Disjoint::new(&mut y)) };
        for output in 0..case.outputs {
            let to = &mut sums[(output * case.height + row) * case.width..][..case.width];
            to.copy_from_slice(&y[output * super::super::BLOCK..][..case.width]);
        }
    }
    sums
}

#[test]
fn a_stride_over_rows_leaves_out_every_other_row() {
    for [inputs, outputs, height, width] in [[16, 16, 8, 9], [32, 48, 7, 40], [17, 20, 10, 6]] {
        let case = Case::new([inputs, outputs], [height, width], 3);
        let winograd = Winograd::new(&case.weights, inputs * 9, &BlockCosts::BUILT_IN);
        let (x, half) = (case.groups(&case.x, inputs), Grid::new(height.div_ceil(2), width));
        let [bias, ..] = &case.vectors;
        let epilogue = Epilogue { bias, residual: None, relu: true, norm: [&[], &[]] };
        let computed = |to: Grid| {
            let (mut y, mut scratch) = (Buffer::zeros(to.buffer(outputs)), Scratch::default());
            let each = |count: usize, work: &Work| (0..count).for_each(work);
            let arch = Instructions::best().arch().unwrap();
            winograd.convolve(arch, &each, 1, [case.grid(), to], &x, &epilogue, &mut y, &mut scratch);
            y
        };
        let (all, some) = (computed(case.grid()), computed(half));
        for group in 0..outputs.div_ceil(GROUP) {
            for row in 0..height.div_ceil(2) {
                let of = |map: &Buffer, grid: Grid, row: usize| {
                    map[group * grid.size + grid.at(row, 0)..][..width * GROUP].to_vec()
                };
                assert_eq!(of(&some, half, row), of(&all, case.grid(), 2 * row), "group {group}, row {row}");
            }
        }
    }
}
