//! Sparse f32 and dense bf16 products against dense f32 (`gemm`) and PyTorch, on the layers of ECAPA-TDNN C1024.
//!
//! `bench/run kernels [THREADS]`; see README.md.

use bregman_bench::{median_ms, peer, ratio, table};
use bregman_tensor::kernels::bf16::{self, Kernel, Packed};
use bregman_tensor::kernels::columns::{Plain, Shifted};
use bregman_tensor::kernels::output::{Output, Start};
use bregman_tensor::kernels::sparse::SparseMatrix;
use rayon::prelude::*;

const ITEMS: usize = 8;
const FRAMES: usize = 300;
const DILATION: usize = 2;
const REPEATS: usize = 7;
const ZEROS: [f32; 5] = [0.5, 0.75, 0.9, 0.95, 0.99];

/// A layer: weights `[out, channels, taps]`.
struct Layer {
    name: &'static str,
    out: usize,
    channels: usize,
    taps: usize,
}

const LAYERS: [Layer; 3] = [
    Layer { name: "block", out: 1024, channels: 1024, taps: 1 },
    Layer { name: "aggregate", out: 1536, channels: 3072, taps: 1 },
    Layer { name: "res2", out: 128, channels: 128, taps: 3 },
];

fn main() {
    let threads = std::env::args().nth(1).map_or(2, |text| text.parse().expect("THREADS is a number"));
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().expect("a thread pool");
    let shape = |layer: &Layer| format!("{}x{}x{}", layer.out, layer.channels, layer.taps);
    let shapes: Vec<String> = LAYERS.iter().map(shape).collect();
    let (threads_text, repeats_text) = (threads.to_string(), REPEATS.to_string());
    let args: Vec<&str> = [&threads_text, &repeats_text].into_iter().chain(&shapes).map(String::as_str).collect();
    let theirs = peer("kernels", &args);
    let torch = |layer: &Layer, what: &str| theirs[format!("{}-{what}", shape(layer))].as_f64().expect("a time of the peer");

    println!("{threads} threads, {ITEMS} items of {FRAMES} frames, medians in ms; bf16 kernel: {:?}\n", Kernel::best());
    let mut ratios = Vec::new();
    let mut rows = Vec::new();
    for layer in &LAYERS {
        let dense = layer.dense_f32();
        for zeros in ZEROS {
            let [refresh, y, dx] = layer.sparse(zeros);
            let (torch_y, torch_dx) = (torch(layer, "f32-y"), torch(layer, "f32-dx"));
            let percent = (zeros * 100.0).round();
            let mut row = vec![format!("{} {}", layer.name, shape(layer)), format!("{percent} %")];
            row.extend([refresh, y, dx, dense, torch_y, torch_dx].map(|ms| format!("{ms:.2}")));
            row.push(format!("{:.1}×", dense / y));
            rows.push(row);
            ratios.push((format!("sparse-{}-{percent}", layer.name), y + dx, torch_y + torch_dx));
        }
    }
    table(&["sparse f32", "zeros", "refresh", "Y", "dX", "gemm Y", "torch Y", "torch dX", "gemm/ours"], &rows);
    println!();

    let mut rows = Vec::new();
    for layer in &LAYERS {
        let times = layer.bf16();
        for (product, ours) in ["y", "dx", "dw"].into_iter().zip(times) {
            let [narrow, wide] = ["bf16", "f32"].map(|precision| torch(layer, &format!("{precision}-{product}")));
            let gflops = 2e-6 * (layer.out * layer.columns() * ITEMS * FRAMES) as f64 / ours;
            let mut row = vec![format!("{} {}", layer.name, shape(layer)), product.to_string()];
            row.extend([ours, narrow, wide].map(|ms| format!("{ms:.2}")));
            row.push(format!("{gflops:.0}"));
            rows.push(row);
            ratios.push((format!("bf16-{}-{product}", layer.name), ours, narrow));
        }
    }
    table(&["dense bf16", "product", "ours", "torch bf16", "torch f32", "our GFLOP/s"], &rows);
    println!();
    ratios.iter().for_each(|(name, ours, theirs)| ratio(name, *ours, *theirs));
}

impl Layer {
    fn columns(&self) -> usize {
        self.channels * self.taps
    }

