//! `bregman train`: a recipe becomes a run.

use std::path::{Path, PathBuf};

use bregman_train::{
    BestEpoch, CommandRecord, Device, Ending, Experiment, Observer, OnDevice, Open, Precision, Ranks, RunFolder,
    Trainer, TrainingOutcome, on_device,
};
use serde::Serialize;

use crate::device::DeviceArg;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{note, print, print_json};
use crate::ranks::{self, GpuCount};
use crate::signals::stop_on_signals;
use crate::watch::{Follower, Watch};

/// What a signal is answered.
pub(crate) const STOPPING: &str = "stopping after this step with a checkpoint";

/// Train a network to an exact sparsity.
///
/// RECIPE is CORPUS/NETWORK-METHOD (`bregman recipes` lists them), a TOML file, or one name or file for each part;
/// --set overrides its keys. The run folder receives checkpoints (last/, best/), metrics.jsonl and a TensorBoard event
/// file. Ctrl-C, SIGTERM and SIGHUP stop after the present step with a checkpoint.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bregman train audiomnist/ecapa-adabreg --set data.root=corpora/audiomnist
  bregman train audiomnist/ecapa-linbreg --set data.root=corpora/audiomnist --set method.target=0.99 --out runs/lin99
  bregman train audiomnist/ecapa-adabreg --set data.root=corpora/audiomnist --resume
  bregman train my-corpus.toml networks/resnet34 methods/adabreg
  bregman train voxceleb/ecapa-adabreg --set data.root=corpora/voxceleb --device cuda --precision bf16
  bregman train voxceleb/ecapa-adabreg --set data.root=corpora/voxceleb --gpus all

Threads: every core, or as many as RAYON_NUM_THREADS says.
Several processes or machines, with or without GPUs: mpirun -n 4 bregman train …; docs/ranks.md tells more.
Exit code: 0 when it has finished, 4 when Ctrl-C, SIGTERM or SIGHUP stopped it with a checkpoint.")]
pub(crate) struct Args {
    /// Recipe of the experiment, by name or as files
    #[arg(required = true)]
    recipe: Vec<PathBuf>,
    /// Override a key of the recipe (repeatable)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Folder of the run [default: runs/RECIPE]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Continue the run in --out where it stopped; start it if there is none
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    place: DeviceArg,
    /// Train on N GPUs of this machine, or on all of them, with one process per GPU
    #[arg(long, value_name = "N|all", conflicts_with = "device")]
    gpus: Option<GpuCount>,
    /// Number format of activations and products: f32, tf32 (f32 on a CPU) or bf16 [default: the recipe's
    /// train.precision, else bf16 on a GPU and f32 on a CPU]
    #[arg(long)]
    precision: Option<Precision>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    let ranks = ranks::join()?;
    if let Some(count) = args.gpus.filter(|_| ranks.is_alone())
        && let Some(exit) = ranks::start_one_per_gpu(count)?
    {
        return Ok(exit);
    }
    let found = args.place.find()?.with_ranks(ranks.clone());
    on_device(&found, Job { args, ranks })
}

/// One process of a training.
struct Job {
    args: Args,
    ranks: Ranks,
}

impl OnDevice for Job {
    type Output = Result<Exit, Failure>;

    fn run<B: Device>(self, open: impl Open<B>) -> Self::Output {
        let Self { args, ranks } = self;
        let out = args.out.unwrap_or_else(|| default_out(&args.recipe));
        let precision = args.precision.map(|precision| format!("train.precision={precision}"));
        let settings: Vec<String> = args.settings.into_iter().chain(precision).collect();
        let mut experiment = Experiment::read(&args.recipe, &settings)?;
        let stop = stop_on_signals(STOPPING)?;
        let terminal = Watch::new(&experiment.method.title());
        let watch: &dyn Observer = if ranks.leads() { &terminal } else { &Follower };
        // the leading rank may begin to write before another has looked
        let started = ranks.word_of_leader(RunFolder::new(&out).is_started()).map_err(bregman_train::Error::from)?;
        let trainer = if args.resume && started {
            let trainer = Trainer::resume_on(open, &out, watch)?;
            experiment = experiment.in_precision_of(trainer.experiment());
            refuse_another(&experiment, trainer.experiment(), &out)?;
            trainer
        } else {
            let trainer = Trainer::new_on(open, experiment.clone(), &out, watch)?;
            if ranks.leads() {
                keep_command(&RunFolder::new(&out));
            }
            trainer
        };
        let outcome = trainer.run(&stop);
        drop(terminal);
        let outcome = outcome?;
        let summary = TrainSummary::new(&experiment, &out, &outcome);
        let printed = match (ranks.leads(), args.json) {
            (false, _) => Ok(()),
            (true, true) => print_json(&summary),
            (true, false) => print(&summary.text(&outcome)),
        };
        if outcome.ending == Ending::Interrupted {
            return Ok(Exit::Interrupted); // also where the terminal is gone
        }
        printed.map(Into::into)
    }
}

