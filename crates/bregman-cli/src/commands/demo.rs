//! `bregman demo`: the whole way on synthetic voices, in minutes.
//!
//! The voices say eight syllables in gentle sessions: who speaks must be learnt from little audio on two cores.
//! `bregman synth` makes harder ones. Voices and rates were chosen by trial, on the EER of the same held-out speakers
//! that the table shows: it demonstrates the program, it does not compare methods.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use bregman_base::files::{FileError, write_file};
use bregman_runtime::{Model, Options, ValueFormat};
use bregman_speaker::score::{Bootstrap, Evaluation, EvaluationReport};
use bregman_speaker::{FileCorpus, Manifest, SynthConfig, SynthCorpus, Trials};
use bregman_train::{
    Deployable, Ending, Experiment, Inspection, MetricsRecord, RunFolder, TestDomain, Trainer, read_metrics,
};
use serde::Serialize;

use super::bench::latency;
use super::train::{STOPPING, keep_command};
use crate::Outcome;
use crate::device::DeviceArg;
use crate::evaluation::{Evaluated, TestSet};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::network::SpeakerModel;
use crate::output::{Bar, print, print_json, say, table};
use crate::report::{Live, RunReader, buckets, page};
use crate::runs::find;
use crate::signals::stop_on_signals;
use crate::sparkline::sparkline;
use crate::watch::Watch;

/// Seconds of the utterance that is timed.
const UTTERANCE: f64 = 3.0;

/// Train dense, adaptive and pruned networks on synthetic voices and compare them.
///
/// Compared are the size, speed and errors of the exported files. Needs no data and takes less than three minutes on
/// two cores. What was finished is kept: the same command continues a demo that was stopped.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bregman demo
  bregman demo --target 0.8 --target 0.99 --out /tmp/demo")]
