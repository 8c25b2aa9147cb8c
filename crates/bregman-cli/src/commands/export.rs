//! `bregman export`: a trained network as one file for deployment, and in the formats that others read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bregman_base::files::write_file;
use bregman_runtime::{Model, ModelFile, Threshold, ValueFormat};
use bregman_speaker::score::{Bootstrap, EmbeddingStore, Evaluation, Rates, append_middle};
use bregman_speaker::{AudioSource as _, FileCorpus, Manifest, Trials, open_corpus};
use bregman_train::Deployable;
use serde::Serialize;

use super::options::{FrontEndArg, WriteArgs};
use crate::Outcome;
use crate::device::DeviceArg;
use crate::evaluation::find_audio;
use crate::failure::Failure;
use crate::network::{RuntimeEmbedder, SpeakerModel};
use crate::output::{Bar, print, print_json, refuse_existing};

/// The middle of an utterance of a trial that is used, in seconds.
pub(super) const MAX_SECONDS: f64 = 60.0;

/// Write a trained network, without its classifier, as one small file or as ONNX.
///
/// SOURCE is a run (its best checkpoint, or else its last), a checkpoint of one, or a checkpoint of WeSpeaker's
/// ECAPA-TDNN, ResNet34 or CAM++ (`avg_model.pt`, or safetensors; pyannote's `pytorch_model.bin`), of 3D-Speaker's
/// CAM++ or of SpeechBrain's ECAPA-TDNN (`embedding_model.ckpt`), whose size is read off its tensors; or a model file,
/// to be written again with other number formats.
///
/// A checkpoint of others seldom says on which features it was trained. What is found or assumed is printed;
/// --front-end says it.
///
/// -o writes one small file for `bregman verify --model` and the runtime.
/// Batch norms are folded into convolutions where that is exact, and each layer is stored in the smallest of several
/// sparse encodings. The file also holds the front end's settings and a threshold: the one found on --trials with the
/// exported model itself, or else that of the last `bregman evaluate` of the run.
///
/// --values int8 stores weights in 8 bits. With --calibrate it also computes in 8 bits, 1.3 to 1.9 times as fast at 75
/// to 95 % zeros (ECAPA-TDNN only), with the input range of each layer measured on the given utterances.
///
/// The graph of --onnx takes `feats` [batch, frames, bins], mean-subtracted filterbanks whose settings stand in the
/// file's properties, and gives `embs` [batch, embedding].
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bregman export runs/first -o model.breg
  bregman export runs/first -o model.breg --values f32 --trials voices/trials.txt --root voices
  bregman export runs/first -o fast.breg --values int8 --calibrate voices/train.csv
  bregman export model.breg -o fast.breg --values int8 --calibrate a.wav --calibrate b.wav
  bregman export voxceleb_resnet34/avg_model.pt -o model.breg
  bregman export pyannote/wespeaker-voxceleb-resnet34-LM/pytorch_model.bin -o model.breg
  bregman export spkrec-ecapa-voxceleb/embedding_model.ckpt -o model.breg
  bregman export campplus_voxceleb.bin -o model.breg --front-end 3d-speaker
  bregman export mine.pt -o model.breg --front-end '{\"window\": \"povey\"}' --threshold 0.31
  bregman export runs/first --onnx model.onnx --safetensors model.safetensors
  bregman export runs/first --pt avg_model.pt")]
pub(crate) struct Args {
    /// Run, checkpoint, .pt, .ckpt or .safetensors file of another toolkit, or model file (.breg)
    source: PathBuf,
    /// Write a model file
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["onnx", "safetensors", "pt"])]
    out: Option<PathBuf>,
    /// Write a standard ONNX graph, dense, in single precision
    #[arg(long, value_name = "FILE")]
    onnx: Option<PathBuf>,
    /// Write the plain weights under the names of WeSpeaker's state_dict
    #[arg(long, value_name = "FILE")]
    safetensors: Option<PathBuf>,
    /// The same as a .pt file, for torch.load and WeSpeaker
    #[arg(long, value_name = "FILE")]
    pt: Option<PathBuf>,
    /// Number format of the weights in the model file
    #[arg(long, value_enum, default_value_t = Format::F16)]
    values: Format,
    /// Speech for int8 arithmetic: audio file, manifest or shards, of which 100 utterances are used (repeatable)
    #[arg(long, value_name = "AUDIO", requires = "out")]
    calibrate: Vec<PathBuf>,
    #[command(flatten)]
    front_end: FrontEndArg,
    /// The threshold, where it is known: scores above it are accepted
    #[arg(long, value_name = "COSINE", requires = "out", conflicts_with = "trials")]
    threshold: Option<f64>,
    /// Trial list on which to find the threshold
    #[arg(long, value_name = "FILE", requires_all = ["roots", "out"])]
    trials: Option<PathBuf>,
    /// Where the names of the list are: folder, shards or manifest (repeatable)
    #[arg(long = "root", value_name = "DIR", requires = "trials")]
    roots: Vec<PathBuf>,
    /// Use at most this many seconds from the middle of an utterance
    #[arg(long, value_name = "SECONDS", default_value_t = MAX_SECONDS)]
    max_seconds: f64,
    #[command(flatten)]
    write: WriteArgs,
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
    #[serde(flatten)]
    model: Option<Packed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    onnx: Option<Written>,
    #[serde(skip_serializing_if = "Option::is_none")]
    safetensors: Option<Written>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pt: Option<Written>,
}

