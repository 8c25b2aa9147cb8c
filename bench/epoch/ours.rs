//! An epoch of training from shards, by the wall clock, against the bare step: does the loader keep up with the device?
//!
//! `CARGO_FEATURES=cuda bench/run epoch [--device cuda|cpu] [ecapa|resnet34] [loader|device] [seconds=45]
//! [speakers=5994] [batch=N]`. The corpus has VoxCeleb2's shape: its speakers, recordings of 4 to 11.6 s. Every speaker
//! says one thing, which is stored once, in 16-bit shards, and comes up as often as an epoch of so many seconds needs.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bregman_bench::{BareStep, ratio, table};
use bregman_nn::{Input, Rng};
use bregman_speaker::{
    AudioSource, BatchPosition, CutSource, Cuts, Loader, LoaderConfig, Manifest, ShardConfig, ShardCorpus, ShardFormat,
    SynthConfig, SynthCorpus, Utterance, Waveforms, shard,
};
use bregman_train::{Device, DeviceChoice, Experiment, Observer, OnDevice, Open, StepRecord, Trainer, on_device};

const NETWORKS: [&str; 2] = ["ecapa", "resnet34"];
const FEATURES_BY: [&str; 2] = ["loader", "device"];
/// Utterances per second and memory are told for stretches of this length.
const STRETCH: Duration = Duration::from_secs(5);
/// Steps of a device before its work has been captured, and those that are timed.
const WARM_UP: usize = 8;
const STEPS: usize = 100;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, default: usize| {
        let given = args.iter().find_map(|arg| arg.strip_prefix(name)?.strip_prefix('='));
        given.map_or(default, |text| text.parse().expect("a number"))
    };
    let chosen = |all: [&'static str; 2]| {
        let named: Vec<&str> = all.into_iter().filter(|name| args.iter().any(|arg| arg == name)).collect();
        if named.is_empty() { all.to_vec() } else { named }
    };
    let device = args.iter().skip_while(|arg| *arg != "--device").nth(1).map_or("cuda", String::as_str);
    let device = device.parse::<DeviceChoice>().expect("a device").find().expect("that device");
    let folder = Folder(std::env::temp_dir().join(format!("bregman-bench-epoch-{}", std::process::id())));
    let began = Instant::now();
    let shards = Arc::new(corpus(&folder.0.join("shards"), number("speakers", 5994)));
    println!("made {} recordings in {:.0} s", shards.manifest().utterances.len(), began.elapsed().as_secs_f64());
    for network in chosen(NETWORKS) {
        let mut rows = Vec::new();
        for features_by in chosen(FEATURES_BY) {
            let run = folder.0.join(format!("{network}-{features_by}"));
            let seconds = number("seconds", 45) as f64;
            let batch = Some(number("batch", 0)).filter(|&batch| batch > 0);
            let measured = on_device(&device, Epoch { network, features_by, shards: &shards, seconds, batch, run });
            rows.push(measured.row(features_by));
            let stretches = &measured.stretches;
            println!("\n{network}, features by the {features_by}, after so many seconds:");
            let cells = |of: fn(&Stretch) -> String| stretches.iter().map(of).collect::<Vec<_>>().join(" ");
            println!("  utterances/s {}", cells(|stretch| format!("{:.0}", stretch.rate)));
            println!("  memory in MB {}", cells(|stretch| format!("{:.0}", stretch.megabytes)));
            ratio(&format!("epoch-{network}-{features_by}"), measured.epoch, measured.bare);
            ratio(&format!("epoch-{network}-{features_by}-steady"), measured.steady, measured.bare);
        }
        println!("\n{network}, utterances (3 s) per second");
        let header =
            ["features by", "bare step", "loader alone", "epoch", "share", "without its start", "share", "seconds"];
        table(&header, &rows);
    }
}

/// One epoch to be measured.
struct Epoch<'a> {
    network: &'static str,
    features_by: &'static str,
    shards: &'a Arc<ShardCorpus>,
    seconds: f64,
    /// Another batch than the recipe's.
    batch: Option<usize>,
    run: PathBuf,
}

