//! Sparse layers, forward and backward, against `sparseprop` (Nikdan et al., arXiv 2302.04852), whose backward pass
//! also computes the weight gradient on the non-zeros alone.
//!
//! `bench/run sparseprop [THREADS]`; see README.md.

use bregman_bench::{median_ms, peer, ratio, table};
use bregman_tensor::Buffer;
use bregman_tensor::kernels::columns::{Geometry, Plain};
use bregman_tensor::kernels::output::{Output, SumStart};
use bregman_tensor::kernels::sparse::SparseMatrix;

const ITEMS: usize = 8;
const REPEATS: usize = 5;
const ZEROS: [u32; 3] = [90, 95, 99];

/// Weights `[out, channels, side, side]` over maps of this size, padded to keep the size.
struct Layer {
    name: &'static str,
    out: usize,
    channels: usize,
    side: usize,
    map: [usize; 2],
}

const LAYERS: [Layer; 4] = [
    Layer { name: "block", out: 1024, channels: 1024, side: 1, map: [1, 300] },
    Layer { name: "aggregate", out: 1536, channels: 3072, side: 1, map: [1, 300] },
    Layer { name: "resnet1", out: 32, channels: 32, side: 3, map: [80, 300] },
    Layer { name: "resnet3", out: 128, channels: 128, side: 3, map: [20, 75] },
];

fn main() {
    let threads = std::env::args().nth(1).map_or(2, |text| text.parse().expect("THREADS is a number"));
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().expect("a thread pool");
    let (mut rows, mut ratios) = (Vec::new(), Vec::new());
    for layer in &LAYERS {
        for zeros in ZEROS {
            let Layer { name, out, channels, side, map } = layer;
            let numbers = [threads, REPEATS, *out, *channels, *side, map[0], map[1], zeros as usize];
            let args = numbers.map(|number| number.to_string());
            let theirs = peer("sparseprop", &args.each_ref().map(String::as_str));
            let ours = layer.measure(zeros as f32 / 100.0);
            let mut row = vec![format!("{name} {out}×{}", channels * side * side), format!("{zeros} %")];
            for (ours, what) in ours.into_iter().zip(["forward", "backward"]) {
                let theirs = theirs[what].as_f64().expect("a time of the peer");
                row.extend([format!("{ours:.2}"), format!("{theirs:.2}")]);
                ratios.push((format!("sparseprop-{name}-{zeros}-{what}"), ours, theirs));
            }
            rows.push(row);
        }
    }
    println!("{threads} threads, {ITEMS} items, f32, medians in ms\n");
    table(&["layer", "zeros", "forward", "sparseprop", "backward", "sparseprop"], &rows);
    ratios.iter().for_each(|(name, ours, theirs)| ratio(name, *ours, *theirs));
}

impl Layer {
    /// Milliseconds of the forward product, and of both gradients together.
    fn measure(&self, zeros: f32) -> [f64; 2] {
        let Self { out, channels, side, map, .. } = *self;
        let (taps, positions) = (side * side, map[0] * map[1]);
        let mut state = 0x2545_F491_4F6C_DD1Du64;
        let mut unit = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 24) as f32
        };
        let columns = channels * taps;
        let weights: Vec<f32> = (0..out * columns).map(|_| if unit() < zeros { 0.0 } else { unit() - 0.5 }).collect();
        let mut values = |rows: usize| -> Vec<f32> { (0..rows * ITEMS * positions).map(|_| unit() - 0.5).collect() };
        let (x, mut y, mut dx) = (values(channels), values(out), values(channels));
        let (mut dw, mut sums) = (vec![0.0; weights.len()], Buffer::default());
        let mut w = SparseMatrix::new(out, channels, taps);
        w.refresh(&weights, columns);
        // channels first; a pointwise layer sees one long item
        let plane = ITEMS * positions;
        let layout = |rows: usize| match taps {
            1 => ([1, rows, plane], plane, 0),
            _ => ([ITEMS, rows, positions], plane, positions),
        };
        let plain = |rows: usize, data| {
            let (size, stride, item_stride) = layout(rows);
            Plain::strided(data, size, stride, item_stride)
        };
        let geometry =
            Geometry { input: map, kernel: [side; 2], stride: [1, 1], padding: [side / 2; 2], dilation: [1, 1] };
        let geometry = (taps > 1).then_some(&geometry);
        let forward = median_ms(1, REPEATS, || {
            let (size, stride, item_stride) = layout(out);
            let (x, y) = (plain(channels, &x), Output::strided(&mut y, size, stride, item_stride));
            match geometry {
                None => w.multiply(&x, SumStart::Zero, &y),
                Some(geometry) => w.convolve(geometry, &x, false, SumStart::Zero, &y),
            }
        });
        let backward = median_ms(1, REPEATS, || {
            let (size, stride, item_stride) = layout(channels);
            let (x, dy) = (plain(channels, &x), plain(out, &y));
            let dx = Output::strided(&mut dx, size, stride, item_stride);
            match geometry {
                None => w.multiply_transposed(&dy, SumStart::Zero, &dx),
                Some(geometry) => w.convolve_transposed(geometry, &dy, false, SumStart::Zero, &dx),
            }
            w.gradient(geometry, &x, &dy, false, &mut sums, &Output::new(&mut dw, 1, out, columns));
        });
        [forward, backward]
    }
}
