//! `bregman bench`: how fast a model file is here.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bregman_runtime::{BlockCosts, Instructions, KernelCosts, Model, SlidingOptions, ValueFormat};
use serde::Serialize;

use super::soak;
use crate::Outcome;
use crate::failure::Failure;
use crate::output::{print, print_json, table};
use crate::runtime_model::RuntimeSource;

/// Measure how fast a model file is on this machine.
///
/// Latency of one utterance, with and without feature extraction, and throughput of many at a time; on one thread and
/// on all. With --hop also windows that slide over a long recording, with shared work computed once, compared with
/// computing each window from scratch.
///
/// --soak simulates server load: many threads embed utterances of all lengths with all given models. It prints requests
/// per second, latencies and memory, and fails if memory grows or an embedding differs from its first result.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bregman bench model.breg
  bregman bench runs/first                    what `bregman export` would write
  bregman bench model.breg --seconds 10 --repeats 50 --json
  bregman bench model.breg --hop 0.5          windows of 3 s, one every half second
  bregman bench model.breg --calibrate        after measuring this CPU's kernels anew
  bregman bench model.breg small.breg --soak 8h --threads 32")]
pub(crate) struct Args {
    /// Model file (.breg), or a run or checkpoint, measured as `bregman export` would write it; several with --soak
    #[arg(required = true)]
    models: Vec<PathBuf>,
    /// Length of an utterance, and of a window
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Also measure windows that slide so many seconds at a time
    #[arg(long, value_name = "SECONDS")]
    hop: Option<f64>,
    /// First measure kernel costs on this CPU again, choose each layer's kernel by them, and save them
    #[arg(long)]
    calibrate: bool,
    /// Serve mixed requests for so long: 90s, 15m, 8h
    #[arg(long, value_name = "DURATION", value_parser = soak::duration, conflicts_with_all = ["hop", "repeats"])]
    soak: Option<Duration>,
    /// Threads that send requests, each for itself [default: four per core]
    #[arg(long, value_name = "N", requires = "soak")]
    threads: Option<usize>,
    /// Measurements, of which the median counts
    #[arg(long, default_value_t = 21)]
    repeats: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    seconds: f64,
    instructions: String,
    open_ms: f64,
    /// Weights and activations.
    memory_mb: f64,
    /// Nanoseconds, with --calibrate.
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel_costs: Option<KernelCosts>,
    rows: Vec<ThreadsRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sliding: Option<SlidingTimes>,
}

/// Milliseconds on one thread for a second of a long recording, an embedding every `hop` seconds.
#[derive(Debug, Serialize)]
struct SlidingTimes {
    hop: f64,
    /// Of a file.
    file_ms: f64,
    /// As the sound arrives, each embedding up to its last sample.
    live_ms: f64,
    /// Each window computed anew.
    anew_ms: f64,
}

#[derive(Debug, Serialize)]
struct ThreadsRow {
    threads: usize,
    /// Samples to embedding.
    total_ms: f64,
    /// Features to embedding.
    network_ms: f64,
    /// Of many at a time.
    utterances_per_second: f64,
    /// Seconds of audio per second.
    times_real_time: f64,
}

pub(crate) fn run(args: Args) -> Outcome {
    if !(args.seconds > 0.0 && args.seconds <= 3600.0) || args.repeats == 0 {
        return Err(Failure::mistake(
            "--seconds or --repeats out of range",
            "pass 0 to 3600 seconds, and at least 1 repeat",
        ));
    }
    let kernel_costs = args.calibrate.then(|| KernelCosts::measure(Instructions::best()));
    if let Some(duration) = args.soak {
        return soaked(&args, duration);
    }
    let [model] = &args.models[..] else {
        return Err(Failure::mistake("more than one model", "pass one, or serve them all: --soak 1m"));
    };
    let source = RuntimeSource::find(model, ValueFormat::F16)?;
    let start = Instant::now();
    let single = source.open(1)?;
    let open_ms = start.elapsed().as_secs_f64() * 1e3;
    let mut rows = vec![measure(&single, &args)?];
    let all = source.open(0)?;
    if all.threads() > 1 {
        rows.push(measure(&all, &args)?);
    }
    let instructions = format!("{:?}", Instructions::best());
    let memory_mb = single.memory() as f64 / 1e6;
    let sliding = args.hop.map(|hop| sliding(&single, &args, hop, rows[0].total_ms)).transpose()?;
    let report = Report { seconds: args.seconds, instructions, open_ms, memory_mb, kernel_costs, rows, sliding };
    if args.json { print_json(&report) } else { print(&text(&report)) }
}

fn soaked(args: &Args, duration: Duration) -> Outcome {
    let threads = args.threads.unwrap_or_else(|| 4 * std::thread::available_parallelism().map_or(1, Into::into));
    if !(1..=1024).contains(&threads) {
        return Err(Failure::mistake(format!("--threads {threads}"), "pass 1 to 1024"));
    }
    let open = |path: &PathBuf| RuntimeSource::find(path, ValueFormat::F16)?.open(1);
    let models = args.models.iter().map(open).collect::<Result<Vec<Model>, Failure>>()?;
    let report = soak::soak(&models, duration, threads)?;
    if args.json {
        print_json(&report)?
    } else {
        print(&report.text())?
    }
    report.verdict()
}

