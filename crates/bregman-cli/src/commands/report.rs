//! `bregman report`: runs as a page to look at.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bregman_base::files::write_file;
use serde::Serialize;

use crate::Outcome;
use crate::output::{print, print_json, refuse_existing, say};
use crate::report::{Live, RunReader, buckets, page};
use crate::runs::{Status, find};
use crate::signals::stop_on_signals;

/// Write an HTML report of runs: sparsity, λ, loss, layers, error rates, recipes.
///
/// The page is one file that needs no network and opens from disk. Curves of more than some thousand steps are thinned:
/// each point keeps the lowest and the highest value of its steps. An unfinished or damaged run shows what there is and
/// says what is missing.
///
/// With --watch the file is written again whenever a run has news, until all runs have finished; the open page follows
/// by itself.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bregman report runs/lin95 -o report.html
  bregman report runs/lin95 runs/ada95 runs/dense -o compare.html
  bregman report sweeps/adabreg -o sweep.html             every run of a folder
  bregman report runs/lin95 -o report.html --force --watch    while it trains")]
pub(crate) struct Args {
    /// Folders of runs, or folders with runs in them
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    out: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// Keep the file up to date until all runs have finished
    #[arg(long)]
    watch: bool,
    /// Seconds between two looks at the runs
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 5,
        requires = "watch",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    every: u64,
    /// Print what was written as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct ReportSummary {
    report: PathBuf,
    bytes: usize,
    runs: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Line {
    name: String,
    folder: PathBuf,
    status: Status,
    target: Option<f64>,
    sparsity: Option<f64>,
    evaluations: usize,
    notes: Vec<String>,
}

pub(crate) fn run(args: Args) -> Outcome {
    refuse_existing(&args.out, args.force)?;
    let stop = if args.watch { Some(stop_on_signals("ending the watch")?) } else { None };
    let (found, mut bytes) = (find(&args.runs, args.watch)?, 0);
    let mut reader = RunReader::new(buckets(found.len()));
    loop {
        let news = reader.read(&find(&args.runs, args.watch)?);
        let runs = reader.runs();
        let over = runs.iter().all(|run| run.status == Status::Finished)
            || stop.as_ref().is_none_or(|stop| stop.load(Ordering::Relaxed));
        if news || over {
            let page = page(&runs, Live((!over).then_some(args.every)));
            bytes = page.len();
            write_file(&args.out, page)?;
        }
        if over {
            break;
        }
        if news {
            let steps: u64 = runs.iter().map(|run| run.steps_done).sum();
            say(&format!("{}: {} runs, {steps} steps; Ctrl-C ends the watch", args.out.display(), runs.len()));
        }
        let wake = Instant::now() + Duration::from_secs(args.every);
        while Instant::now() < wake && !stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let line = |run: &&crate::runs::ReportedRun| Line {
        name: run.name.clone(),
        folder: run.folder.clone(),
        status: run.status,
        target: run.target,
        sparsity: run.sparsity,
        evaluations: run.evaluations.len(),
        notes: run.notes.clone(),
    };
    let summary = ReportSummary { runs: reader.runs().iter().map(line).collect(), report: args.out, bytes };
    if args.json { print_json(&summary) } else { print(&text(&summary)) }
}

fn text(summary: &ReportSummary) -> String {
    let size = summary.bytes as f64 / 1e6;
    let mut text = format!("{}: {} runs, {size:.1} MB\n", summary.report.display(), summary.runs.len());
    for run in &summary.runs {
        if run.status != Status::Finished {
            let notes: Vec<&str> =
                run.notes.iter().map(String::as_str).filter(|note| !note.starts_with("not evaluated")).collect();
            text += &format!("  {}: {}\n", run.name, notes.join("; "));
        }
    }
    text
}
