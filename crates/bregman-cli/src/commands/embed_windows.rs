//! `bregman embed --window`: recordings as the vectors of windows that slide over them.

use std::path::PathBuf;

use bregman_audio::{RATE, check_speech, load_16k};
use bregman_runtime::{Model, SlidingOptions, ValueFormat, WindowEmbedding};
use bregman_speaker::{Progress, Unreadable};

use crate::failure::Failure;
use crate::output::Bar;
use crate::runtime_model::RuntimeSource;

/// Which windows.
#[derive(Debug, clap::Args)]
pub(super) struct WindowArgs {
    /// Embed windows of so many seconds that slide over each file
    #[arg(long, value_name = "SECONDS", conflicts_with = "manifest")]
    pub(super) window: Option<f64>,
    /// Seconds from one window to the next [default: a quarter of a window]
    #[arg(long, value_name = "SECONDS", requires = "window")]
    hop: Option<f64>,
}

/// The windows of a file.
pub(super) struct FileWindows {
    pub(super) file: String,
    pub(super) windows: Vec<WindowEmbedding>,
}

/// The windows of every file that can be read and has speech in it, and the other files.
pub(super) fn embed(
    model: &std::path::Path,
    files: &[PathBuf],
    args: &WindowArgs,
    window: f64,
) -> Result<(Vec<FileWindows>, Vec<Unreadable>), Failure> {
    let hop = args.hop.unwrap_or(window / 4.0);
    let options = SlidingOptions { window, ..SlidingOptions::default() };
    let model = RuntimeSource::find(model, ValueFormat::F32)?.open(0)?;
    // options out of range are a mistake, not a property of the files
    for (option, seconds) in [("window", window), ("hop", hop)] {
        let probe = SlidingOptions { window: seconds, ..options };
        let hint = "pass seconds, at least 0.01 and at most 3600";
        model.sliding(probe).map_err(|_| Failure::mistake(format!("--{option} {seconds}"), hint))?;
    }
    let bar = Bar::new("embedding");
    bar.begin(files.len());
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    for path in files {
        let file = path.display().to_string();
        match windows(&model, path, options, hop) {
            Ok(windows) => found.push(FileWindows { file, windows }),
            Err(problem) => unreadable.push(Unreadable { path: file, problem }),
        }
        bar.step();
    }
    Ok((found, unreadable))
}

fn windows(model: &Model, path: &PathBuf, options: SlidingOptions, hop: f64) -> Result<Vec<WindowEmbedding>, String> {
    let samples = load_16k(path).map_err(|error| error.to_string())?;
    check_speech(&samples, RATE).map_err(|error| error.to_string())?;
    model.embed_windows(&samples, options, hop).map_err(|error| error.to_string())
}
