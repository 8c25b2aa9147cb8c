//! `bregman sparsify`: a trained network becomes a sparse one, without labels.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bregman_speaker::{AudioSource as _, Corpus, PrepareConfig, Trials, prepare};
use bregman_train::config::{Sparsify, SparsifyBy, ZerosFor};
use bregman_train::{
    Device, Ending, EpochTrials, Observer, OnDevice, Open, Precision, Ranks, RunFolder, Trainer, on_device,
};

use clap::ValueEnum;

use super::export::{self, MAX_SECONDS};
use super::options::{FrontEndArg, WriteArgs};
use super::surroundings;
use super::train::{STOPPING, keep_command};
use crate::device::DeviceArg;
use crate::evaluation::find_audio;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Bar, refuse_existing, say};
use crate::ranks;
use crate::signals::stop_on_signals;
use crate::watch::{Follower, Watch};

/// Make a trained network sparse, without labels.
///
/// MODEL is a run, a checkpoint of one, or a checkpoint of WeSpeaker, 3D-Speaker or SpeechBrain. The network starts
/// from its weights and follows its own dense embeddings (cosine, and the cosines within a batch) on any speech, with
/// synthetic noise and room responses, while the share of zeros rises to --target. The loss that is shown is the
/// distance to the dense network, the accuracy the share of embeddings that are nearest to their own.
///
/// CORPUS is a folder of audio files, in folders of their own or not, a folder with a `train.csv`, a manifest or a
/// folder of shards. The speakers do not matter.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bregman sparsify campplus_cn_en_common.pt --corpus speech --target 0.9 -o sparse.breg
  bregman sparsify runs/dense --corpus speech --target 0.95 -o sparse.breg --set train.epochs=20 --device cuda
  bregman sparsify campplus_cn_en_common.pt --corpus speech --target 0.9 -o fast.breg --for speed
  bregman sparsify campplus_cn_en_common.pt --corpus speech --target 0.9 -o sparse.breg --resume
  bregman sparsify runs/dense --corpus speech --target 0.9 -o sparse.breg --trials trials.txt --root test

Exit code: 0 when it has finished, 4 when Ctrl-C, SIGTERM or SIGHUP stopped it with a checkpoint.")]
pub(crate) struct Args {
    /// Run or checkpoint of a trained network
    model: PathBuf,
    #[command(flatten)]
    front_end: FrontEndArg,
    /// Speech to train on: folder, manifest or shards
    #[arg(long, value_name = "CORPUS")]
    corpus: PathBuf,
    /// The share of zeros to reach
    #[arg(long)]
    target: f64,
    /// Criterion that chooses the weights: duals (Bregman training) or magnitude (gradual pruning)
    #[arg(long, value_enum, default_value = "bregman")]
    by: By,
    /// Where the zeros go: where they cost least, or rather where a weight is used often (only with duals)
    #[arg(long = "for", value_enum, default_value = "size", value_name = "AIM")]
    aim: Aim,
    /// The model file to write
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Folder of the run [default: the model file with `.run`]
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
    /// Continue the run where it stopped; start it if there is none
    #[arg(long)]
    resume: bool,
    /// Override a key of the experiment (repeatable)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Trial list on which to find the equal error rate after every epoch, and the threshold of the sparse network
    #[arg(long, value_name = "FILE", requires = "roots")]
    trials: Option<PathBuf>,
    /// Where the names of the list are: folder, shards or manifest (repeatable)
    #[arg(long = "root", value_name = "DIR", requires = "trials")]
    roots: Vec<PathBuf>,
    #[command(flatten)]
    place: DeviceArg,
    /// Number format of activations and products: f32, tf32 (f32 on a CPU) or bf16 [default: bf16 on a GPU, f32 on a
    /// CPU]
    #[arg(long)]
    precision: Option<Precision>,
    #[command(flatten)]
    write: WriteArgs,
}

/// Values of --by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// Duals: a weight that died may come back
    Bregman,
    /// Magnitudes: what is zero stays zero
    Magnitude,
}

impl From<By> for SparsifyBy {
    fn from(by: By) -> Self {
        match by {
            By::Bregman => Self::Bregman,
            By::Magnitude => Self::Magnitude,
        }
    }
}

/// Values of --for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Aim {
    /// Wherever they cost least
    Size,
    /// More where a weight is used at many positions: fewer multiplications in a file of the same size
    Speed,
}

impl From<Aim> for ZerosFor {
    fn from(aim: Aim) -> Self {
        match aim {
            Aim::Size => Self::Size,
            Aim::Speed => Self::Speed,
        }
    }
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    if args.aim == Aim::Speed && args.by == By::Magnitude {
        return Err(Failure::mistake("--for speed steers λ, which --by magnitude has not", "leave one of the two out"));
    }
    let ranks = ranks::join()?;
    args.write.work.use_threads()?;
    refuse_existing(&args.out, args.write.force)?;
    on_device(&args.place.find()?.with_ranks(ranks.clone()), Job { args, ranks })
}

