//! Frozen support: every tenth step is full, in the others only weights that are not zero have a gradient and move.

use std::time::Instant;

use bregman::Freeze;
use bregman_bench::{peer, ratio, table};
use serde_json::{Value, json};

use super::{Training, alone, peak_mb};

/// m: every m-th step is full.
const PERIOD: usize = 10;
const PERIODS: usize = 4;
/// Steps before the first that is measured.
const WARM_UP: usize = 2;
const SPARSITIES: [&str; 2] = ["95", "99"];

/// Both sides of one network in one precision; ours is the mean over a period.
pub(super) fn compare(network: &str, precision: &str) {
    let threads = rayon::current_num_threads().to_string();
    let theirs = peer("train_step", &[network, precision, &threads, "8", "300", "5"]);
    let value = |result: &Value, key: &str| result[key].as_f64().expect("a measurement");
    let cells = |label: String, times: [f64; 3]| {
        let times = times.map(|ms| if ms.is_nan() { String::new() } else { format!("{ms:.0}") });
        [label].into_iter().chain(times).collect::<Vec<String>>()
    };
    let torch = value(&theirs, "ms");
    let mut rows = vec![cells("PyTorch, dense".to_owned(), [torch, f64::NAN, torch])];
    rows[0].push("1.00".to_owned());
    let mut ratios = Vec::new();
    for sparsity in SPARSITIES {
        let ours = alone(&["frozen", network, precision, sparsity]);
        let [full, support, mean] = ["full", "support", "ms"].map(|key| value(&ours, key));
        let mut row = cells(format!("bregman, {sparsity} % zeros"), [full, support, mean]);
        row.push(format!("{:.2}", mean / torch));
        rows.push(row);
        ratios.push((format!("{network}-{precision}-{sparsity}-frozen"), mean));
    }
    println!("\n{network}, {precision}, 8 × 300 frames, {threads} threads, one full step in {PERIOD}");
    table(&["training step, ms", "full", "on the support", "mean", "ratio"], &rows);
    ratios.iter().for_each(|(name, ours)| ratio(name, *ours, torch));
}

/// Medians of the full steps and of the others, and the mean over a period of these.
pub(super) fn measure(network: &str, precision: &str, sparsity: &str) -> Value {
    let mut training = Training::new(network, precision, sparsity, 8, 300);
    training
        .optimizer
        .set_freeze(Freeze { every: PERIOD as u64, ..Freeze::default() })
        .expect("AdaBreg has a threshold");
    let [mut full, mut support] = [Vec::new(), Vec::new()];
    for step in 0..PERIODS * PERIOD {
        let is_full = training.optimizer.next_is_full();
        let start = Instant::now();
        training.step();
        let ms = start.elapsed().as_secs_f64() * 1e3;
        if step >= WARM_UP {
            if is_full { &mut full } else { &mut support }.push(ms);
        }
    }
    let [full, support] = [full, support].map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    let mean = (full + (PERIOD - 1) as f64 * support) / PERIOD as f64;
    json!({ "ms": mean, "full": full, "support": support, "peak_mb": peak_mb() })
}
