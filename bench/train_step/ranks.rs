//! A step of one process and of two that sum their gradients, against PyTorch's DDP with gloo: a thread each, the same
//! batch each, so that an efficiency of 1 is twice the work in the same time.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bregman::Freeze;
use bregman_bench::{median_ms, peer, ratio, table};
use bregman_tensor::{Communicator, Cpu, Mpi, PendingSum, Ranks, Result};
use serde_json::{Value, json};

use super::Training;

const BATCH: usize = 4;
const FRAMES: usize = 300;
const REPEATS: usize = 7;

/// Both sides of one network in f32.
pub(crate) fn compare(network: &str) {
    let (batch, frames, repeats) = (BATCH.to_string(), FRAMES.to_string(), REPEATS.to_string());
    let theirs = |processes: &str| {
        let result = peer("train_step", &[network, "ddp", processes, &batch, &frames, &repeats]);
        result["ms"].as_f64().expect("a measurement")
    };
    let (mut rows, mut ratios) = (Vec::new(), Vec::new());
    let mut row = |label: String, one: f64, two: f64, bytes: Option<f64>| {
        let megabytes = bytes.map_or_else(String::new, |bytes| format!("{:.1}", bytes / 1e6));
        rows.push(vec![label, format!("{one:.0}"), format!("{two:.0}"), format!("{:.2}", one / two), megabytes]);
    };
    let (peer_one, peer_two) = (theirs("1"), theirs("2"));
    row("PyTorch DDP, gloo".to_owned(), peer_one, peer_two, None);
    for (label, name, sparsity, step) in [
        ("bregman, dense", "dense", "dense", "full"),
        ("bregman, 95 % zeros", "95", "95", "full"),
        ("bregman, 95 % zeros, on the support", "95-support", "95", "support"),
    ] {
        let [one, two] = ["1", "2"].map(|processes| ours(processes, network, sparsity, step));
        let ms = |result: &Value| result["ms"].as_f64().expect("a measurement");
        row(label.to_owned(), ms(&one), ms(&two), two["bytes"].as_f64());
        ratios.push((format!("{network}-f32-{name}-2ranks"), ms(&two), peer_two));
    }
    println!("\n{network}, f32, {BATCH} × {FRAMES} frames and one thread for each process");
    table(&["training step", "1 process, ms", "2 processes, ms", "efficiency", "MB sent"], &rows);
    ratios.iter().for_each(|(name, ours, theirs)| ratio(name, *ours, *theirs));
}

/// Runs `measure ranks ARGS` in so many processes; rank 0 prints.
fn ours(processes: &str, network: &str, sparsity: &str, step: &str) -> Value {
    let mut mpirun = Command::new("mpirun");
    mpirun.args(["--bind-to", "core", "--mca", "mpi_yield_when_idle", "1", "-n", processes]);
    mpirun.arg(std::env::current_exe().expect("this program has a path")).args(["measure", "ranks"]);
    mpirun.args([network, sparsity, step]).env("RAYON_NUM_THREADS", "1");
    mpirun.envs(["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"].map(|name| (name, "1")));
    let output = mpirun.output().expect("mpirun starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a JSON line")
}

/// This process' part of the measurement.
pub(crate) fn measure(network: &str, sparsity: &str, step: &str) {
    let sent = Arc::new(AtomicU64::new(0));
    let mpi = Mpi::join().expect("started by mpirun");
    let ranks = Ranks::new(Counting { mpi, sent: sent.clone() });
    let device = Cpu::new().with_ranks(ranks.clone());
    let mut training = Training::on(device, network, sparsity, BATCH, FRAMES);
    if step == "support" {
        // the first step is full, those that are timed are not
        training.optimizer.set_freeze(Freeze { every: 1000, ..Freeze::default() }).expect("a period");
    }
    let ms = median_ms(2, REPEATS, || training.step_with(&ranks));
    let before = sent.load(Ordering::Relaxed);
    training.step_with(&ranks);
    let bytes = 4 * (sent.load(Ordering::Relaxed) - before);
    if ranks.leads() {
        println!("{}", json!({ "ms": ms, "bytes": bytes }));
    }
    ranks.leave();
}

/// Counts the gradients that are sent.
struct Counting {
    mpi: Mpi,
    sent: Arc<AtomicU64>,
}

impl Communicator for Counting {
    fn rank(&self) -> usize {
        self.mpi.rank()
    }

    fn size(&self) -> usize {
        self.mpi.size()
    }

    fn start_sum(&self, values: Vec<f32>) -> PendingSum {
        self.sent.fetch_add(values.len() as u64, Ordering::Relaxed);
        self.mpi.start_sum(values)
    }

    fn sum(&self, values: &mut [f64]) -> Result<()> {
        self.mpi.sum(values)
    }

    fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.mpi.gather(own)
    }

    fn abort(&self, code: i32) -> ! {
        self.mpi.abort(code)
    }

    fn leave(&self) {
        self.mpi.leave();
    }
}