/// One process of it.
struct Job {
    args: Args,
    ranks: Ranks,
}

impl OnDevice for Job {
    type Output = Result<Exit, Failure>;

    fn run<B: Device>(self, open: impl Open<B>) -> Self::Output {
        let Self { args, ranks } = self;
        let folder = args.run.clone().unwrap_or_else(|| args.out.with_extension("run"));
        let stop = stop_on_signals(STOPPING)?;
        let trials = if ranks.leads() { args.epoch_trials()? } else { None };
        let terminal = Watch::new(&format!("{} to {} % zeros", args.model.display(), 100.0 * args.target));
        let watch: &dyn Observer = if ranks.leads() { &terminal } else { &Follower };
        // the leading rank may begin to write before another has looked
        let started = ranks.word_of_leader(RunFolder::new(&folder).is_started()).map_err(bregman_train::Error::from)?;
        let trainer = if args.resume && started {
            Trainer::resume_on(open, &folder, watch)?
        } else {
            let precision = args.precision.map(|precision| format!("train.precision={precision}"));
            let settings: Vec<String> = args.settings.iter().cloned().chain(precision).collect();
            // before anything is written there
            let lock = if ranks.leads() {
                args.front_end.open(&args.model)?;
                Some(RunFolder::new(&folder).lock_new()?)
            } else {
                None
            };
            let prepared = args.prepared(&folder, &ranks)?;
            let experiment = prepared.experiment(&settings, &ranks, &Bar::new("reading"))?;
            let trainer = Trainer::new_locked_on(open, experiment, &folder, lock, watch)?;
            if ranks.leads() {
                keep_command(&RunFolder::new(&folder));
            }
            trainer
        };
        let trainer = match trials {
            Some(trials) => trainer.with_trials(trials),
            None => trainer,
        };
        let outcome = trainer.run(&stop);
        drop(terminal);
        let outcome = outcome?;
        if outcome.ending == Ending::Interrupted {
            if ranks.leads() {
                say(&format!(
                    "stopped at {:.2} % zeros: continue with the same command and --resume",
                    100.0 * outcome.state.sparsity
                ));
            }
            return Ok(Exit::Interrupted);
        }
        if !ranks.leads() {
            return Ok(Exit::Done);
        }
        if let Some(best) = outcome.state.selection.best {
            say(&format!("distance to the dense network {:.4} at {:.2} % zeros", best.loss, 100.0 * best.sparsity));
        }
        let exported = export::Args::of_run(&folder, args.out, args.trials, args.roots, args.write);
        export::write(exported).map(Into::into)
    }
}

impl Args {
    /// The trials to score after every epoch.
    fn epoch_trials(&self) -> Result<Option<EpochTrials>, Failure> {
        let Some(list) = &self.trials else { return Ok(None) };
        let trials = Trials::read(list)?;
        let source = find_audio(&self.roots, &trials, None)?;
        let trials = trials.resolve(source.manifest(), None)?;
        Ok(Some(EpochTrials { source: Arc::new(source), trials, max_seconds: MAX_SECONDS }))
    }

    /// What to train, with a manifest and surroundings in the folder of the run, which the leading rank writes.
    fn prepared(&self, folder: &Path, ranks: &Ranks) -> Result<Sparsify, Failure> {
        let absolute = |path: &Path| {
            std::path::absolute(path).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
        };
        let (corpus, folder) = (absolute(&self.corpus)?, absolute(folder)?);
        let listed = corpus.join("train.csv");
        let (root, corpus) = if corpus.is_file() {
            (corpus.parent().unwrap_or(Path::new("/")).to_owned(), corpus)
        } else if listed.is_file() {
            (corpus, listed)
        } else if corpus.join("index.csv").is_file() {
            (corpus.clone(), corpus)
        } else {
            let manifest = folder.join("corpus.csv");
            if ranks.leads() {
                list(&corpus, &manifest)?;
            }
            (corpus, manifest)
        };
        let places = ["noises", "rooms"].map(|name| folder.join(name));
        if ranks.leads() {
            surroundings::write(&places[0], &places[1], true)?;
        }
        ranks.meet().map_err(bregman_train::Error::from)?;
        let surroundings = Some(places);
        let network = absolute(&self.model)?;
        let (front_end, by, zeros_for) = (self.front_end.front_end, self.by.into(), self.aim.into());
        Ok(Sparsify { network, front_end, root, corpus, target: self.target, by, zeros_for, surroundings })
    }
}

/// Writes a manifest of a folder of speech.
fn list(root: &Path, manifest: &Path) -> Result<(), Failure> {
    let config = PrepareConfig { force: true, ..PrepareConfig::new(Corpus::Speech, root, manifest) };
    prepare(&config, &Bar::new("measuring"))?;
    Ok(())
}
