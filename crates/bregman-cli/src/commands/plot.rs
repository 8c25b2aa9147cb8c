//! `bregman plot`: single figures for papers.

use std::path::PathBuf;

use serde::Serialize;

use crate::Outcome;
use crate::output::{print, print_json, refuse_existing};
use crate::plot::{FigureFormat, What, figure, write};
use crate::report::RunReader;
use crate::runs::{ReportedRun, find};

/// Points of each curve, enough for the width of a page in print.
const BUCKETS: usize = 1000;

/// Write single figures of runs as SVG, PNG or PDF.
///
/// Several charts stand below each other with one legend. Colours are safe for colour-blind readers, and the PDF has
/// its font inside. Curves of many steps keep the lowest and highest value of each point as a band.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bregman plot runs/lin95 --what sparsity,lambda -o control.pdf
  bregman plot sweeps/adabreg --what eer,eer-out -o eer.svg
  bregman plot sweeps/table --what eer --test \"commands 2 s\" -o eer.svg
  bregman plot runs/lin95 --what heat -o layers.png --width 510")]
pub(crate) struct Args {
    /// Folders of runs, or folders with runs in them
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Charts, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', required = true)]
    what: Vec<What>,
    /// Only evaluations on the test set of this name
    #[arg(long, value_name = "NAME")]
    test: Option<String>,
    /// The file to write: .svg, .png or .pdf
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Width in points of 1/72 inch: 245 is a column of a paper, 510 a page
    #[arg(
        long,
        default_value_t = 480,
        value_name = "POINTS",
        value_parser = clap::value_parser!(u32).range(120..=4000)
    )]
    width: u32,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// Print what was written as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct PlotSummary {
    figure: PathBuf,
    bytes: usize,
    runs: Vec<String>,
}

pub(crate) fn run(args: Args) -> Outcome {
    let format = FigureFormat::of(&args.out)?;
    refuse_existing(&args.out, args.force)?;
    let mut reader = RunReader::new(BUCKETS);
    reader.read(&find(&args.runs, false)?);
    let runs: Vec<ReportedRun> = match &args.test {
        Some(test) => reader.runs().into_iter().map(|run| run.on_test(test)).collect(),
        None => reader.runs().into_iter().cloned().collect(),
    };
    let runs: Vec<&ReportedRun> = runs.iter().collect();
    let bytes = write(&figure(&runs, &args.what)?, format, f64::from(args.width), &args.out)?;
    let summary = PlotSummary { figure: args.out, bytes, runs: runs.iter().map(|run| run.name.clone()).collect() };
    if args.json {
        return print_json(&summary);
    }
    print(&format!(
        "{}: {} of {} runs, {:.1} kB\n",
        summary.figure.display(),
        count(args.what.len()),
        runs.len(),
        bytes as f64 / 1e3
    ))
}

fn count(charts: usize) -> String {
    if charts == 1 { "1 chart".to_owned() } else { format!("{charts} charts") }
}
