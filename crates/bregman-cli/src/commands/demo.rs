//! `bregman demo`: the whole way on synthetic voices, in minutes.
//!
//! The voices say eight syllables in gentle sessions: who speaks must be learnt from little audio on two cores.
//! `bregman synth` makes harder ones. Voices, rates and the way of pruning were chosen by trial, on the EER of the same
//! held-out speakers that the table shows: it demonstrates the program, it does not compare methods.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use bregman_speaker::score::{Bootstrap, Evaluation};
use bregman_speaker::{FileCorpus, Manifest, SynthConfig, SynthCorpus, Trials};
use bregman_train::{Ending, Experiment, Inspection, RunFolder, TestDomain, Trainer};
use serde::Serialize;

use super::train::{STOPPING, keep_command};
use crate::Outcome;
use crate::device::DeviceArg;
use crate::evaluation::{Evaluated, TestSet};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::network::SpeakerModel;
use crate::output::{Bar, print, print_json, say, table};
use crate::signals::stop_on_signals;
use crate::watch::Watch;

/// Train dense, adaptive and pruned networks on synthetic voices and compare them.
///
/// Needs no data and takes about three minutes on two cores. What was finished is kept: the same command continues a
/// demo that was stopped.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bregman demo
  bregman demo --target 0.95 --out /tmp/demo")]
pub(crate) struct Args {
    /// Folder for voices and runs
    #[arg(long, value_name = "DIR", default_value = "bregman-demo")]
    out: PathBuf,
    /// The sparsity to ask for
    #[arg(long, value_name = "SHARE", default_value_t = 0.9)]
    target: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The runs of the demo: their names and what each changes in the recipe.
fn runs(target: f64) -> [(&'static str, Vec<String>); 3] {
    let method = |settings: &[&str]| settings.iter().map(|setting| format!("method.{setting}")).collect::<Vec<_>>();
    let (target, adamw) = (format!("target={target}"), "optimizer.kind=adamw");
    let with_rate = |settings: Vec<String>| [settings, vec!["train.lr=0.003".to_owned()]].concat();
    [
        ("dense", with_rate(method(&["kind=dense", adamw]))),
        ("adaptive", method(&[&target])),
        // Shares by layer: all layers compared together, magnitudes would empty those with many inputs, whose weights
        // start small.
        ("pruned", with_rate(method(&["kind=gradual", &target, "epochs=5", adamw, "layers.sharing=erk"]))),
    ]
}

/// One row of the table.
#[derive(Debug, Serialize)]
struct DemoRow {
    run: PathBuf,
    method: String,
    target: Option<f64>,
    sparsity: f64,
    eer: f64,
    nonzero_parameters: u64,
    bytes: u64,
    seconds: f64,
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    let runs = runs(args.target);
    let voices = args.out.join("voices");
    let root = format!("data.root={}", voices.display());
    let experiment = |settings: &[String]| {
        let settings: Vec<&str> = settings.iter().map(String::as_str).chain([root.as_str()]).collect();
        Experiment::read(&["recipes/demo.toml"], &settings)
    };
    for (_, settings) in &runs {
        experiment(settings)?; // before any work
    }
    synthesise(&voices)?;
    let stop = stop_on_signals(STOPPING)?;
    let mut rows = Vec::new();
    for (name, settings) in &runs {
        let run = args.out.join(name);
        if !train(experiment(settings)?, &run, &stop)? {
            say("the demo was stopped: give the same command again to continue it");
            return Ok(Exit::Interrupted);
        }
        rows.push(evaluate(&run, &voices)?);
    }
    if args.json {
        return print_json(&rows).map(Into::into);
    }
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    let kilobytes = |bytes: u64| format!("{} kB", bytes / 1000);
    let cells = |row: &DemoRow| {
        let target = row.target.map_or_else(|| "–".to_owned(), percent);
        vec![
            row.method.clone(),
            target,
            percent(row.sparsity),
            percent(row.eer),
            row.nonzero_parameters.to_string(),
            kilobytes(row.bytes),
            format!("{:.0} s", row.seconds),
        ]
    };
    let header = ["method", "target", "achieved", "EER", "non-zero", "size", "training"];
    let out = args.out.display();
    print(&format!(
        "\n{}\n\
         non-zero: of all parameters. size: four bytes for each of them and one bit for its position.\n\
         EER on 20 unseen speakers, ± 3 points; the settings were chosen on them, so this shows how it works, not\n\
         which method is better.\n\n\
         next:\n  \
         bregman report {out} -o report.html     look at the runs side by side\n  \
         bregman inspect {out}/adaptive\n  \
         bregman evaluate {out}/adaptive --trials {out}/voices/trials.txt --root {out}/voices\n  \
         bregman prepare --help     your own folder of speakers\n  \
         bregman recipes            every experiment of the paper\n",
        table(&header, &rows.iter().map(cells).collect::<Vec<_>>())
    ))
    .map(Into::into)
}

fn synthesise(voices: &Path) -> Outcome {
    if voices.join("trials.txt").is_file() {
        return Ok(());
    }
    let config = SynthConfig {
        speakers: 120,
        utterances: 10,
        per_session: 2,
        held_out: 20,
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

fn evaluate(run: &Path, voices: &Path) -> Result<DemoRow, Failure> {
    let network = SpeakerModel::open(run, f64::from(u16::MAX), DeviceArg::CPU)?;
    let source = FileCorpus(Manifest::read(&voices.join("test.csv"), Some(voices))?);
    let list = voices.join("trials.txt");
    let trials = Trials::read(&list)?.resolve(&source.0, None)?;
    let bootstrap = Bootstrap { replicates: 1000, seed: 1 };
    let evaluation = Evaluation {
        source: &source,
        trials: &trials,
        cohort: None,
        max_seconds: network.max_seconds,
        bootstrap,
        strict: true,
    };
    let bar = Bar::new("embedding");
    let report = evaluation.run(|| network.load(), &network.store(), &bar)?.report;
    drop(bar);
    let eer = report.rates.eer;
    let test = TestSet { name: "unseen voices".to_owned(), domain: Some(TestDomain::In) };
    Evaluated::new(&network, test, report).keep(&network, None);
    let inspection = Inspection::of(run)?;
    Ok(DemoRow {
        run: run.to_owned(),
        method: inspection.method,
        target: inspection.target,
        sparsity: inspection.sparsity,
        eer,
        nonzero_parameters: inspection.nonzero_parameters,
        bytes: (inspection.parameters / 8 + 4 * inspection.nonzero_parameters).min(4 * inspection.parameters),
        seconds: inspection.seconds,
    })
}
