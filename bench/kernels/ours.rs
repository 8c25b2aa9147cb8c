//! Sparse f32 and dense bf16 products against dense f32 (`gemm`) and PyTorch, on layers of ECAPA-TDNN C1024 and
//! ResNet34.
//!
//! `bench/run kernels [THREADS]`; see README.md.

use bregman_bench::{median_ms, peer, ratio, table};
use bregman_tensor::Buffer;
use bregman_tensor::kernels::bf16::{self, Kernel, Packed};
use bregman_tensor::kernels::columns::{Geometry, Plain, TapWindow};
use bregman_tensor::kernels::cost::{Dense, Product};
use bregman_tensor::kernels::output::{Output, SumStart};
use bregman_tensor::kernels::sparse::SparseMatrix;
use bregman_tensor::kernels::winograd::{self, Filters, Workspace};
use rayon::prelude::*;

const ITEMS: usize = 8;
const REPEATS: usize = 7;
const ZEROS: [f32; 5] = [0.5, 0.75, 0.9, 0.95, 0.99];

/// A layer: weights `[out, channels, kernel]` over maps of this size, padded to keep the size.
struct Layer {
    name: &'static str,
    out: usize,
    channels: usize,
    kernel: [usize; 2],
    dilation: usize,
    map: [usize; 2],
}

const LAYERS: [Layer; 5] = [
    Layer { name: "block", out: 1024, channels: 1024, kernel: [1, 1], dilation: 1, map: [1, 300] },
    Layer { name: "aggregate", out: 1536, channels: 3072, kernel: [1, 1], dilation: 1, map: [1, 300] },
    Layer { name: "res2", out: 128, channels: 128, kernel: [1, 3], dilation: 2, map: [1, 300] },
    Layer { name: "resnet1", out: 32, channels: 32, kernel: [3, 3], dilation: 1, map: [80, 300] },
    Layer { name: "resnet3", out: 128, channels: 128, kernel: [3, 3], dilation: 1, map: [20, 75] },
];

