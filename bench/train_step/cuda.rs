//! The step on a GPU, against PyTorch on the same GPU: `CARGO_FEATURES=cuda bench/run train_step --device cuda
//! [ecapa|resnet34] [bf16] [ours]`.

use std::time::Instant;

use bregman::{AdaBreg, Optimizer, Rule};
use bregman_bench::{peer, ratio, table};
use bregman_nn::{Input, Rng, TrainableModel};
use bregman_tensor::cuda::Cuda;
use bregman_tensor::{DeviceMemory, Margin, Precision};

use super::{CLASSES, FEATURES, NETWORKS, architecture, groups};

const FRAMES: usize = 300;
/// Steps before the work of either input buffer has been captured and is replayed.
pub(super) const WARM_UP: usize = 8;

/// Milliseconds of forward and backward, of the optimizer with its counts, and of the whole step; gigabytes in use.
struct Measured {
    gradients: f64,
    optimizer: f64,
    step: f64,
    gigabytes: f64,
}

fn batch(network: &str) -> usize {
    if network == "ecapa" { 256 } else { 128 }
}

pub(super) fn compare(chosen: &[&str]) {
    let wanted = |network: &&str| chosen.contains(network) || !NETWORKS.iter().any(|name| chosen.contains(name));
    for network in NETWORKS.into_iter().filter(wanted) {
        let mut rows = Vec::new();
        let mut row = |label: &str, m: &Measured| {
            let number = |value: f64| format!("{value:.2}");
            rows.push(vec![
                label.to_owned(),
                number(m.gradients),
                number(m.optimizer),
                number(m.step),
                format!("{:.1}", m.gigabytes),
            ]);
        };
        let mut precisions =
            vec![("bregman f32", Precision::F32), ("bregman tf32", Precision::Tf32), ("bregman bf16", Precision::Bf16)];
        precisions.retain(|(label, _)| label.ends_with("bf16") || !chosen.contains(&"bf16"));
        let mut ours = None;
        for (label, precision) in precisions {
            let measured = measure(network, precision);
            row(label, &measured);
            ours = Some(measured);
        }
        let mut ratios = Vec::new();
        if !chosen.contains(&"ours") {
            let theirs =
                peer("train_step", &[network, "cuda", "0", &batch(network).to_string(), &FRAMES.to_string(), "20"]);
            let (ours, mut best) = (ours.expect("bf16 was measured last"), f64::INFINITY);
            for (label, result) in theirs.as_object().expect("a table") {
                let value = |key: &str| result[key].as_f64().expect("a number");
                let measured = Measured {
                    gradients: value("gradients"),
                    optimizer: value("optimizer"),
                    step: value("step"),
                    gigabytes: value("gb"),
                };
                row(&format!("PyTorch {label}"), &measured);
                if measured.step < best {
                    best = measured.step;
                    ratios = vec![
                        (format!("{network}-cuda-bf16"), ours.step, measured.step),
                        (format!("{network}-cuda-gradients"), ours.gradients, measured.gradients),
                        (format!("{network}-cuda-optimizer"), ours.optimizer, measured.optimizer),
                        (format!("{network}-cuda-memory"), ours.gigabytes, measured.gigabytes),
                    ];
                }
            }
        }
        println!("\n{network}, {} × {FRAMES} frames, {CLASSES} classes, milliseconds", batch(network));
        table(&["", "forward + backward", "AdaBreg + count", "step", "GB"], &rows);
        ratios.iter().for_each(|(name, ours, theirs)| ratio(name, *ours, *theirs));
    }
}

fn measure(network: &str, precision: Precision) -> Measured {
    let cuda = Cuda::open(0, precision).expect("a GPU");
    let before = cuda.memory_in_use().expect("memory");
    let mut model = TrainableModel::new(cuda, &architecture(network), Some(CLASSES), 0).expect("a valid network");
    let weights: Vec<Vec<f32>> = (model.params().all().iter())
        .map(|parameter| {
            let mut values = vec![0.0; parameter.param.len()];
            model.backend().download(&parameter.value, &mut values).expect("weights");
            values
        })
        .collect();
    let optimizer = Optimizer::new(Rule::AdaBreg(AdaBreg::default()), groups(model.params()), 1e-4, &weights)
        .expect("an optimizer");
    let mut optimizer = optimizer.place(|arrays| model.backend().place_arrays(&arrays)).expect("memory");
    let mut rng = Rng::new(1);
    let batch = batch(network);
    let values: Vec<f32> = (0..batch * FRAMES * FEATURES).map(|_| rng.symmetric(1.7)).collect();
    let labels: Vec<usize> = (0..batch).map(|item| item * 23 % CLASSES).collect();
    let margin = Margin { scale: 32.0, margin: 0.2, easy: false };
    let repeats = if precision == Precision::Bf16 { 20 } else { 5 };
    let mut times = Vec::new();
    let input = Input { values: &values, batch, frames: FRAMES };
    model.stage(input).expect("memory");
    for _ in 0..WARM_UP + repeats {
        let start = Instant::now();
        model.launch(&labels, margin).expect("a pass");
        model.stage(input).expect("memory"); // the next batch, while the GPU works on this one
        model.outcome().expect("a loss");
        let between = start.elapsed();
        let (mut theta, grads) = model.parts_mut().1.values_and_gradients();
        optimizer.step_on(&mut theta, &grads, 1e-3).expect("a step");
        let counted = start.elapsed();
        model.refresh().expect("a refresh");
        model.backend().synchronize().expect("the device");
        times.push(
            [between.as_secs_f64(), (counted - between).as_secs_f64(), start.elapsed().as_secs_f64()].map(|s| 1e3 * s),
        );
    }
    let median = |part: usize| {
        let mut values: Vec<f64> = times[WARM_UP..].iter().map(|times| times[part]).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let gigabytes = (model.backend().memory_in_use().expect("memory") - before) as f64 / 1e9;
    Measured { gradients: median(0), optimizer: median(1), step: median(2), gigabytes }
}