/// `runs/audiomnist-ecapa-adabreg` for `audiomnist/ecapa-adabreg` and for its three parts.
fn default_out(recipe: &[PathBuf]) -> PathBuf {
    let parent = match recipe {
        [whole] => whole.parent().and_then(Path::file_name).filter(|name| *name != "recipes"),
        _ => None,
    };
    let stems = recipe.iter().filter_map(|part| part.file_stem());
    let parts = parent.into_iter().chain(stems).map(|part| part.to_string_lossy());
    Path::new("runs").join(parts.collect::<Vec<_>>().join("-"))
}

/// Keeps this process's command in the run that it has just started.
pub(crate) fn keep_command(run: &RunFolder) {
    if let Err(error) = CommandRecord::of_this_process().save(run) {
        note("the command is not kept", &error);
    }
}

/// A run continues with the settings it began with.
fn refuse_another(asked: &Experiment, saved: &Experiment, out: &Path) -> Result<(), Failure> {
    if asked == saved {
        return Ok(());
    }
    let (asked, saved) = (asked.to_toml(), saved.to_toml());
    let differs = asked.lines().find(|line| !saved.lines().any(|other| other == *line)).unwrap_or("a key is missing");
    let message = format!("{}: this run was started with other settings ({differs} is new)", out.display());
    Err(Failure::mistake(message, "pass the same recipe and --set as before, or choose another --out"))
}

/// What a run came to.
#[derive(Debug, Serialize)]
struct TrainSummary {
    run: PathBuf,
    method: String,
    ending: &'static str,
    steps: u64,
    seconds: f64,
    target: Option<f64>,
    sparsity: f64,
    lambda: Option<f64>,
    best: Option<BestEpoch>,
}

impl TrainSummary {
    fn new(experiment: &Experiment, out: &Path, outcome: &TrainingOutcome) -> Self {
        let state = &outcome.state;
        Self {
            run: out.to_owned(),
            method: experiment.method.title(),
            ending: match outcome.ending {
                Ending::Finished => "finished",
                Ending::EarlyStop => "early stop",
                Ending::Interrupted => "interrupted",
            },
            steps: state.step,
            seconds: state.seconds,
            target: experiment.method.target(),
            sparsity: state.sparsity,
            lambda: state.mean_lambda(),
            best: state.selection.best,
        }
    }

    fn text(&self, outcome: &TrainingOutcome) -> String {
        let percent = |share: f64| format!("{:.2} %", 100.0 * share);
        let mut text = format!("{}: {} after {} steps, {:.0} s\n", self.method, self.ending, self.steps, self.seconds);
        text += &match self.target {
            Some(target) => format!("  sparsity  {} (asked for {})\n", percent(self.sparsity), percent(target)),
            None => format!("  sparsity  {}\n", percent(self.sparsity)),
        };
        text += &self.lambda.map_or(String::new(), |lambda| format!("  λ         {lambda:.4}\n"));
        text += &match self.best {
            Some(best) => {
                let found = format!("{} accuracy, {} sparse", percent(best.accuracy), percent(best.sparsity));
                format!("  best      epoch {}: {found}\n", best.epoch)
            }
            None => "  best      none: no epoch ended near the target; last/ is there\n".to_owned(),
        };
        if !outcome.skipped.is_empty() {
            text += &format!(
                "  skipped   {} unreadable files, the first is {}\n",
                outcome.skipped.len(),
                outcome.skipped[0].name
            );
        }
        let next = if outcome.ending == Ending::Interrupted {
            "continue with the same command and --resume"
        } else {
            "look at it with"
        };
        let run = self.run.display();
        text + &format!("\n{next}: bregman inspect {run}\nor in a page:      bregman report {run} -o report.html\n")
    }
}
