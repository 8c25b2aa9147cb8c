//! The overhead of NCCL with a single rank: steps of one rank and of a process without ranks, alternating on the same
//! GPU. `CARGO_FEATURES=cuda bench/run train_step --device cuda nccl`.

use std::time::Instant;

use bregman::{AdaBreg, Freeze, Optimizer, Rule};
use bregman_bench::{ratio, table};
use bregman_nn::{Extent, Input, Rng, TrainableModel};
use bregman_tensor::cuda::{Cuda, DeviceArrays, NcclRanks};
use bregman_tensor::{DeviceMemory, Margin, Precision, Ranks};

use super::{CLASSES, FEATURES, architecture, groups};

const BATCH: usize = 256;
const FRAMES: usize = 300;
/// Steps in a row of either side, how often they take turns, and the first turns, in which steps are captured.
const STEPS: usize = 20;
const TURNS: usize = 7;
const WARM_UP: usize = 2;
/// m of frozen support: every m-th step is full.
const PERIOD: u64 = 10;

pub(super) fn compare() {
    let joined = NcclRanks::join(0, 0, 1, "127.0.0.1:29499").expect("a GPU and NCCL");
    let ranks = Ranks::new(joined);
    let (mut rows, mut ratios) = (Vec::new(), Vec::new());
    for (name, zeros, every) in [("dense", 0.0, 1), ("95", 0.95, 1), ("95-frozen", 0.95, PERIOD)] {
        let [mut alone, mut ranked] =
            [&Ranks::ALONE, &ranks].map(|ranks| GpuTraining::new(ranks.clone(), zeros, every));
        let mut times = [Vec::new(), Vec::new()];
        for turn in 0..TURNS {
            for (training, times) in [&mut alone, &mut ranked].into_iter().zip(&mut times) {
                let taken: Vec<f64> = (0..STEPS).map(|_| training.step()).collect();
                if turn >= WARM_UP {
                    times.extend(taken);
                }
            }
        }
        // of frozen steps the mean, to which the full ones belong
        let [alone, ranked] = times.map(|times| if every > 1 { mean(&times) } else { median(times) });
        rows.push(vec![
            name.to_owned(),
            format!("{alone:.3}"),
            format!("{ranked:.3}"),
            format!("{:.4}", ranked / alone),
        ]);
        ratios.push((format!("ecapa-cuda-bf16-{name}-nccl"), ranked, alone));
    }
    println!("\necapa, bf16, {BATCH} × {FRAMES} frames, one GPU, milliseconds");
    table(&["training step", "without ranks", "one rank by NCCL", "ratio"], &rows);
    ratios.iter().for_each(|(name, ranked, alone)| ratio(name, *ranked, *alone));
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}

/// ECAPA with some weights zero, AdaBreg and a batch that is always the same.
struct GpuTraining {
    ranks: Ranks,
    model: TrainableModel<Cuda>,
    optimizer: Optimizer<DeviceArrays>,
    values: Vec<f32>,
    labels: Vec<usize>,
}

impl GpuTraining {
    fn new(ranks: Ranks, zeros: f32, every: u64) -> Self {
        let cuda = Cuda::open(0, Precision::Bf16).and_then(|cuda| cuda.with_ranks(&ranks)).expect("a GPU");
        let mut model = TrainableModel::new(cuda, &architecture("ecapa"), Some(CLASSES), 0).expect("a valid network");
        let mut rng = Rng::new(1);
        let mut weights = Vec::new();
        let groups = groups(model.params());
        let (backend, params) = model.parts_mut();
        for parameter in params.all_mut() {
            let mut values = vec![0.0; parameter.param.len()];
            backend.download(&parameter.value, &mut values).expect("weights");
            if parameter.param.shape.len() > 1 {
                let dropped = |_: &&mut f32| 0.5 * (1.0 + rng.symmetric(1.0)) < zeros;
                values.iter_mut().filter(dropped).for_each(|weight| *weight = 0.0);
            }
            backend.upload(&values, &mut parameter.value).expect("weights");
            weights.push(values);
        }
        // λ far above the learning rate keeps the zeros; λ ≈ 0 creates none
        let lambda = if zeros > 0.0 { 1.0 } else { 1e-9 };
        let optimizer = Optimizer::new(Rule::AdaBreg(AdaBreg::default()), groups, lambda, &weights);
        let mut optimizer = optimizer.expect("an optimizer");
        optimizer.set_freeze(Freeze { every, ..Freeze::default() }).expect("AdaBreg has a threshold");
        for (tensor, parameter) in model.params_mut().all_mut().iter_mut().enumerate() {
            parameter.sparse = optimizer.is_sparse(tensor);
        }
        model.refresh().expect("a refresh");
        let optimizer = optimizer.place(|arrays| model.backend().place_arrays(&arrays)).expect("memory");
        let values = (0..BATCH * FRAMES * FEATURES).map(|_| rng.symmetric(1.7)).collect();
        let labels = (0..BATCH).map(|item| item * 23 % CLASSES).collect();
        let mut training = Self { ranks, model, optimizer, values, labels };
        training.stage();
        training
    }

    fn stage(&mut self) {
        self.model.stage(Input { values: &self.values, batch: BATCH, frames: FRAMES }).expect("memory");
    }

    /// Milliseconds of a step, the next batch staged meanwhile.
    fn step(&mut self) -> f64 {
        let start = Instant::now();
        let extent = if self.optimizer.next_is_full() { Extent::All } else { Extent::Support };
        self.model.set_extent(extent);
        if !self.ranks.is_alone() {
            self.model.set_share(1.0);
        }
        let margin = Margin { scale: 32.0, margin: 0.2, easy: false };
        self.model.launch(&self.labels, margin).expect("a pass");
        self.stage();
        self.model.outcome().expect("a loss");
        self.ranks.sum(&mut [0.0; 4]).expect("nobody is gone"); // as trainings sum losses and hits
        let (mut theta, grads) = self.model.parts_mut().1.values_and_gradients();
        self.optimizer.step_on(&mut theta, &grads, 1e-4).expect("a step");
        self.model.refresh_after(extent).expect("a refresh");
        self.model.backend().synchronize().expect("the device");
        start.elapsed().as_secs_f64() * 1e3
    }
}
