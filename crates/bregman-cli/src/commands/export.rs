//! `bregman export`: a trained network in the formats that others read.

use std::path::{Path, PathBuf};

use bregman_train::Deployable;
use serde::Serialize;

use crate::Outcome;
use crate::failure::Failure;
use crate::output::{print, print_json, table};

/// Write a trained network, without its classifier, for use elsewhere.
///
/// SOURCE is a run (its best checkpoint, or else its last), a checkpoint, or a checkpoint of WeSpeaker's ECAPA-TDNN or ResNet34
/// (`avg_model.pt` or safetensors), whose size is read off its tensors.
///
/// The ONNX graph takes `feats` [batch, frames, bins], mean-subtracted filterbanks whose settings stand in the file's properties, and gives
/// `embs` [batch, embedding].
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bregman export runs/first --onnx model.onnx
  bregman export voxceleb_resnet34/avg_model.pt --onnx model.onnx --safetensors model.safetensors")]
pub(crate) struct Args {
    /// Run, checkpoint, or WeSpeaker's .pt or .safetensors file
    source: PathBuf,
    /// Write a standard ONNX graph
    #[arg(long, value_name = "FILE", required_unless_present = "safetensors")]
    onnx: Option<PathBuf>,
    /// Write the plain weights, under the names of WeSpeaker's state_dict
    #[arg(long, value_name = "FILE")]
    safetensors: Option<PathBuf>,
    /// Replace existing files
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One file that was written.
#[derive(Debug, Serialize)]
struct Written {
    format: &'static str,
    file: PathBuf,
    bytes: u64,
}

pub(crate) fn run(args: Args) -> Outcome {
    let files = [&args.onnx, &args.safetensors];
    if let Some(path) = files.into_iter().flatten().find(|path| path.exists() && !args.force) {
        return Err(bregman_speaker::Error::Exists(path.clone()).into());
    }
    let network = Deployable::open(&args.source)?;
    let mut written = Vec::new();
    if let Some(path) = &args.onnx {
        let bytes = network.to_onnx()?;
        let save = |path: &Path| std::fs::write(path, &bytes).map_err(|error| Failure::failed(format!("{}: {error}", path.display())));
        written.push(write("onnx", path, save)?);
    }
    if let Some(path) = &args.safetensors {
        written.push(write("safetensors", path, |path| Ok(network.write_safetensors(path)?))?);
    }
    if args.json {
        return print_json(&written);
    }
    let rows: Vec<_> = written.iter().map(|w| vec![w.file.display().to_string(), w.format.to_owned(), w.bytes.to_string()]).collect();
    print(&table(&["file", "format", "bytes"], &rows))
}

/// Writes beside the file and renames, so that nobody ever sees half a model; an error leaves what was there before.
fn write(format: &'static str, file: &Path, fill: impl FnOnce(&Path) -> Outcome) -> Result<Written, Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", file.display()));
    let mut temporary = file.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    let renamed = fill(&temporary).and_then(|()| std::fs::rename(&temporary, file).map_err(failed));
    if renamed.is_err() {
        let _ = std::fs::remove_file(&temporary); // the first error is the one to report
    }
    renamed?;
    Ok(Written { format, file: file.to_owned(), bytes: std::fs::metadata(file).map_err(failed)?.len() })
}
