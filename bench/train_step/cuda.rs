//! The step on a GPU, against PyTorch on the same GPU: `CARGO_FEATURES=cuda bench/run train_step --device cuda
//! [WORD…]`. Words choose: a network, a precision (f32, tf32, bf16; each is compared with PyTorch in the same
//! arithmetic), a way of PyTorch's (eager, compiled, max-autotune), `ours` for our side alone, `deterministic` for our
//! results repeatable to the bit.

use bregman_bench::{BareStep, peer, ratio, table};
use bregman_nn::{Input, Rng};
use bregman_tensor::cuda::Cuda;
use bregman_tensor::{Device, Precision};
use serde_json::Value;

use super::{CLASSES, FEATURES, NETWORKS, architecture};

const FRAMES: usize = 300;
const REPEATS: usize = 20;
/// Steps before the work of either input buffer has been captured and is replayed.
pub(super) const WARM_UP: usize = 8;

/// Milliseconds of forward and backward with the upload of the batch, of the optimizer with its counts, each waited
/// for; and of the step as it is trained, upload and reading beside the work. Gigabytes in use.
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
    let wanted = |name: &str, all: &[&str]| chosen.contains(&name) || !all.iter().any(|name| chosen.contains(name));
    let precisions = Precision::ALL.map(|precision| (precision.to_string(), precision));
    let names: Vec<&str> = precisions.iter().map(|(name, _)| name.as_str()).collect();
    for network in NETWORKS.into_iter().filter(|network| wanted(network, &NETWORKS)) {
        for (name, precision) in precisions.iter().filter(|(name, _)| wanted(name, &names)) {
            let ours = measure(network, *precision, chosen.contains(&"deterministic"));
            let mut rows = vec![row("bregman", &ours)];
            let theirs = if chosen.contains(&"ours") { vec![] } else { theirs(network, name, chosen) };
            rows.extend(theirs.iter().map(|(label, measured)| row(&format!("PyTorch {label}"), measured)));
            println!("\n{network}, {name}, {} × {FRAMES} frames, {CLASSES} classes, milliseconds", batch(network));
            table(&["", "forward + backward", "AdaBreg + count", "step", "GB"], &rows);
            if let Some((_, best)) = theirs.iter().min_by(|(_, a), (_, b)| a.step.total_cmp(&b.step)) {
                ratio(&format!("{network}-cuda-{name}"), ours.step, best.step);
                ratio(&format!("{network}-cuda-{name}-gradients"), ours.gradients, best.gradients);
                ratio(&format!("{network}-cuda-{name}-optimizer"), ours.optimizer, best.optimizer);
                ratio(&format!("{network}-cuda-{name}-memory"), ours.gigabytes, best.gigabytes);
            }
        }
    }
}

fn row(label: &str, measured: &Measured) -> Vec<String> {
    let Measured { gradients, optimizer, step, gigabytes } = measured;
    let number = |value: &f64| format!("{value:.2}");
    vec![label.to_owned(), number(gradients), number(optimizer), number(step), format!("{gigabytes:.1}")]
}

/// PyTorch's ways to do the same step in the same arithmetic.
fn theirs(network: &str, precision: &str, chosen: &[&str]) -> Vec<(String, Measured)> {
    let (batch, frames) = (batch(network).to_string(), FRAMES.to_string());
    let mut arguments = vec![network, "cuda", "0", &batch, &frames, "20", precision];
    arguments.extend(chosen.iter().filter(|word| ["eager", "compiled", "max-autotune"].contains(word)));
    let theirs = peer("train_step", &arguments);
    let read = |(label, result): (&String, &Value)| {
        let value = |key: &str| result[key].as_f64().expect("a number");
        let (gradients, optimizer, step, gigabytes) =
            (value("gradients"), value("optimizer"), value("step"), value("gb"));
        (label.clone(), Measured { gradients, optimizer, step, gigabytes })
    };
    theirs.as_object().expect("a table").iter().map(read).collect()
}

fn measure(network: &str, precision: Precision, deterministic: bool) -> Measured {
    let mut cuda = Cuda::open(0, precision).expect("a GPU");
    cuda.set_deterministic(deterministic);
    let before = cuda.memory_in_use().expect("memory");
    let mut step = BareStep::new(cuda, &architecture(network), CLASSES);
    let mut rng = Rng::new(1);
    let batch = batch(network);
    let values: Vec<f32> = (0..batch * FRAMES * FEATURES).map(|_| rng.symmetric(1.7)).collect();
    let labels: Vec<usize> = (0..batch).map(|item| item * 23 % CLASSES).collect();
    let input = Input { values: &values, batch, frames: FRAMES };
    step.run(input, &labels, WARM_UP);
    let repeats = if precision == Precision::F32 { REPEATS / 4 } else { REPEATS };
    let parts: Vec<[f64; 2]> = (0..repeats).map(|_| step.parts(input, &labels)).collect();
    let median = |part: usize| {
        let mut values: Vec<f64> = parts.iter().map(|times| times[part]).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let whole = step.run(input, &labels, 2 * repeats).as_secs_f64() * 1e3 / (2 * repeats) as f64;
    let gigabytes = (step.model.backend().memory_in_use().expect("memory") - before) as f64 / 1e9;
    Measured { gradients: median(0), optimizer: median(1), step: whole, gigabytes }
}
