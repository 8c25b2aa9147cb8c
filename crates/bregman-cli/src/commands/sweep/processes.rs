//! The programs of a sweep: started with their share of the cores, asked to stop, read at their end.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bregman_base::files::append_to;
use serde_json::Value;

use crate::exit::Exit;
use crate::ranks;

/// The programs that are running now, by their numbers.
pub(super) type Children = Mutex<Vec<u32>>;

/// One worker less when it ends, however it ends.
pub(super) struct Countdown<'a>(pub(super) &'a AtomicUsize);

impl Drop for Countdown<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Asks the running programs to stop when this one is asked to. From a terminal they have been asked already; they take
/// the two for one.
pub(super) fn pass_on(stop: &AtomicBool, workers: &AtomicUsize, children: &Children) {
    let mut told = Vec::new();
    while workers.load(Ordering::Relaxed) > 0 {
        if stop.load(Ordering::Relaxed) {
            let running = children.lock().expect("no thread panics while it holds the numbers").clone();
            for child in running.into_iter().filter(|child| !told.contains(child)).collect::<Vec<_>>() {
                let _ = Command::new("kill").arg(child.to_string()).status(); // SIGTERM
                told.push(child);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The log beside a run.
pub(super) fn log_of(run: &Path) -> PathBuf {
    let mut name = run.as_os_str().to_owned();
    name.push(".log");
    name.into()
}

/// This program, with its share of the cores.
pub(super) fn program(jobs: usize) -> Result<Command, String> {
    let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
    ranks::start_alone(&mut command);
    if jobs > 1 && std::env::var_os("RAYON_NUM_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        command.env("RAYON_NUM_THREADS", (cores / jobs).max(1).to_string());
    }
    Ok(command)
}

/// Runs a command to its end; its messages go to `log`, its JSON comes back.
pub(super) fn finish(command: &mut Command, log: &Path, children: &Children) -> Result<Value, String> {
    let file = append_to(log).map_err(|error| error.to_string())?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
    let child = command.spawn().map_err(|error| error.to_string())?;
    let number = child.id();
    children.lock().expect("no thread panics while it holds the numbers").push(number);
    let output = child.wait_with_output().map_err(|error| error.to_string());
    children.lock().expect("no thread panics while it holds the numbers").retain(|&child| child != number);
    let output = output?;
    if output.status.code() == Some(i32::from(Exit::Interrupted as u8)) {
        return Err("interrupted".to_owned());
    }
    if !output.status.success() {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let error = text.lines().rev().find_map(|line| line.strip_prefix("error: ")).map(str::to_owned);
        return Err(error.unwrap_or_else(|| format!("{}; see {}", output.status, log.display())));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("its output is not JSON: {error}"))
}
