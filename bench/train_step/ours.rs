//! One training step (forward, backward, AdaBreg, refresh of the compressed weights) of ECAPA-TDNN C1024 and ResNet34,
//! 8 × 3 s, 5994 classes, against PyTorch.
//!
//! `bench/run train_step` runs everything; `bench/run train_step frozen` steps between which only weights that are not
//! zero move; `CARGO_FEATURES=mpi bench/run train_step ranks` two processes that sum their gradients;
//! `bench/run train_step ecapa f32` one network in one precision. Every
//! measurement runs in its own process, so that its peak memory can be measured.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "cuda")]
mod features;
mod frozen;
#[cfg(feature = "cuda")]
mod nccl;
#[cfg(feature = "mpi")]
mod ranks;

use std::process::Command;

use bregman::{AdaBreg, Groups, Optimizer, Rule};
use bregman_bench::{median_ms, peer, ratio, table};
use bregman_nn::{Architecture, EcapaConfig, Extent, Input, Params, ResNetConfig, Rng, TrainableModel};
use bregman_tensor::{Backend, Cpu, Margin, Precision, Ranks};
use serde_json::{Value, json};

const CLASSES: usize = 5994;
const FEATURES: usize = 80;
/// What every recipe of a Bregman method clips the norm of the gradient to.
const CLIP: f32 = 1.0;
const NETWORKS: [&str; 2] = ["ecapa", "resnet34"];
const PRECISIONS: [&str; 2] = ["f32", "bf16"];
const SPARSITIES: [&str; 4] = ["dense", "90", "95", "99"];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["measure", network, precision, sparsity, batch, frames, repeats] => {
            let number = |text: &str| text.parse().expect("a number");
            println!("{}", measure(network, precision, sparsity, number(batch), number(frames), number(repeats)));
        }
        ["measure", "frozen", network, precision, sparsity] => {
            println!("{}", frozen::measure(network, precision, sparsity));
        }
        #[cfg(feature = "mpi")]
        ["measure", "ranks", network, sparsity, step] => ranks::measure(network, sparsity, step),
        #[cfg(feature = "mpi")]
        ["ranks", chosen @ ..] => {
            NETWORKS.into_iter().filter(|name| chosen.is_empty() || chosen.contains(name)).for_each(ranks::compare);
        }
        #[cfg(not(feature = "mpi"))]
        ["ranks", ..] => panic!("this bench was built without MPI: CARGO_FEATURES=mpi bench/run train_step ranks"),
        ["frozen", chosen @ ..] => each(chosen, frozen::compare),
        ["growth"] => growth(),
        #[cfg(feature = "cuda")]
        ["--device", "cuda", "features"] => features::compare(),
        #[cfg(feature = "cuda")]
        ["--device", "cuda", "nccl"] => nccl::compare(),
        #[cfg(feature = "cuda")]
        ["--device", "cuda", chosen @ ..] => cuda::compare(chosen),
        #[cfg(not(feature = "cuda"))]
        ["--device", "cuda", ..] => {
            panic!("this bench was built without CUDA: CARGO_FEATURES=cuda bench/run train_step --device cuda")
        }
        chosen => each(chosen, compare),
    }
}

/// Calls `work(network, precision)` for those among `chosen`, or for all.
fn each(chosen: &[&str], work: fn(&str, &str)) {
    let wanted = |name: &str, all: &[&str]| chosen.contains(&name) || !chosen.iter().any(|chosen| all.contains(chosen));
    for network in NETWORKS.into_iter().filter(|name| wanted(name, &NETWORKS)) {
        for precision in PRECISIONS.into_iter().filter(|name| wanted(name, &PRECISIONS)) {
            work(network, precision);
        }
    }
}

/// Both sides of one network in one precision.
fn compare(network: &str, precision: &str) {
    let threads = rayon::current_num_threads().to_string();
    let theirs = peer("train_step", &[network, precision, &threads, "8", "300", "5"]);
    let cell = |result: &Value, key: &str| format!("{:.0}", result[key].as_f64().unwrap_or(f64::NAN));
    let mut rows = vec![vec!["PyTorch".to_owned(), cell(&theirs, "ms"), "1.00".to_owned(), cell(&theirs, "peak_mb")]];
    let value = |result: &Value, key: &str| result[key].as_f64().expect("a measurement");
    let mut ratios = Vec::new();
    for sparsity in SPARSITIES {
        let ours = alone(&[network, precision, sparsity, "8", "300", "5"]);
        let label =
            if sparsity == "dense" { "bregman, dense".to_owned() } else { format!("bregman, {sparsity} % zeros") };
        let quotient = value(&ours, "ms") / value(&theirs, "ms");
        rows.push(vec![label, cell(&ours, "ms"), format!("{quotient:.2}"), cell(&ours, "peak_mb")]);
        ratios.push((format!("{network}-{precision}-{sparsity}"), value(&ours, "ms"), value(&theirs, "ms")));
        if sparsity == "dense" {
            ratios.push((format!("{network}-{precision}-memory"), value(&ours, "peak_mb"), value(&theirs, "peak_mb")));
        }
    }
    println!("\n{network}, {precision}, 8 × 300 frames, {threads} threads");
    table(&["training step", "ms", "ratio", "peak MB"], &rows);
    ratios.iter().for_each(|(name, ours, theirs)| ratio(name, *ours, *theirs));
}