fn main() {
    let threads = std::env::args().nth(1).map_or(2, |text| text.parse().expect("THREADS is a number"));
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().expect("a thread pool");
    let shape = |Layer { out, channels, kernel, dilation, map, .. }: &Layer| {
        let numbers = [*out, *channels, kernel[0], kernel[1], *dilation, map[0], map[1]];
        numbers.map(|number| number.to_string()).join("x")
    };
    let label = |layer: &Layer| format!("{} {}×{}", layer.name, layer.out, layer.columns());
    let shapes: Vec<String> = LAYERS.iter().map(shape).collect();
    let (threads_text, repeats_text) = (threads.to_string(), REPEATS.to_string());
    let args: Vec<&str> = [&threads_text, &repeats_text].into_iter().chain(&shapes).map(String::as_str).collect();
    let theirs = peer("kernels", &args);
    let torch =
        |layer: &Layer, what: &str| theirs[format!("{}-{what}", shape(layer))].as_f64().expect("a time of the peer");

    println!("{threads} threads, {ITEMS} items, medians in ms; bf16 kernel: {:?}\n", Kernel::best());
    let mut ratios = Vec::new();
    let mut rows = Vec::new();
    for layer in &LAYERS {
        let dense = layer.dense_f32();
        for zeros in ZEROS {
            let [refresh, values, y, dx, rounded] = layer.sparse(zeros);
            let [dw, rounded_dw] = layer.sampled(zeros);
            let (torch_y, torch_dx) = (torch(layer, "f32-y"), torch(layer, "f32-dx"));
            let percent = (zeros * 100.0).round();
            let mut row = vec![label(layer), format!("{percent} %")];
            let torch_dw = torch(layer, "f32-dw");
            let times = [refresh, values, y, dx, dw, rounded, rounded_dw, dense, torch_y, torch_dx, torch_dw];
            row.extend(times.map(|ms| format!("{ms:.2}")));
            row.push(format!("{:.1}×", dense / y));
            row.push(
                if (layer.product(zeros).prefers_sparse(Dense::F32)) == (y + dx < 2.0 * dense) {
                    "right"
                } else {
                    "wrong"
                }
                .to_string(),
            );
            rows.push(row);
            ratios.push((format!("sparse-{}-{percent}", layer.name), y + dx, torch_y + torch_dx));
            ratios.push((format!("sparse-bf16-{}-{percent}", layer.name), rounded, torch(layer, "bf16-y")));
            ratios.push((format!("sampled-{}-{percent}", layer.name), dw, torch_dw));
            ratios.push((format!("sampled-bf16-{}-{percent}", layer.name), rounded_dw, torch(layer, "bf16-dw")));
        }
    }
    table(
        &[
            "sparse f32",
            "zeros",
            "refresh",
            "values",
            "Y",
            "dX",
            "dW",
            "bf16 Y",
            "bf16 dW",
            "gemm Y",
            "torch Y",
            "torch dX",
            "torch dW",
            "gemm/ours",
            "choice",
        ],
        &rows,
    );
    println!();

    let mut rows = Vec::new();
    for layer in &LAYERS {
        let times = layer.bf16();
        for (product, ours) in ["y", "dx", "dw"].into_iter().zip(times) {
            let [narrow, wide] = ["bf16", "f32"].map(|precision| torch(layer, &format!("{precision}-{product}")));
            let gflops = 2e-6 * (layer.out * layer.columns() * ITEMS * layer.positions()) as f64 / ours;
            let mut row = vec![label(layer), product.to_string()];
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
    fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    fn columns(&self) -> usize {
        self.channels * self.taps()
    }

    fn positions(&self) -> usize {
        self.map[0] * self.map[1]
    }

    /// Weights with the given fraction of zeros, X and dY.
    fn data(&self, zeros: f32) -> [Vec<f32>; 3] {
        let mut state = 0x2545_F491_4F6C_DD1Du64;
        let mut unit = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 24) as f32
        };
        let weights = (0..self.out * self.columns()).map(|_| if unit() < zeros { 0.0 } else { unit() - 0.5 }).collect();
        let mut values = |rows: usize| (0..rows * ITEMS * self.positions()).map(|_| unit() - 0.5).collect();
        [weights, values(self.channels), values(self.out)]
    }

    /// The input of the cost model.
    fn product(&self, zeros: f32) -> Product {
        let nonzeros = ((1.0 - zeros) * (self.out * self.columns()) as f32) as usize;
        Product { rows: self.out, columns: self.columns(), taps: self.taps(), nonzeros }
    }

    fn geometry(&self) -> Geometry {
        let padding = self.kernel.map(|taps| self.dilation * (taps / 2));
        Geometry { input: self.map, kernel: self.kernel, stride: [1, 1], padding, dilation: [self.dilation; 2] }
    }

    /// Activations in our engine's layout, channels first; for pointwise layers one long item.
    fn layout(&self, rows: usize) -> ([usize; 3], usize, usize) {
        let (plane, positions) = (ITEMS * self.positions(), self.positions());
        if self.taps() == 1 { ([1, rows, plane], plane, 0) } else { ([ITEMS, rows, positions], plane, positions) }
    }

    fn plain<'a>(&self, rows: usize, data: &'a [f32]) -> Plain<'a> {
        let (size, stride, item_stride) = self.layout(rows);
        Plain::strided(data, size, stride, item_stride)
    }

    fn output<'a>(&self, rows: usize, data: &'a mut [f32]) -> Output<'a> {
        let (size, stride, item_stride) = self.layout(rows);
        Output::strided(data, size, stride, item_stride)
    }

    /// Refresh, refresh of the values alone, Y, dX, and Y with X rounded to bf16.
    fn sparse(&self, zeros: f32) -> [f64; 5] {
        let [weights, mut x, mut dy] = self.data(zeros);
        let mut w = SparseMatrix::new(self.out, self.channels, self.taps());
        let refresh = median_ms(1, REPEATS, || w.refresh(&weights, self.columns()));
        let values = median_ms(1, REPEATS, || w.refresh_values(&weights, self.columns()));
        let y = median_ms(1, REPEATS, || {
            let (x, y) = (self.plain(self.channels, &x), self.output(self.out, &mut dy));
            match self.taps() {
                1 => w.multiply(&x, SumStart::Zero, &y),
                _ => w.convolve(&self.geometry(), &x, false, SumStart::Zero, &y),
            }
        });
        let dx = median_ms(1, REPEATS, || {
            let (dy, dx) = (self.plain(self.out, &dy), self.output(self.channels, &mut x));
            match self.taps() {
                1 => w.multiply_transposed(&dy, SumStart::Zero, &dx),
                _ => w.convolve_transposed(&self.geometry(), &dy, false, SumStart::Zero, &dx),
            }
        });
        let rounded = median_ms(1, REPEATS, || {
            let (x, y) = (self.plain(self.channels, &x), self.output(self.out, &mut dy));
            match self.taps() {
                1 => w.multiply_rounded(&x, SumStart::Zero, &y),
                _ => w.convolve(&self.geometry(), &x, true, SumStart::Zero, &y),
            }
        });
        [refresh, values, y, dx, rounded]
    }

    /// dW at the non-zeros, in f32 and with both operands rounded to bf16.
    fn sampled(&self, zeros: f32) -> [f64; 2] {
        let [weights, x, dy] = self.data(zeros);
        let (columns, mut dw, mut sums) = (self.columns(), vec![0.0; weights.len()], Buffer::default());
        let mut w = SparseMatrix::new(self.out, self.channels, self.taps());
        w.refresh(&weights, columns);
        let geometry = self.geometry();
        let geometry = (self.taps() > 1).then_some(&geometry);
        [false, true].map(|rounded| {
            median_ms(1, REPEATS, || {
                let (x, dy) = (self.plain(self.channels, &x), self.plain(self.out, &dy));
                w.gradient(geometry, &x, &dy, rounded, &mut sums, &Output::new(&mut dw, 1, self.out, columns));
            })
        })
    }

    /// Y, dX and dW, each with the packing of both operands.
    fn bf16(&self) -> [f64; 3] {
        if winograd::suits(&self.geometry(), self.out, self.channels) {
            return self.winograd();
        }
        let [weights, mut x, mut dy] = self.data(0.0);
        let mut a = Packed::default();
        let (columns, mut dw) = (self.columns(), vec![0.0; weights.len()]);
        let y = median_ms(1, REPEATS, || {
            a.pack(&weights, self.out, columns, columns);
            let (x, y) = (self.plain(self.channels, &x), self.output(self.out, &mut dy));
            match self.taps() {
                1 => bf16::multiply(&a, &x, SumStart::Zero, &y),
                _ => bf16::multiply(&a, &TapWindow::forward(x, &self.geometry()), SumStart::Zero, &y),
            }
        });
        let dx = median_ms(1, REPEATS, || {
            a.pack_transposed(&weights, self.out, self.channels, self.taps(), columns);
            let (dy, dx) = (self.plain(self.out, &dy), self.output(self.channels, &mut x));
            match self.taps() {
                1 => bf16::multiply(&a, &dy, SumStart::Zero, &dx),
                _ => bf16::multiply(&a, &TapWindow::backward(dy, &self.geometry()), SumStart::Zero, &dx),
            }
        });
        let dw = median_ms(1, REPEATS, || {
            a.pack_batch(&self.plain(self.out, &dy));
            let (x, dw) = (self.plain(self.channels, &x), Output::new(&mut dw, 1, self.out, columns));
            match self.taps() {
                1 => bf16::gradient(&a, &x, SumStart::Zero, &dw),
                _ => bf16::gradient(&a, &TapWindow::forward(x, &self.geometry()), SumStart::Zero, &dw),
            }
        });
        [y, dx, dw]
    }

    /// The same for a layer of 3 × 3 taps.
    fn winograd(&self) -> [f64; 3] {
        let [weights, mut x, mut dy] = self.data(0.0);
        let (dense, geometry) = (Dense::Bf16(Kernel::best()), self.geometry());
        let (mut filters, mut workspace) = (Filters::default(), Workspace::default());
        let (columns, mut dw) = (self.columns(), vec![0.0; weights.len()]);
        let y = median_ms(1, REPEATS, || {
            filters.pack(dense, &weights, self.out, self.channels, columns);
            let (x, y) = (self.plain(self.channels, &x), self.output(self.out, &mut dy));
            winograd::multiply(&filters, &geometry, &x, SumStart::Zero, &y);
        });
        let dx = median_ms(1, REPEATS, || {
            filters.pack_transposed(dense, &weights, self.out, self.channels, columns);
            let (dy, dx) = (self.plain(self.out, &dy), self.output(self.channels, &mut x));
            winograd::multiply(&filters, &geometry, &dy, SumStart::Zero, &dx);
        });
        let dw = median_ms(1, REPEATS, || {
            let (x, dy) = (self.plain(self.channels, &x), self.plain(self.out, &dy));
            winograd::gradient(dense, &geometry, &x, &dy, &mut workspace, &Output::new(&mut dw, 1, self.out, columns));
        });
        [y, dx, dw]
    }

    /// Y by `gemm`, one item per task, on an X stored with as many rows as the weights have columns (the same for all
    /// items).
    fn dense_f32(&self) -> f64 {
        let (out, columns, len) = (self.out, self.columns(), self.positions());
        let x = vec![0.5f32; columns * len];
        let mut y = vec![0.0f32; ITEMS * out * len];
        let [weights, ..] = self.data(0.0);
        median_ms(1, REPEATS, || {
            y.par_chunks_mut(out * len).for_each(|y| {
                let [row, narrow] = [len as isize, columns as isize];
                let none = gemm_common::Parallelism::None;
                // SAFETY: y is out × len, the weights out × columns, x columns × len, all row-major. Computed is the
                // transpose, whose columns are contiguous.
                unsafe {
                    let (y, w, x) = (y.as_mut_ptr(), weights.as_ptr(), x.as_ptr());
                    gemm_f32::gemm::f32::get_gemm_fn()(
                        len, out, columns, y, row, 1, false, x, row, 1, w, narrow, 1, 0.0, 1.0, false, false, false,
                        none,
                    );
                }
            });
        })
    }
}
