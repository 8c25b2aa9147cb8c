//! Who should compute the features of a training step on a GPU: the loader's threads or the GPU?
//! `train_step --device cuda features` prints milliseconds per batch of 256 × 3 s for both.

use bregman_audio::{Fbank, Features, RATE};
use bregman_bench::{median_ms, table};
use bregman_nn::{Input, Rng, TrainableModel};
use bregman_tensor::cuda::Cuda;
use bregman_tensor::{DeviceMemory, Filterbanks, Margin, Precision, Shape, Tensor};
use bregman_train::config::FeatureConfig;
use rayon::prelude::*;

use super::{CLASSES, NETWORKS, architecture};

const BATCH: usize = 256;
const SAMPLES: usize = 3 * RATE as usize;
const REPEATS: usize = 20;

pub(super) fn compare() {
    let mut rng = Rng::new(1);
    let samples: Vec<f32> = (0..BATCH * SAMPLES).map(|_| rng.symmetric(0.1)).collect();
    let config = FeatureConfig::default();
    let mut rows = Vec::new();
    let mut row = |what: String, ms: f64| rows.push(vec![what, format!("{ms:.2}")]);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for threads in [1, 2, 4, 8, 16].into_iter().filter(|threads| *threads <= cores) {
        row(format!("features by {threads} threads of the CPU"), by_loader(&config, threads, &samples));
    }
    let cuda = Cuda::open(0, Precision::Bf16).expect("a GPU");
    let tables = config.tables().expect("defaults are valid");
    let frames = tables.frames(SAMPLES);
    let mut x = Tensor::empty(&cuda).expect("memory");
    x.resize(&cuda, Shape::signal(tables.bins, BATCH, frames)).expect("memory");
    let features = vec![0.5; BATCH * frames * tables.bins];
    let upload = median_ms(3, REPEATS, || {
        cuda.write_frames(&features, x.view_mut()).expect("a copy");
        cuda.synchronize().expect("the device");
    });
    row("upload of features".to_owned(), upload);
    let filterbank = cuda.filterbank(tables).expect("memory");
    let computed = median_ms(3, REPEATS, || {
        cuda.write_samples(&filterbank, &samples, x.view_mut()).expect("features");
        cuda.synchronize().expect("the device");
    });
    row("upload of samples, features by the GPU".to_owned(), computed);
    drop((x, filterbank, cuda));
    for network in NETWORKS {
        row(format!("{network}: forward and backward, features uploaded"), pass(network, &config, None));
        row(format!("{network}: forward and backward, features by the GPU"), pass(network, &config, Some(&samples)));
    }
    println!("\nfeatures of {BATCH} × 3 s, bf16");
    table(&["", "ms per batch"], &rows);
}

/// What the loader's threads do between samples and features, on so many threads.
fn by_loader(config: &FeatureConfig, threads: usize, samples: &[f32]) -> f64 {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    let front_end = || (Fbank::new(config.fbank()).expect("defaults are valid"), Features::default());
    let repeats = if threads == 1 { 3 } else { 5 };
    pool.install(|| {
        median_ms(1, repeats, || {
            samples.par_chunks_exact(SAMPLES).for_each_init(front_end, |(fbank, features), utterance| {
                fbank.compute_into(utterance, features);
                features.subtract_mean();
            });
        })
    })
}

/// A pass of the network with the next batch staged meanwhile: from samples, or from features.
fn pass(network: &str, config: &FeatureConfig, samples: Option<&[f32]>) -> f64 {
    let cuda = Cuda::open(0, Precision::Bf16).expect("a GPU");
    let mut model = TrainableModel::new(cuda, &architecture(network), Some(CLASSES), 0).expect("a valid network");
    let tables = config.tables().expect("defaults are valid");
    let frames = tables.frames(SAMPLES);
    let features = vec![0.5; BATCH * frames * tables.bins];
    let input = match samples {
        Some(values) => {
            model.set_filterbank(tables).expect("memory");
            Input { values, batch: BATCH, frames: SAMPLES }
        }
        None => Input { values: &features, batch: BATCH, frames },
    };
    let labels: Vec<usize> = (0..BATCH).map(|item| item * 23 % CLASSES).collect();
    let margin = Margin { scale: 32.0, margin: 0.2, easy: false };
    model.stage(input).expect("memory");
    median_ms(super::cuda::WARM_UP, REPEATS, || {
        model.launch(&labels, margin).expect("a pass");
        model.stage(input).expect("memory"); // the next batch, while the GPU works on this one
        model.outcome().expect("a loss");
    })
}