/// The model file.
#[derive(Debug, Serialize)]
struct Packed {
    #[serde(flatten)]
    written: Written,
    dense_f32_bytes: usize,
    /// In the file: without the classifier.
    weights: usize,
    nonzero: usize,
    /// Their share of zeros.
    zeros_in_file: f64,
    threshold: Option<Threshold>,
}

/// One file.
#[derive(Debug, Serialize)]
struct Written {
    file: PathBuf,
    bytes: u64,
}

impl Args {
    /// A model file of a run, with a threshold found on `trials` where they are given.
    pub(super) fn of_run(
        run: &Path,
        out: PathBuf,
        trials: Option<PathBuf>,
        roots: Vec<PathBuf>,
        write: WriteArgs,
    ) -> Self {
        Self {
            source: run.to_owned(),
            out: Some(out),
            onnx: None,
            safetensors: None,
            pt: None,
            values: Format::F16,
            calibrate: Vec::new(),
            front_end: FrontEndArg::default(),
            threshold: None,
            trials,
            roots,
            max_seconds: MAX_SECONDS,
            write,
        }
    }
}

pub(crate) fn run(args: Args) -> Outcome {
    args.write.work.use_threads()?;
    write(args)
}

/// Writes what is asked for, and says what it came to.
pub(super) fn write(args: Args) -> Outcome {
    for path in [&args.out, &args.onnx, &args.safetensors, &args.pt].into_iter().flatten() {
        refuse_existing(path, args.write.force)?;
    }
    if args.values != Format::Int8 && !args.calibrate.is_empty() {
        return Err(Failure::mistake("--calibrate finds ranges for 8-bit arithmetic", "add --values int8"));
    }
    if let Some(threshold) = args.threshold.filter(|threshold| !(-1.0..=1.0).contains(threshold)) {
        return Err(Failure::mistake(format!("--threshold {threshold}"), "pass a cosine: a number from -1 to 1"));
    }
    let source = Source::open(&args.source, &args.front_end)?;
    let model = args.out.as_deref().map(|path| pack(&args, source.to_model()?, path)).transpose()?;
    let onnx = |path: &Path| {
        write_file(path, source.network()?.to_onnx()?)?;
        Written::of(path)
    };
    let onnx = args.onnx.as_deref().map(onnx).transpose()?;
    let safetensors = |path: &Path| {
        source.network()?.write_safetensors(path)?;
        Written::of(path)
    };
    let safetensors = args.safetensors.as_deref().map(safetensors).transpose()?;
    let pt = |path: &Path| {
        source.network()?.write_pt(path)?;
        Written::of(path)
    };
    let pt = args.pt.as_deref().map(pt).transpose()?;
    let exported = Exported { model, onnx, safetensors, pt };
    if args.write.work.json { print_json(&exported) } else { print(&text(&exported)) }
}

/// What is exported.
enum Source {
    Network(Box<Deployable>),
    /// A model file, of which a training engine's network cannot be made: its norms are folded.
    File(ModelFile),
}

impl Source {
    fn open(path: &Path, front_end: &FrontEndArg) -> Result<Self, Failure> {
        if path.extension().is_none_or(|extension| extension != "breg") {
            return Ok(Self::Network(Box::new(front_end.open(path)?)));
        }
        front_end.refuse_for(path)?;
        let bytes = ModelFile::read_bytes(path)?;
        let file = ModelFile::from_bytes(&bytes).map_err(|error| Failure::from(error).in_file(path))?;
        Ok(Self::File(file))
    }

    fn to_model(&self) -> Result<ModelFile, Failure> {
        match self {
            Self::Network(network) => Ok(network.to_model()?),
            Self::File(file) => Ok(file.clone()),
        }
    }

    fn network(&self) -> Result<&Deployable, Failure> {
        match self {
            Self::Network(network) => Ok(network),
            Self::File(_) => Err(Failure::mistake(
                "a model file cannot be written as ONNX, safetensors or .pt",
                "pass the run or checkpoint that it was exported from",
            )),
        }
    }
}

