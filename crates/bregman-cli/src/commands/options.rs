//! Options that several commands have.

use std::path::Path;

use bregman_train::Deployable;
use bregman_train::config::FrontEndChoice;

use crate::device::DeviceArg;
use crate::failure::Failure;
use crate::network::{ModelArg, SpeakerModel};
use crate::output::note;

/// More threads than any machine has cores: starting a hundred thousand takes longer than the work.
pub(super) const MOST_JOBS: usize = 1024;

/// How a command that works on many files in parallel does so, and what it prints.
#[derive(Debug, clap::Args)]
pub(super) struct WorkArgs {
    /// Threads [default: every core]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl WorkArgs {
    /// Sets the number of threads that parallel work uses.
    pub(super) fn use_threads(&self) -> Result<(), Failure> {
        let Some(jobs) = self.jobs else { return Ok(()) };
        if !(1..=MOST_JOBS).contains(&jobs) {
            let hint = format!("pass 1 to {MOST_JOBS}, or leave it out to use every core");
            return Err(Failure::mistake(format!("--jobs {jobs}"), hint));
        }
        rayon::ThreadPoolBuilder::new()
            .num_threads(jobs)
            .build_global()
            .map_err(|error| Failure::failed(format!("cannot start threads: {error}")))
    }
}

/// The same for a command that writes files.
#[derive(Debug, clap::Args)]
pub(super) struct WriteArgs {
    /// Replace existing files
    #[arg(long)]
    pub(super) force: bool,
    #[command(flatten)]
    pub(super) work: WorkArgs,
}

/// How a command embeds single recordings.
#[derive(Debug, clap::Args)]
pub(super) struct RecordingArgs {
    /// Use at most this many seconds from the middle of a recording
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    max_seconds: f64,
    #[command(flatten)]
    place: DeviceArg,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl RecordingArgs {
    /// The network that embeds them.
    pub(super) fn open(&self, network: &ModelArg) -> Result<SpeakerModel, Failure> {
        SpeakerModel::open(&network.model, self.max_seconds, self.place)
    }
}

/// When two voices are one speaker's.
#[derive(Debug, clap::Args)]
pub(super) struct ThresholdArg {
    /// Accept scores above it [default: the one of the model file, or that `bregman evaluate` found]
    #[arg(long)]
    threshold: Option<f64>,
}

impl ThresholdArg {
    /// The one given, or else that of the network.
    pub(super) fn of(&self, network: &SpeakerModel) -> Result<f64, Failure> {
        if let Some(threshold) = self.threshold.filter(|threshold| !threshold.is_finite()) {
            let hint = "pass a number: scores are cosines, from -1 to 1";
            return Err(Failure::mistake(format!("--threshold {threshold}"), hint));
        }
        network.threshold(self.threshold)
    }
}

/// What a checkpoint of others was trained on.
#[derive(Debug, Default, clap::Args)]
pub(super) struct FrontEndArg {
    /// Front end of a checkpoint of another toolkit: wespeaker, 3d-speaker, pyannote, speechbrain, or settings of
    /// data.features as JSON, `{}` for those of our recipes [default: what the file tells]
    #[arg(long, value_name = "NAME")]
    pub(super) front_end: Option<FrontEndChoice>,
}

impl FrontEndArg {
    /// Opens a run or checkpoint, and says which front end it was taken to have where that was not asked for.
    pub(super) fn open(&self, path: &Path) -> Result<Deployable, Failure> {
        let network = Deployable::open_with(path, self.front_end)?;
        if let Some(found) = network.front_end_found() {
            note("front end", &format!("{found} (--front-end names another)"));
        }
        Ok(network)
    }

    /// Refuses it for a model file, which has its own.
    pub(super) fn refuse_for(&self, file: &Path) -> Result<(), Failure> {
        let Some(front_end) = &self.front_end else { return Ok(()) };
        let problem = format!("--front-end {front_end}: the model file {} has its own", file.display());
        Err(Failure::mistake(problem, "leave it out, or pass the checkpoint that the file was exported from"))
    }
}
