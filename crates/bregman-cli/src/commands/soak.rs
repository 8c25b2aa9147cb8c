//! `bregman bench --soak`: a server's day in short. Many threads embed utterances of all lengths with all models for a
//! while; memory must stay flat and every embedding must stay what it was the first time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bregman_base::Rng;
use bregman_runtime::Model;
use bregman_speaker::Progress;
use serde::Serialize;

use super::bench::noise;
use crate::failure::Failure;
use crate::output::{Bar, table};

/// Lengths of the utterances, in seconds: short commands to long answers.
const LENGTHS: [f64; 6] = [0.5, 1.0, 2.0, 3.0, 5.0, 10.0];

/// How often memory is measured.
const SAMPLES: u32 = 50;

/// What it found; also what `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct SoakReport {
    seconds: f64,
    threads: usize,
    models: usize,
    requests: usize,
    requests_per_second: f64,
    /// From the request to its embedding.
    latency_ms: Latency,
    /// Resident memory over time, in MB; empty where the system does not say.
    memory_mb: Vec<f64>,
    /// From the end of the first quarter to the end.
    growth_mb: Option<f64>,
    /// The part of it that is buffers of more requests at a time than there had been before.
    buffers_mb: f64,
    /// Embeddings that were not those of the first time.
    different: usize,
}

#[derive(Debug, Serialize)]
struct Latency {
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

/// How many requests took how long, in classes one hundredth wide: a day of them needs no more memory than a second.
struct Histogram {
    counts: Vec<usize>,
    max: f64,
}

impl Histogram {
    /// A microsecond; nothing is faster.
    const LEAST_MS: f64 = 1e-3;
    const WIDTH: f64 = 1.01;
    /// Up to a quarter of an hour.
    const CLASSES: usize = 2072;

    fn new() -> Self {
        Self { counts: vec![0; Self::CLASSES], max: 0.0 }
    }

    fn add(&mut self, ms: f64) {
        let class = (ms / Self::LEAST_MS).max(1.0).ln() / Self::WIDTH.ln();
        self.counts[(class as usize).min(Self::CLASSES - 1)] += 1;
        self.max = self.max.max(ms);
    }

    fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, other)| *count += other);
        self.max = self.max.max(other.max);
    }

    fn total(&self) -> usize {
        self.counts.iter().sum()
    }

    /// The time that a share of the requests needed at most.
    fn percentile(&self, share: f64) -> f64 {
        let (wanted, mut seen) = ((share * self.total() as f64).ceil() as usize, 0);
        let reached = |count: &usize| {
            seen += count;
            seen >= wanted
        };
        let class = self.counts.iter().position(reached).unwrap_or(Self::CLASSES - 1);
        (Self::LEAST_MS * Self::WIDTH.powi(class as i32 + 1)).min(self.max)
    }
}

impl Latency {
    fn of(times: &Histogram) -> Self {
        let [p50, p90, p99, p999] = [0.5, 0.9, 0.99, 0.999].map(|share| times.percentile(share));
        Self { p50, p90, p99, p999, max: times.max }
    }
}

/// Growth that is no leak but the allocator's own making.
fn allowed_mb(before: f64) -> f64 {
    8.0 + 0.02 * before
}

/// One thread's requests.
struct Served {
    times: Histogram,
    different: usize,
}

/// `90`, `90s`, `15m` or `8h`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) if text.ends_with('m') => (number, 60.0),
        Some(number) if text.ends_with('h') => (number, 3600.0),
        Some(number) => (number, 1.0),
        None => (text, 1.0),
    };
    let seconds = number.parse::<f64>().ok().map(|number| number * unit);
    match seconds.filter(|seconds| (0.1..=1e7).contains(seconds)) {
        Some(seconds) => Ok(Duration::from_secs_f64(seconds)),
        None => Err("pass a time such as 90s, 15m or 8h, at least 0.1 s".to_owned()),
    }
}