/// Milliseconds from samples to embedding of one utterance: the median of so many measurements.
pub(super) fn latency(model: &Model, seconds: f64, repeats: usize) -> Result<f64, Failure> {
    let (samples, mut embedding) = (noise(model, seconds), vec![0.0; model.embedding_size()]);
    median(repeats, || model.embed_into(&samples, &mut embedding))
}

/// An utterance that takes as long as any other.
pub(super) fn noise(model: &Model, seconds: f64) -> Vec<f32> {
    (0..(seconds * f64::from(model.rate())) as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 24) as f32 - 0.5)
        .collect()
}

fn measure(model: &Model, args: &Args) -> Result<ThreadsRow, Failure> {
    let frames = (100.0 * args.seconds).ceil().max(1.0) as usize; // a hop of 10 ms
    let features: Vec<f32> =
        (0..frames * model.architecture().features).map(|i| ((i * 7919) % 201) as f32 / 50.0 - 2.0).collect();
    let mut embedding = vec![0.0; model.embedding_size()];
    let total_ms = latency(model, args.seconds, args.repeats)?;
    let network_ms = median(args.repeats, || model.embed_features_into(&features, &mut embedding))?;
    let samples = noise(model, args.seconds);
    let utterances = vec![samples.as_slice(); 4 * model.threads()];
    let batch_ms = median(args.repeats.div_ceil(4), || {
        model.embed_batch(&utterances).into_iter().try_for_each(|one| one.map(drop))
    })?;
    let utterances_per_second = utterances.len() as f64 / batch_ms * 1e3;
    let times_real_time = utterances_per_second * args.seconds;
    Ok(ThreadsRow { threads: model.threads(), total_ms, network_ms, utterances_per_second, times_real_time })
}

fn sliding(model: &Model, args: &Args, hop: f64, total_ms: f64) -> Result<SlidingTimes, Failure> {
    let options = SlidingOptions { window: args.seconds, ..SlidingOptions::default() };
    let samples = noise(model, 2.0 * args.seconds + 20.0);
    let seconds = samples.len() as f64 / f64::from(model.rate());
    let step = ((hop * f64::from(model.rate())) as usize).max(1);
    let repeats = args.repeats.div_ceil(7);
    let file_ms = median(repeats, || model.embed_windows(&samples, options, hop).map(drop))? / seconds;
    let live_ms = median(repeats, || {
        let mut sliding = model.sliding(options)?;
        // shorter than the first window of the filterbank is nothing yet
        samples.chunks(step.max(model.shortest())).try_for_each(|piece| {
            sliding.push(piece)?;
            sliding.embed().map(drop)
        })
    })? / seconds;
    Ok(SlidingTimes { hop, file_ms, live_ms, anew_ms: total_ms / hop })
}

/// Median in milliseconds, after two calls that do not count.
fn median(repeats: usize, mut call: impl FnMut() -> bregman_runtime::Result<()>) -> Result<f64, Failure> {
    let mut times = Vec::with_capacity(repeats);
    for repeat in 0..repeats + 2 {
        let start = Instant::now();
        call()?;
        if repeat >= 2 {
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

fn text(report: &Report) -> String {
    let row = |row: &ThreadsRow| {
        vec![
            row.threads.to_string(),
            format!("{:.2}", row.total_ms),
            format!("{:.2}", row.network_ms),
            format!("{:.1}", row.utterances_per_second),
            format!("{:.0}", row.times_real_time),
        ]
    };
    let rows: Vec<Vec<String>> = report.rows.iter().map(row).collect();
    let header = ["threads", "ms from samples", "ms from features", "utterances/s", "× real time"];
    format!(
        "{} s, {}, opened in {:.1} ms, {:.1} MB in memory\n\n",
        report.seconds, report.instructions, report.open_ms, report.memory_mb
    ) + &report.kernel_costs.as_ref().map_or(String::new(), kernels)
        + &table(&header, &rows) + &report.sliding.as_ref().map_or(String::new(), |times| {
        format!(
            "\nwindows of {} s every {} s, ms per second of sound on one thread: {:.2} of a file, {:.2} live, {:.2} \
                 each computed anew\n",
            report.seconds, times.hop, times.file_ms, times.live_ms, times.anew_ms
        )
    })
}

fn kernels(costs: &KernelCosts) -> String {
    let of = |positions: &str, costs: &BlockCosts| {
        let BlockCosts { block, dense, far: [far, far_shifted], near: [near, near_shifted], row, copy } = costs;
        format!(
            "kernels, ns per block of {block} {positions}: {dense:.2} a dense weight; {near:.2} to {far:.2} a \
             non-zero, {near_shifted:.2} to {far_shifted:.2} of a kernel with taps; {row:.1} a row of a tile, \
             {copy:.1} a column copied\n"
        )
    };
    of("frames", &costs.strips) + &of("positions of a map", &costs.maps) + "\n"
}