/// How the cost of a dense f32 step grows with batch and frames.
fn growth() {
    for network in NETWORKS {
        let mut rows = Vec::new();
        for (batch, frames) in [(2, 300), (4, 300), (8, 300), (8, 75), (8, 150)] {
            let result = alone(&[network, "f32", "dense", &batch.to_string(), &frames.to_string(), "3"]);
            let ms = result["ms"].as_f64().expect("a measurement");
            let each = ms / (batch * frames) as f64 * 1e3;
            rows.push(vec![
                format!("{batch} × {frames}"),
                format!("{ms:.0}"),
                format!("{each:.0}"),
                format!("{:.0}", result["peak_mb"].as_f64().unwrap_or(f64::NAN)),
            ]);
        }
        println!("\n{network}, f32, dense");
        table(&["batch × frames", "ms", "µs per frame", "peak MB"], &rows);
    }
}

/// Runs `measure ARGS` in its own process.
fn alone(args: &[&str]) -> Value {
    let program = std::env::current_exe().expect("this program has a path");
    let output = Command::new(program).arg("measure").args(args).output().expect("this program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a JSON line")
}

fn measure(network: &str, precision: &str, sparsity: &str, batch: usize, frames: usize, repeats: usize) -> Value {
    let mut training = Training::new(network, precision, sparsity, batch, frames);
    let ms = median_ms(2, repeats, || training.step());
    let live = training.optimizer.stats().iter().map(|stats| stats.nonzeros()).sum::<u64>();
    json!({ "ms": ms, "peak_mb": peak_mb(), "live": live })
}

/// A network with random weights, some of them zero, its optimizer and a batch.
struct Training {
    model: TrainableModel<Cpu>,
    optimizer: Optimizer,
    values: Vec<f32>,
    batch: usize,
    frames: usize,
}

impl Training {
    fn new(network: &str, precision: &str, sparsity: &str, batch: usize, frames: usize) -> Self {
        let precision = match precision {
            "f32" => Precision::F32,
            "bf16" => Precision::Bf16,
            other => panic!("no precision {other}"),
        };
        Self::on(Cpu::with_precision(precision), network, sparsity, batch, frames)
    }

    fn on(device: Cpu, network: &str, sparsity: &str, batch: usize, frames: usize) -> Self {
        let architecture = architecture(network);
        let mut model = TrainableModel::new(device, &architecture, Some(CLASSES), 0).expect("a valid network");
        let zeros = if sparsity == "dense" { 0.0 } else { sparsity.parse::<f32>().expect("percent") / 100.0 };
        let mut rng = Rng::new(1);
        for parameter in model.params_mut().all_mut().iter_mut().filter(|parameter| parameter.param.shape.len() > 1) {
            parameter
                .value
                .iter_mut()
                .filter(|_| 0.5 * (1.0 + rng.symmetric(1.0)) < zeros)
                .for_each(|weight| *weight = 0.0);
        }
        model.refresh().expect("a refresh");

        // λ far above the learning rate keeps the zeros; λ ≈ 0 creates none
        let lambda = if zeros > 0.0 { 1.0 } else { 1e-9 };
        let groups = groups(model.params());
        let (values, _) = model.params_mut().values_and_gradients();
        let optimizer =
            Optimizer::new(Rule::AdaBreg(AdaBreg::default()), groups, lambda, &values).expect("an optimizer");
        for (tensor, parameter) in model.params_mut().all_mut().iter_mut().enumerate() {
            parameter.sparse = optimizer.is_sparse(tensor);
        }
        let values = (0..batch * frames * FEATURES).map(|_| rng.symmetric(1.7)).collect();
        Self { model, optimizer, values, batch, frames }
    }

    /// One step, full or on the support as the optimizer says.
    fn step(&mut self) {
        self.step_with(&Ranks::ALONE);
    }

    /// The same, as one of several ranks.
    fn step_with(&mut self, ranks: &Ranks) {
        let Self { model, optimizer, values, batch, frames } = self;
        let extent = if optimizer.next_is_full() { Extent::All } else { Extent::Support };
        let labels: Vec<usize> = (0..*batch).collect();
        let margin = Margin { scale: 32.0, margin: 0.2, easy: false };
        model.set_extent(extent);
        if !ranks.is_alone() {
            model.set_share(1.0 / ranks.size() as f32);
        }
        model.gradients(Input { values, batch: *batch, frames: *frames }, &labels, margin).expect("a step");
        model.clip_gradients(CLIP).expect("a norm");
        let (mut values, gradients) = model.params_mut().values_and_gradients();
        optimizer.step(&mut values, &gradients, 1e-4).expect("an optimizer step");
        model.refresh_after(extent).expect("a refresh");
    }
}

/// The network as published.
fn architecture(network: &str) -> Architecture {
    match network {
        "ecapa" => Architecture::new(FEATURES, EcapaConfig::default()),
        "resnet34" => Architecture::new(FEATURES, ResNetConfig::default()),
        other => panic!("no network {other}"),
    }
}

/// The default groups: ℓ1 on all weights.
fn groups<B: Backend>(params: &Params<B>) -> Groups {
    Groups::resolve(params.described(), vec![]).expect("groups")
}

/// Peak resident memory of this process.
fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok()).map_or(f64::NAN, |kb| kb / 1024.0)
}