/// Embeds for `duration` on `threads` threads.
pub(super) fn soak(models: &[Model], duration: Duration, threads: usize) -> Result<SoakReport, Failure> {
    let inputs: Vec<(&Model, Vec<f32>)> =
        models.iter().flat_map(|model| LENGTHS.map(|seconds| (model, noise(model, seconds)))).collect();
    let first: Vec<Vec<f32>> = inputs.iter().map(|(model, samples)| model.embed(samples)).collect::<Result<_, _>>()?;
    let (over, problem, served) = (AtomicBool::new(false), Mutex::new(None), Mutex::new(Vec::new()));
    let serve = |thread: usize| {
        let (mut rng, mut mine) = (Rng::new(thread as u64), Served { times: Histogram::new(), different: 0 });
        // each of them once, whatever the time, so that all buffers are as large as they become
        let each = (0..inputs.len()).rev();
        for (served, which) in each.chain(std::iter::repeat_with(|| rng.below(inputs.len()))).enumerate() {
            if served >= inputs.len() && over.load(Ordering::Relaxed) {
                break;
            }
            let (model, samples) = &inputs[which];
            let start = Instant::now();
            match model.embed(samples) {
                Ok(embedding) => mine.different += usize::from(embedding != first[which]),
                Err(error) => {
                    *problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    over.store(true, Ordering::Relaxed);
                    break;
                }
            }
            mine.times.add(start.elapsed().as_secs_f64() * 1e3);
        }
        served.lock().unwrap_or_else(PoisonError::into_inner).push(mine);
    };
    let known_mb = || models.iter().map(Model::memory).sum::<usize>() as f64 / 1e6;
    let (start, mut memory_mb, mut known_before) = (Instant::now(), Vec::new(), 0.0);
    std::thread::scope(|scope| {
        let serve = &serve;
        (0..threads).for_each(|thread| drop(scope.spawn(move || serve(thread))));
        let bar = Bar::new("serving");
        bar.begin(SAMPLES as usize);
        for sample in 1..=SAMPLES {
            let until = start + duration * sample / SAMPLES;
            while Instant::now() < until && !over.load(Ordering::Relaxed) {
                std::thread::sleep((until - Instant::now()).min(Duration::from_millis(100)));
            }
            memory_mb.extend(resident_mb());
            if sample == SAMPLES / 4 + 1 {
                known_before = known_mb();
            }
            bar.step();
        }
        over.store(true, Ordering::Relaxed);
    });
    if let Some(error) = problem.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error.into());
    }
    let seconds = start.elapsed().as_secs_f64();
    let served = served.into_inner().unwrap_or_else(PoisonError::into_inner);
    let different = served.iter().map(|served| served.different).sum();
    let mut times = Histogram::new();
    served.iter().for_each(|served: &Served| times.merge(&served.times));
    let growth_mb = memory_mb.get(memory_mb.len() / 4).zip(memory_mb.last()).map(|(before, after)| after - before);
    Ok(SoakReport {
        seconds,
        threads,
        models: models.len(),
        requests: times.total(),
        requests_per_second: times.total() as f64 / seconds,
        latency_ms: Latency::of(&times),
        memory_mb,
        growth_mb,
        buffers_mb: (known_mb() - known_before).max(0.0),
        different,
    })
}

impl SoakReport {
    /// An error if memory grew or an embedding changed.
    pub(super) fn verdict(&self) -> Result<(), Failure> {
        if self.different > 0 {
            return Err(Failure::failed(format!(
                "{} of {} embeddings differ from their first result",
                self.different, self.requests
            )));
        }
        let before = self.memory_mb.get(self.memory_mb.len() / 4).copied().unwrap_or(0.0);
        match self.growth_mb {
            Some(growth) if growth > self.buffers_mb + allowed_mb(before) => Err(Failure::failed(format!(
                "memory grew by {growth:.1} MB after the first quarter, from {before:.1} MB, and only {:.1} MB of that \
                 are buffers of more requests at a time",
                self.buffers_mb
            ))),
            _ => Ok(()),
        }
    }

    pub(super) fn text(&self) -> String {
        let Self { seconds, threads, models, requests, requests_per_second, latency_ms, .. } = self;
        let memory = match (self.memory_mb.iter().copied().reduce(f64::max), self.growth_mb) {
            (Some(most), Some(growth)) => format!("{most:.1} MB at most, {growth:+.1} MB after the first quarter"),
            _ => "this system does not say".to_owned(),
        };
        let row = |share: &str, ms: f64| vec![share.to_owned(), format!("{ms:.2}")];
        let Latency { p50, p90, p99, p999, max } = *latency_ms;
        let rows = [row("p50", p50), row("p90", p90), row("p99", p99), row("p99.9", p999), row("max", max)];
        format!(
            "{requests} requests in {seconds:.1} s from {threads} threads to {models} models: \
             {requests_per_second:.1} a second\nmemory: {memory}\n\n"
        ) + &table(&["latency", "ms"], &rows)
    }
}

/// Memory of this process that is in RAM.
fn resident_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? * 1024.0 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(memory_mb: Vec<f64>, different: usize) -> SoakReport {
        let growth_mb = Some(memory_mb[memory_mb.len() - 1] - memory_mb[memory_mb.len() / 4]);
        let mut times = Histogram::new();
        (1..=1000).rev().for_each(|ms| times.add(f64::from(ms)));
        let latency_ms = Latency::of(&times);
        SoakReport {
            seconds: 1.0,
            threads: 2,
            models: 1,
            requests: 1000,
            requests_per_second: 1000.0,
            latency_ms,
            memory_mb,
            growth_mb,
            buffers_mb: 2.0,
            different,
        }
    }

    #[test]
    fn growing_memory_and_changed_embeddings_are_failures() {
        assert!(report(vec![10.0, 50.0, 55.0, 60.5], 0).verdict().is_ok());
        let message = |report: SoakReport| format!("{:?}", report.verdict().unwrap_err());
        assert!(message(report(vec![10.0, 50.0, 55.0, 61.5], 0)).contains("memory grew by 11.5 MB"));
        assert!(message(report(vec![10.0; 4], 3)).contains("3 of 1000 embeddings"));
    }

    #[test]
    fn percentiles_are_of_all_requests() {
        let Latency { p50, p90, p99, p999, max } = report(vec![1.0; 4], 0).latency_ms;
        let close = |ours: f64, exact: f64| (ours / exact - 1.0).abs() < 0.011;
        assert!(close(p50, 500.0) && close(p90, 900.0) && close(p99, 990.0) && close(p999, 999.0));
        assert_eq!(max, 1000.0);
    }

    #[test]
    fn durations_have_units() {
        let seconds = |text| duration(text).map(|duration| duration.as_secs_f64()).ok();
        assert_eq!(["90", "1.5s", "15m", "8h"].map(seconds), [90.0, 1.5, 900.0, 28_800.0].map(Some));
        assert!(["", "m", "-1s", "0", "1d", "nan", "1e9"].iter().all(|text| duration(text).is_err()));
    }
}
