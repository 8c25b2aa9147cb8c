//! `bregman embed --window`: recordings as the vectors of windows that slide over them.

use std::path::{Path, PathBuf};

use bregman_audio::{RATE, check_speech, load_16k};
use bregman_runtime::{Model, SlidingOptions, ValueFormat, WindowEmbedding};
use bregman_speaker::{Progress, Unreadable};
use bregman_train::Ranks;

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

/// A row of the output for every window of every file that can be read and has speech in it, and the other files. Each
/// rank reads a part of the files.
pub(super) fn embed(
    model: &Path,
    files: &[PathBuf],
    args: &WindowArgs,
    window: f64,
    row: impl Fn(&str, &WindowEmbedding) -> Result<String, String>,
    ranks: &Ranks,
) -> Result<Found, Failure> {
    let hop = args.hop.unwrap_or(window / 4.0);
    let options = SlidingOptions { window, ..SlidingOptions::default() };
    let model = RuntimeSource::find(model, ValueFormat::F32)?.open(0)?;
    // options out of range are a mistake, not a property of the files
    for (option, seconds) in [("window", window), ("hop", hop)] {
        let probe = SlidingOptions { window: seconds, ..options };
        let hint = "pass seconds, at least 0.01 and at most 3600";
        model.sliding(probe).map_err(|_| Failure::mistake(format!("--{option} {seconds}"), hint))?;
    }
    divided(ranks, files, |path| {
        let file = path.display().to_string();
        windows(&model, path, options, hop)?.iter().map(|window| row(&file, window)).collect()
    })
}

/// Rows, and the files that have none.
type Found = (Vec<String>, Vec<Unreadable>);

/// What `one` finds in every file, which is asked of one rank; all ranks are told, in the order of the files.
fn divided(
    ranks: &Ranks,
    files: &[PathBuf],
    mut one: impl FnMut(&Path) -> Result<Vec<String>, String>,
) -> Result<Found, Failure> {
    let own = &files[ranks.part_of(files.len())];
    let bar = Bar::new("embedding");
    bar.begin(own.len());
    let (mut rows, mut unreadable) = Found::default();
    for path in own {
        match one(path) {
            Ok(found) => rows.extend(found),
            Err(problem) => unreadable.push(Unreadable { path: path.display().to_string(), problem }),
        }
        bar.step();
    }
    let failed = |error: serde_json::Error| Failure::failed(error.to_string());
    let own = serde_json::to_vec(&(rows, unreadable)).map_err(failed)?;
    let mut all = Found::default();
    for part in ranks.gather(&own).map_err(bregman_train::Error::from)? {
        let (rows, unreadable): Found = serde_json::from_slice(&part).map_err(failed)?;
        all.0.extend(rows);
        all.1.extend(unreadable);
    }
    Ok(all)
}

fn windows(model: &Model, path: &Path, options: SlidingOptions, hop: f64) -> Result<Vec<WindowEmbedding>, String> {
    let samples = load_16k(path).map_err(|error| error.to_string())?;
    check_speech(&samples, RATE).map_err(|error| error.to_string())?;
    model.embed_windows(&samples, options, hop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bregman_tensor::thread_ranks;

    use super::*;

    #[test]
    fn each_file_is_read_by_one_rank_and_all_ranks_have_every_row_in_order() {
        let files: Vec<PathBuf> = ["a", "b", "broken", "d", "e"].iter().map(PathBuf::from).collect();
        let read = AtomicUsize::new(0);
        let one = |path: &Path| {
            read.fetch_add(1, Ordering::Relaxed);
            let name = path.display().to_string();
            if name == "broken" { Err("is not audio".to_owned()) } else { Ok(vec![format!("{name},1"), name]) }
        };
        std::thread::scope(|scope| {
            for ranks in thread_ranks(2) {
                let (files, one) = (&files, &one);
                scope.spawn(move || {
                    let (rows, unreadable) = divided(&ranks, files, one).unwrap();
                    assert_eq!(rows, ["a,1", "a", "b,1", "b", "d,1", "d", "e,1", "e"]);
                    assert_eq!((&unreadable[0].path[..], unreadable.len()), ("broken", 1));
                });
            }
        });
        assert_eq!(read.into_inner(), files.len());
    }
}