pub(crate) struct Args {
    /// Folder for voices, runs, model files and the report
    #[arg(long, value_name = "DIR", default_value = "bregman-demo")]
    out: PathBuf,
    /// The sparsities to ask for (repeatable)
    #[arg(long = "target", value_name = "SHARE", default_values_t = [0.9, 0.95])]
    targets: Vec<f64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Few voices and few steps, for tests
    #[arg(long, hide = true)]
    quick: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Demo {
    runs: Vec<DemoRow>,
    report: PathBuf,
}

/// One network.
#[derive(Debug, Serialize)]
struct DemoRow {
    run: PathBuf,
    method: String,
    target: Option<f64>,
    sparsity: f64,
    /// Of the exported file.
    eer: f64,
    /// The exported file.
    file: PathBuf,
    bytes: u64,
    /// From samples to embedding, on one thread.
    milliseconds: f64,
    training_seconds: f64,
    /// After every step.
    #[serde(skip)]
    curve: Vec<f64>,
}

impl Args {
    /// The runs: their names and what each changes in the recipe.
    fn runs(&self) -> Vec<(String, Vec<String>)> {
        let words = |settings: &[&str]| settings.iter().map(|setting| (*setting).to_owned()).collect::<Vec<_>>();
        let dense = words(&["method.kind=dense", "method.optimizer.kind=adamw", "train.lr=0.003"]);
        let sparse = self.targets.iter().map(|target| {
            (format!("sparse-{}", (1e4 * target).round() / 1e2), vec![format!("method.target={target}")])
        });
        let mut runs: Vec<_> = [("dense".to_owned(), dense)].into_iter().chain(sparse).collect();
        if self.quick {
            runs.iter_mut().for_each(|(_, settings)| settings.extend(words(&["model.channels=16", "train.epochs=3"])));
        }
        runs
    }
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    let voices = args.out.join("voices");
    let root = format!("data.root={}", voices.display());
    let experiment = |settings: &[String]| {
        let settings: Vec<&str> = settings.iter().map(String::as_str).chain([root.as_str()]).collect();
        Experiment::read(&["recipes/demo.toml"], &settings)
    };
    let runs = args.runs();
    for (_, settings) in &runs {
        experiment(settings)?; // before any work
    }
    begin(&args.out)?;
    synthesise(&voices, args.quick)?;
    let stop = stop_on_signals(STOPPING)?;
    let (mut rows, mut folders) = (Vec::new(), Vec::new());
    for (name, settings) in &runs {
        let run = args.out.join(name);
        if !train(experiment(settings)?, &run, &stop)? {
            say("the demo was stopped: give the same command again to continue it");
            return Ok(Exit::Interrupted);
        }
        rows.push(measure(&run, &args.out.join(format!("{name}.breg")), &voices)?);
        folders.push(run);
    }
    let report = args.out.join("report.html");
    let mut reader = RunReader::new(buckets(folders.len()));
    reader.read(&find(&folders, false)?);
    write_file(&report, page(&reader.runs(), Live(None)))?;
    let demo = Demo { runs: rows, report };
    if args.json { print_json(&demo) } else { print(&text(&demo, &args.out)) }?;
    Ok(Exit::Done)
}

/// Makes the folder, or finds that it is a demo's: nothing of anybody else is replaced.
fn begin(out: &Path) -> Outcome {
    let mark = out.join("demo.txt");
    if mark.is_file() {
        return Ok(());
    }
    std::fs::create_dir_all(out).map_err(FileError::at(out))?;
    if std::fs::read_dir(out).map_err(FileError::at(out))?.next().is_some() {
        let message = format!("{}: is not empty, and no demo was made there", out.display());
        return Err(Failure::mistake(message, "choose another --out"));
    }
    Ok(write_file(&mark, "`bregman demo` made this folder and replaces the files in it.\n")?)
}

fn synthesise(voices: &Path, quick: bool) -> Outcome {
    // written last
    if voices.join("train.csv").is_file() {
        return Ok(());
    }
    let (speakers, held_out) = if quick { (24, 8) } else { (120, 20) };
    let config = SynthConfig {
        speakers,
        utterances: 10,
        per_session: 2,
        held_out,
        seconds: [2.4, 3.2],
        syllables: 8,
        distortion: 0.2,
        ..SynthConfig::default()
    };
    let bar = Bar::new("voices");
    SynthCorpus::new(config)?.write(voices, true, &bar)?;
    Ok(())
}

/// Trains to the end, from where an earlier call stopped; `false` if this one was stopped too.
fn train(experiment: Experiment, run: &Path, stop: &AtomicBool) -> Result<bool, Failure> {
    let watch = Watch::new(&experiment.method.title());
    let trainer = if RunFolder::new(run).is_started() {
        Trainer::resume(run, &watch)?
    } else {
        let trainer = Trainer::new(experiment, run, &watch)?;
        keep_command(&RunFolder::new(run));
        trainer
    };
    Ok(trainer.run(stop)?.ending != Ending::Interrupted)
}

/// Evaluates a run, exports it as `file`, and measures that file.
fn measure(run: &Path, file: &Path, voices: &Path) -> Result<DemoRow, Failure> {
    let network = SpeakerModel::open(run, f64::from(u16::MAX), DeviceArg::CPU)?;
    let test = TestSet { name: "unseen voices".to_owned(), domain: Some(TestDomain::In) };
    Evaluated::new(&network, test, evaluate(&network, voices)?).keep(&network, None);
    Deployable::open(run)?.to_model()?.write(file, ValueFormat::F16)?;
    let exported = SpeakerModel::open(file, f64::from(u16::MAX), DeviceArg::CPU)?;
    let eer = evaluate(&exported, voices)?.rates.eer;
    let model = Model::open_with(file, &Options { threads: 1, ..Options::default() })?;
    let bytes = std::fs::metadata(file).map_err(|error| Failure::failed(format!("{}: {error}", file.display())))?.len();
    let Inspection { method, target, sparsity, seconds, .. } = Inspection::of(run)?;
    let mut curve = Vec::new();
    read_metrics(&RunFolder::new(run).metrics(), |record| {
        if let MetricsRecord::Step(step) = record {
            curve.push(step.sparsity);
        }
    });
    Ok(DemoRow {
        run: run.to_owned(),
        method,
        target,
        sparsity,
        eer,
        file: file.to_owned(),
        bytes,
        milliseconds: latency(&model, UTTERANCE, 31)?,
        training_seconds: seconds,
        curve,
    })
}

fn evaluate(network: &SpeakerModel, voices: &Path) -> Result<EvaluationReport, Failure> {
    let source = FileCorpus(Manifest::read(&voices.join("test.csv"), Some(voices))?);
    let trials = Trials::read(&voices.join("trials.txt"))?.resolve(&source.0, None)?;
    let evaluation = Evaluation {
        source: &source,
        trials: &trials,
        cohort: None,
        max_seconds: network.max_seconds,
        bootstrap: Bootstrap { replicates: 1000, seed: 1 },
        strict: true,
    };
    let bar = Bar::new("embedding");
    Ok(evaluation.run(|| network.load(), &network.store(), &bar)?.report)
}

fn text(demo: &Demo, out: &Path) -> String {
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    let cells = |row: &DemoRow| {
        vec![
            row.method.clone(),
            row.target.map_or_else(|| "–".to_owned(), percent),
            percent(row.sparsity),
            percent(row.eer),
            format!("{} kB", row.bytes / 1000),
            format!("{:.2} ms", row.milliseconds),
            format!("{:.0} s", row.training_seconds),
        ]
    };
    let header = ["network", "asked for", "zeros", "EER", "file", "one utterance", "training"];
    let rows = table(&header, &demo.runs.iter().map(cells).collect::<Vec<_>>());
    let (out, report) = (out.display(), demo.report.display());
    let example = demo.runs.last().map_or("dense".into(), |row| row.run.display().to_string());
    format!(
        "\n{rows}\n{}\
         file: what `bregman export` writes, to ship. one utterance: {UTTERANCE} s from samples to embedding with that \
         file,\non one thread of this machine. EER on unseen speakers, ± 3 points; the settings were chosen on them, \
         so this shows\nhow it works, not which method is better.\n\n\
         look at it:  {report}\n\
         next:        bregman inspect {example}\n             \
         bregman verify A.wav B.wav --model {example}.breg --threshold 0.5     two recordings of {out}/voices\n\
         \u{20}            \
         bregman prepare --help     your own folder of speakers\n             \
         bregman recipes            every experiment of the paper\n",
        curves(&demo.runs)
    )
}

/// The sparsity of the steered networks over their training, one line each, all to one scale.
fn curves(rows: &[DemoRow]) -> String {
    let sparse: Vec<&DemoRow> = rows.iter().filter(|row| row.target.is_some() && !row.curve.is_empty()).collect();
    let lowest = sparse.iter().flat_map(|row| &row.curve).copied().fold(0.9, f64::min);
    let low = (10.0 * lowest).floor() / 10.0;
    let line = |row: &&DemoRow| {
        let asked = row.target.map_or_else(String::new, |target| format!("{} %", (1e4 * target).round() / 1e2));
        format!("  {asked:>6}  {}\n", sparkline(&row.curve, 72, [low, 1.0]))
    };
    let lines: String = sparse.iter().map(line).collect();
    format!("zeros from the first step to the last (▁ {:.0} %, █ 100 %), asked for:\n{lines}\n", 100.0 * low)
}
