//! Shared by all benches: timing, calling the peer, the table and the `ratio` lines.

mod step;

pub use step::BareStep;

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

/// As in the program.
#[global_allocator]
static ALLOCATOR: bregman_base::LargePages = bregman_base::LargePages;

/// Median of the wall times of `repeats` calls, in milliseconds, after `warmup` untimed calls.
pub fn median_ms(warmup: usize, repeats: usize, mut call: impl FnMut()) -> f64 {
    for _ in 0..warmup {
        call();
    }
    let mut times: Vec<f64> = (0..repeats)
        .map(|_| {
            let start = Instant::now();
            call();
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Runs `bench/NAME/peer.py ARGS…` in the bench's venv and returns the JSON object of its last output line.
///
/// # Panics
/// If the bench was not started through `bench/run`, or the peer fails.
pub fn peer(name: &str, args: &[&str]) -> Value {
    let setting =
        |key: &str| std::env::var(key).unwrap_or_else(|_| panic!("{key} is not set: start this with bench/run {name}"));
    let script: PathBuf = [&setting("BENCH_DIR"), name, "peer.py"].iter().collect();
    let output =
        Command::new(setting("PEER_PYTHON")).arg(&script).args(args).output().expect("the peer's Python starts");
    let (text, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{} failed:\n{log}", script.display());
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last)
        .unwrap_or_else(|_| panic!("{} did not end with a JSON line:\n{text}{log}", script.display()))
}

/// Prints rows under a header, columns aligned: text to the left, everything after the first column to the right.
pub fn table(header: &[&str], rows: &[Vec<String>]) {
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).chain([header[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: &[String]| {
        let padded: Vec<String> = cells
            .iter()
            .zip(&widths)
            .enumerate()
            .map(
                |(column, (cell, &width))| {
                    if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
                },
            )
            .collect();
        println!("{}", padded.join("  "));
    };
    line(&header.iter().map(ToString::to_string).collect::<Vec<_>>());
    println!("{}", "-".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1)));
    rows.iter().for_each(|row| line(row));
}

/// The closing line for tools: ours / theirs, below 1 if we are faster or smaller.
pub fn ratio(name: &str, ours: f64, theirs: f64) {
    println!("ratio {name} {:.4}", ours / theirs);
}