/// Utterances per second: of the step with one batch again and again; of the loader with nobody to wait for; of the
/// whole epoch, from the moment when training begins to its last step; of that without its first stretch.
struct Measured {
    bare: f64,
    loader: f64,
    epoch: f64,
    steady: f64,
    seconds: f64,
    stretches: Vec<Stretch>,
}

struct Stretch {
    rate: f64,
    megabytes: f64,
}

impl Measured {
    fn row(&self, features_by: &str) -> Vec<String> {
        let rate = |value: f64| format!("{value:.0}");
        let share = |value: f64| format!("{:.3}", value / self.bare);
        let (epoch, steady) = (self.epoch, self.steady);
        let numbers = [rate(self.bare), rate(self.loader), rate(epoch), share(epoch), rate(steady), share(steady)];
        std::iter::once(features_by.to_owned()).chain(numbers).chain([format!("{:.1}", self.seconds)]).collect()
    }
}

impl OnDevice for Epoch<'_> {
    type Output = Measured;

    fn run<B: Device>(self, open: impl Open<B>) -> Measured {
        let settings = ["data.validation=0.0", "train.epochs=1", &format!("data.features_by={}", self.features_by)];
        let recipe = format!("voxceleb/{}-adabreg", self.network);
        let mut experiment = Experiment::read(&[recipe], &settings).expect("a recipe");
        experiment.train.batch = self.batch.unwrap_or(experiment.train.batch);
        let batch = experiment.train.batch;
        let classes = self.shards.manifest().speakers().len();
        let bare = bare(open(experiment.train.precision).expect("the device"), &experiment, classes);
        let source = Repeated::new(self.shards.clone(), self.seconds * bare);
        let loader = loader_rate(&experiment, source.clone());
        let watch = Watch::default();
        let trainer = Trainer::on_corpora_on(open, experiment, &self.run, Arc::new(source), None, &watch);
        trainer.and_then(|trainer| trainer.run(&AtomicBool::new(false))).expect("an epoch");
        watch.measured(batch, bare, loader)
    }
}

/// Utterances per second of the step alone, with a batch of noise.
fn bare<B: Device>(device: B, experiment: &Experiment, classes: usize) -> f64 {
    let (batch, samples) = (experiment.train.batch, experiment.data.cuts().samples());
    let tables = experiment.data.features.tables().expect("a filterbank");
    let mut step = BareStep::new(device, &experiment.architecture(), classes);
    let mut rng = Rng::new(1);
    let (frames, each) = match experiment.data.features_by == bregman_train::config::FeaturesBy::Device {
        true => {
            step.model.set_filterbank(tables).expect("memory");
            (samples, samples)
        }
        false => (tables.frames(samples), tables.frames(samples) * tables.bins),
    };
    let values: Vec<f32> = (0..batch * each).map(|_| rng.symmetric(0.5)).collect();
    let labels: Vec<usize> = (0..batch).map(|item| item * 23 % classes).collect();
    let input = Input { values: &values, batch, frames };
    step.run(input, &labels, WARM_UP);
    let once = step.run(input, &labels, 2) / 2;
    let steps = STEPS.min((Duration::from_secs(10).as_secs_f64() / once.as_secs_f64()) as usize).max(2);
    (steps * batch) as f64 / step.run(input, &labels, steps).as_secs_f64()
}

/// Utterances per second of the loader on all cores, for three seconds.
fn loader_rate(experiment: &Experiment, source: Repeated) -> f64 {
    let speakers = source.manifest().speakers();
    let cuts = Cuts::new(Arc::new(source), &speakers, experiment.data.cuts()).expect("valid settings");
    let source: Arc<dyn CutSource> = match experiment.data.features_by == bregman_train::config::FeaturesBy::Device {
        true => Arc::new(Waveforms::new(cuts).expect("no masks")),
        false => Arc::new(cuts),
    };
    let config = LoaderConfig { batch: experiment.train.batch, ..LoaderConfig::default() };
    let loader = Loader::new(source, config).expect("the corpus fills a batch");
    let mut batches = loader.batches(BatchPosition::default()).expect("the start is a position");
    let mut take = || {
        let batch = batches.next().expect("the stream has no end").expect("shards can be read");
        let size = batch.shape[0];
        batches.recycle(batch);
        size
    };
    for _ in 0..32 {
        take(); // batches computed ahead do not count
    }
    let (start, mut utterances) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(3) {
        utterances += take();
    }
    utterances as f64 / start.elapsed().as_secs_f64()
}

