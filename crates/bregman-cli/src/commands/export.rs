//! `bregman export`: a trained network as one file for deployment.

use std::path::PathBuf;

use bregman_nn::Values;
use bregman_runtime::{Architecture, FrontEnd, Model, ModelFile, Threshold, ValueFormat};
use bregman_speaker::score::{Bootstrap, Embedder, EmbeddingStore, Evaluation, Rates};
use bregman_speaker::{AudioSource, FileCorpus, Manifest, Trials};
use bregman_train::Trained;
use bregman_train::config::{EcapaSize, ModelConfig, ResNetSize};
use serde::Serialize;

use crate::Outcome;
use crate::failure::Failure;
use crate::network::Network;
use crate::output::{Bar, print, print_json};

/// Write a run as one small file for deployment.
///
/// The classifier is dropped, batch norms are folded into convolutions where that is exact, and each layer is stored in the smallest of several sparse
/// encodings. The file also holds the front end's settings and a threshold: the one found on --trials with the exported model itself, or
/// else that of the last `bregman evaluate` of the run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bregman export runs/first -o model.breg
  bregman export runs/first -o model.breg --values f32 --trials voices/trials.txt --root voices
  bregman export runs/first -o small.breg --values int8 --force")]
pub(crate) struct Args {
    /// Run (its best checkpoint, or else its last) or checkpoint
    run: PathBuf,
    /// File to write
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Number format of the stored weights
    #[arg(long, value_enum, default_value_t = Format::F16)]
    values: Format,
    /// Trial list on which to find the threshold
    #[arg(long, value_name = "FILE", requires = "root")]
    trials: Option<PathBuf>,
    /// Folder that the names of the list count from
    #[arg(long, value_name = "DIR", requires = "trials")]
    root: Option<PathBuf>,
    /// Use at most the first so many seconds of an utterance
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    max_seconds: f64,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// Threads [default: every core]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How weights are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// 4 bytes, exact
    F32,
    /// 2 bytes
    F16,
    /// 1 byte and a scale per output
    Int8,
}

impl From<Format> for ValueFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::F32 => Self::F32,
            Format::F16 => Self::F16,
            Format::Int8 => Self::Int8,
        }
    }
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Exported {
    file: PathBuf,
    bytes: usize,
    dense_f32_bytes: usize,
    weights: usize,
    live: usize,
    threshold: Option<Threshold>,
}

pub(crate) fn run(args: Args) -> Outcome {
    super::use_threads(args.jobs)?;
    if args.out.exists() && !args.force {
        return Err(bregman_speaker::Error::Exists(args.out).into());
    }
    let trained = Trained::load(&args.run)?;
    let mut file = model_file(&trained)?;
    file.threshold = match (&args.trials, &args.root) {
        (Some(trials), Some(root)) => Some(calibrate(&args, &file, trials, root)?),
        _ => {
            let network = Network::open(&args.run, args.max_seconds)?;
            let known = crate::threshold::Threshold::of(network.run(), &network.name());
            known.map(|known| Threshold { cosine: known.cosine, eer: known.eer, trials: None })
        }
    };
    file.write(&args.out, args.values.into())?;
    let bytes = std::fs::metadata(&args.out).map_err(|error| Failure::failed(format!("{}: {error}", args.out.display())))?.len() as usize;
    let (weights, live) = file.layers.iter().fold((0, 0), |(weights, live), layer| {
        (weights + layer.weight.len(), live + layer.weight.iter().filter(|&&weight| weight != 0.0).count())
    });
    let vectors: usize = file.layers.iter().map(|layer| layer.bias.len() * if layer.after_relu.is_some() { 3 } else { 1 }).sum();
    let exported = Exported { file: args.out, bytes, dense_f32_bytes: 4 * (weights + vectors), weights, live, threshold: file.threshold };
    if args.json { print_json(&exported) } else { print(&text(&exported)) }
}

/// The deployable form of a trained network, without a threshold.
pub(crate) fn model_file(trained: &Trained) -> Result<ModelFile, Failure> {
    let fbank = trained.experiment().data.features.fbank();
    let features = fbank.bins;
    let architecture = match trained.experiment().model {
        ModelConfig::Ecapa(EcapaSize { channels, embedding, global_context }) => {
            Architecture::Ecapa { channels, features, embedding, global_context }
        }
        ModelConfig::ResNet(ResNetSize { blocks, channels, embedding }) => Architecture::ResNet { blocks, channels, features, embedding },
    };
    let state = trained.model().state().map_err(|error| Failure::failed(error.to_string()))?;
    let tensor = |name: &str| match state.tensors.get(name).map(|array| (&array.shape, &array.values)) {
        Some((shape, Values::F32(values))) => Some((shape.as_slice(), values.as_slice())),
        _ => None,
    };
    Ok(ModelFile::from_state(architecture, FrontEnd::from(&fbank), tensor)?)
}

struct Exporting<'a>(&'a Model);

impl Embedder for Exporting<'_> {
    fn embed(&mut self, samples: &mut [f32]) -> Result<Vec<f32>, String> {
        self.0.embed(samples).map_err(|error| error.to_string())
    }
}

/// The threshold at which the exported model, weights rounded as they will be, misses as often as it accepts others.
fn calibrate(args: &Args, file: &ModelFile, trials: &std::path::Path, root: &std::path::Path) -> Result<Threshold, Failure> {
    let model = Model::from_bytes(&file.to_bytes(args.values.into())?)?;
    let trials = Trials::read(trials)?;
    let source = FileCorpus(Manifest::of_files(root, trials.names.iter().map(String::as_str)));
    let resolved = trials.resolve(source.manifest(), None)?;
    let evaluation = Evaluation {
        source: &source,
        trials: &resolved,
        cohort: None,
        max_seconds: args.max_seconds,
        bootstrap: Bootstrap { replicates: 0, seed: 1 },
        strict: false,
    };
    let bar = Bar::new("calibrating");
    let scored = evaluation.run(|| Ok(Exporting(&model)), &EmbeddingStore::in_memory(), &bar)?;
    let Rates { threshold, eer, .. } = scored.report.rates;
    Ok(Threshold { cosine: threshold, eer, trials: Some(scored.report.trials) })
}

fn text(exported: &Exported) -> String {
    let Exported { file, bytes, dense_f32_bytes, weights, live, threshold } = exported;
    let mut text = format!(
        "{}: {:.2} MB, {:.4}× of the dense f32 weights ({:.2} MB)\nweights    {live} of {weights} live ({:.2} % zeros)\n",
        file.display(),
        *bytes as f64 / 1e6,
        *bytes as f64 / *dense_f32_bytes as f64,
        *dense_f32_bytes as f64 / 1e6,
        100.0 * (1.0 - *live as f64 / *weights as f64)
    );
    text += &match threshold {
        Some(threshold) => format!("threshold  {:.4} (equal error rate {:.2} %)\n", threshold.cosine, 100.0 * threshold.eer),
        None => "threshold  none: pass --trials and --root to find one\n".to_owned(),
    };
    text
}