/// Writes the model file.
fn pack(args: &Args, mut file: ModelFile, path: &Path) -> Result<Packed, Failure> {
    if !args.calibrate.is_empty() {
        file.calibrate(&utterances(&args.calibrate, args.max_seconds)?)?;
    }
    file.threshold = match (&args.trials, args.threshold) {
        (Some(trials), _) => Some(find_threshold(args, &file, trials)?),
        (None, Some(cosine)) => Some(Threshold { cosine, eer: None, trials: None }),
        _ if args.source.is_dir() => {
            SpeakerModel::open(&args.source, args.max_seconds, DeviceArg::CPU)?.calibrated()?
        }
        _ => file.threshold,
    };
    file.write(path, args.values.into())?;
    let model = Model::open(path)?;
    let vectors: usize =
        file.layers.iter().map(|layer| layer.bias.len() * if layer.after_relu.is_some() { 3 } else { 1 }).sum();
    Ok(Packed {
        written: Written::of(path)?,
        dense_f32_bytes: 4 * (model.weights() + vectors),
        weights: model.weights(),
        nonzero: model.nonzero(),
        zeros_in_file: model.zeros_in_file(),
        threshold: file.threshold,
    })
}

impl Written {
    fn of(file: &Path) -> Result<Self, Failure> {
        let bytes =
            std::fs::metadata(file).map_err(|error| Failure::failed(format!("{}: {error}", file.display())))?.len();
        Ok(Self { file: file.to_owned(), bytes })
    }
}

/// Utterances that ranges are found on, spread over those given: more make little difference.
const CALIBRATION: usize = 100;

/// The speech to calibrate with.
fn utterances(paths: &[PathBuf], max_seconds: f64) -> Result<Vec<Vec<f32>>, Failure> {
    let mut found = Vec::new();
    for path in paths {
        let is_corpus = path.is_dir() || path.extension().is_some_and(|extension| extension == "csv");
        let source = match is_corpus {
            true => open_corpus(path, None)?,
            false => Arc::new(FileCorpus(Manifest::of_paths(std::slice::from_ref(path)))),
        };
        found.extend((0..source.manifest().utterances.len()).map(|number| (source.clone(), number)));
    }
    let chosen = CALIBRATION.min(found.len());
    let read = |i: usize| {
        let (source, number) = &found[i * found.len() / chosen];
        let hint = "--calibrate takes audio files, a manifest or shards";
        let mut samples = Vec::new();
        append_middle(source.as_ref(), *number, max_seconds, &mut samples)
            .map_err(|error| Failure::mistake(error.to_string(), hint))?;
        Ok(samples)
    };
    (0..chosen).map(read).collect()
}

/// The threshold at which the exported model, weights rounded as they will be, misses as often as it accepts others.
fn find_threshold(args: &Args, file: &ModelFile, trials: &Path) -> Result<Threshold, Failure> {
    let model = Arc::new(Model::from_bytes(&file.to_bytes(args.values.into())?)?);
    let trials = Trials::read(trials)?;
    let source = find_audio(&args.roots, &trials, None)?;
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
    let scored = evaluation.run(|| Ok(RuntimeEmbedder::new(model.clone())), &EmbeddingStore::in_memory(), &bar)?;
    let Rates { threshold, eer, .. } = scored.report.rates;
    Ok(Threshold { cosine: threshold, eer: Some(eer), trials: Some(scored.report.trials) })
}

fn text(exported: &Exported) -> String {
    let megabytes = |bytes: u64| format!("{:.2} MB", bytes as f64 / 1e6);
    let mut text = String::new();
    if let Some(Packed { written, dense_f32_bytes, weights, nonzero, zeros_in_file, threshold }) = &exported.model {
        text += &format!(
            "{}: {}, {:.4}× of the dense f32 weights ({})\nweights    {nonzero} of {weights} non-zero ({:.2} % zeros \
             in the file)\n",
            written.file.display(),
            megabytes(written.bytes),
            written.bytes as f64 / *dense_f32_bytes as f64,
            megabytes(*dense_f32_bytes as u64),
            100.0 * zeros_in_file
        );
        text += &match threshold {
            Some(threshold) => format!("threshold  {threshold}\n"),
            None => "threshold  none: pass --trials and --root to find one\n".to_owned(),
        };
    }
    for (written, what) in [
        (&exported.onnx, "ONNX graph"),
        (&exported.safetensors, "plain weights"),
        (&exported.pt, "state_dict of WeSpeaker's names"),
    ] {
        if let Some(written) = written {
            text += &format!("{}: {}, {what}\n", written.file.display(), megabytes(written.bytes));
        }
    }
    text
}