    /// Weights with the given share of zeros, X and dY.
    fn data(&self, zeros: f32) -> [Vec<f32>; 3] {
        let mut state = 0x2545_F491_4F6C_DD1Du64;
        let mut unit = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 24) as f32
        };
        let weights = (0..self.out * self.columns()).map(|_| if unit() < zeros { 0.0 } else { unit() - 0.5 }).collect();
        let mut values = |rows: usize| (0..rows * ITEMS * FRAMES).map(|_| unit() - 0.5).collect();
        [weights, values(self.channels), values(self.out)]
    }

    /// X as the forward product sees it; channels first, items side by side, as our engine keeps activations.
    fn forward<'a>(&self, x: &'a [f32]) -> Shifted<'a> {
        let view = Plain::strided(x, [ITEMS, self.channels, FRAMES], ITEMS * FRAMES, FRAMES);
        Shifted::forward(view, self.taps, DILATION, DILATION * (self.taps / 2))
    }

    /// dY as the input gradient sees it.
    fn backward<'a>(&self, dy: &'a [f32]) -> Shifted<'a> {
        let view = Plain::strided(dy, [ITEMS, self.out, FRAMES], ITEMS * FRAMES, FRAMES);
        Shifted::backward(view, self.taps, DILATION, DILATION * (self.taps / 2))
    }

    fn output<'a>(&self, rows: usize, data: &'a mut [f32]) -> Output<'a> {
        Output::strided(data, [ITEMS, rows, FRAMES], ITEMS * FRAMES, FRAMES)
    }

    /// Refresh, Y and dX.
    fn sparse(&self, zeros: f32) -> [f64; 3] {
        let [weights, mut x, mut dy] = self.data(zeros);
        let mut w = SparseMatrix::new(self.out, self.channels, self.taps);
        let refresh = median_ms(1, REPEATS, || w.refresh(&weights, self.columns()));
        let y = median_ms(1, REPEATS, || w.multiply(&self.forward(&x), Start::Zero, &self.output(self.out, &mut dy)));
        let dx = median_ms(1, REPEATS, || w.multiply_transposed(&self.backward(&dy), Start::Zero, &self.output(self.channels, &mut x)));
        [refresh, y, dx]
    }

    /// Y, dX and dW, each with the packing of both operands.
    fn bf16(&self) -> [f64; 3] {
        let [weights, mut x, mut dy] = self.data(0.0);
        let mut a = Packed::default();
        let (columns, mut dw) = (self.columns(), vec![0.0; weights.len()]);
        let y = median_ms(1, REPEATS, || {
            a.pack(&weights, self.out, columns, columns);
            bf16::multiply(&a, &self.forward(&x), Start::Zero, &self.output(self.out, &mut dy));
        });
        let dx = median_ms(1, REPEATS, || {
            a.pack_transposed(&weights, self.out, self.channels, self.taps, columns);
            bf16::multiply(&a, &self.backward(&dy), Start::Zero, &self.output(self.channels, &mut x));
        });
        let dw = median_ms(1, REPEATS, || {
            a.pack_batch(&Plain::strided(&dy, [ITEMS, self.out, FRAMES], ITEMS * FRAMES, FRAMES));
            bf16::gradient(&a, &self.forward(&x), Start::Zero, &Output::new(&mut dw, 1, self.out, columns));
        });
        [y, dx, dw]
    }

    /// Y by `gemm`, on a stored X of as many rows as the weights have columns, one item per task.
    fn dense_f32(&self) -> f64 {
        let (out, columns) = (self.out, self.columns());
        let x = vec![0.5f32; ITEMS * columns * FRAMES];
        let mut y = vec![0.0f32; ITEMS * out * FRAMES];
        let [weights, ..] = self.data(0.0);
        median_ms(1, REPEATS, || {
            y.par_chunks_mut(out * FRAMES).zip(x.par_chunks(columns * FRAMES)).for_each(|(y, x)| {
                let [row, narrow] = [FRAMES as isize, columns as isize];
                let none = gemm::Parallelism::None;
                // SAFETY: y is out × frames, the weights out × columns, x columns × frames, all row-major.
                unsafe {
                    let (y, w, x) = (y.as_mut_ptr(), weights.as_ptr(), x.as_ptr());
                    gemm::gemm(out, FRAMES, columns, y, 1, row, false, w, 1, narrow, x, 1, row, 0.0, 1.0, false, false, false, none);
                }
            });
        })
    }
}