/// When training began and each step was over, and how much memory the process had.
#[derive(Default)]
struct Watch(Mutex<Vec<(Instant, f64)>>);

impl Watch {
    fn note(&self) {
        self.0.lock().expect("nobody panics").push((Instant::now(), resident_mb()));
    }

    fn measured(&self, batch: usize, bare: f64, loader: f64) -> Measured {
        let moments = self.0.lock().expect("nobody panics");
        let (begin, end) = (moments[0].0, moments[moments.len() - 1].0);
        // from the first moment at or after `from`
        let rate = |from: Instant, to: Instant| {
            let inside: Vec<Instant> =
                moments.iter().map(|(moment, _)| *moment).filter(|moment| (from..=to).contains(moment)).collect();
            let span = inside[inside.len() - 1].duration_since(inside[0]);
            ((inside.len() - 1) * batch) as f64 / span.as_secs_f64().max(1e-9)
        };
        let mut stretches = Vec::new();
        let mut from = begin;
        while from + STRETCH <= end {
            let last = moments.iter().rev().find(|(moment, _)| *moment <= from + STRETCH).expect("the first one is");
            stretches.push(Stretch { rate: rate(from, from + STRETCH), megabytes: last.1 });
            from += STRETCH;
        }
        let steady = if begin + STRETCH < end { rate(begin + STRETCH, end) } else { f64::NAN };
        Measured { bare, loader, epoch: rate(begin, end), steady, seconds: (end - begin).as_secs_f64(), stretches }
    }
}

impl Observer for Watch {
    fn begin(&self, _: u64, _: u64) {
        self.note();
    }

    fn step(&self, _: &StepRecord) {
        self.note();
    }
}

/// Resident memory of this process.
fn resident_mb() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split(' ').nth(1)?.parse::<f64>().ok());
    pages.map_or(f64::NAN, |pages| pages * 4096.0 / 1e6)
}

/// The speakers of VoxCeleb2 or fewer, a recording of each, in shards.
fn corpus(folder: &Path, speakers: usize) -> ShardCorpus {
    let config = SynthConfig { speakers, utterances: 1, held_out: 0, seconds: [4.0, 11.6], ..SynthConfig::default() };
    let (voices, _) = SynthCorpus::new(config).expect("valid settings").in_memory();
    let out = folder.to_owned();
    let config = ShardConfig { out, per_shard: 256, format: ShardFormat::Pcm, seed: 1, strict: true, force: true };
    shard(&voices, &config, &()).expect("the temporary folder is writable");
    ShardCorpus::open(folder).expect("the shards were just written")
}

/// A corpus whose utterances come up several times, under other names.
#[derive(Clone)]
struct Repeated {
    source: Arc<ShardCorpus>,
    manifest: Manifest,
}

impl Repeated {
    /// As often as it takes to have so many cuts of 3 s.
    fn new(source: Arc<ShardCorpus>, cuts: f64) -> Self {
        let once = &source.manifest().utterances;
        let each: f64 = once.iter().map(|utterance| (utterance.seconds.unwrap_or(0.0) / 3.0).floor()).sum();
        let again = |turn: usize| {
            move |utterance: &Utterance| Utterance { id: format!("{}-{turn}", utterance.id), ..utterance.clone() }
        };
        let turns = (cuts / each).ceil().max(1.0) as usize;
        let utterances = (0..turns).flat_map(|turn| once.iter().map(again(turn))).collect();
        Self { manifest: Manifest { utterances }, source }
    }
}

impl AudioSource for Repeated {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn append(&self, utterance: usize, range: Range<usize>, out: &mut Vec<f32>) -> bregman_speaker::Result<()> {
        self.source.append(utterance % self.source.manifest().utterances.len(), range, out)
    }
}

/// A folder that is deleted on drop.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
