//! `bregman inspect`: what is in a run.

use std::fmt::Write as _;
use std::path::PathBuf;

use bregman_train::Inspection;

use crate::Outcome;
use crate::output::{print, print_json};

/// Show the sparsity of a run, layer by layer.
///
/// RUN is the folder of a run (its best checkpoint is shown, or its last where none was close enough to the target) or a checkpoint.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bregman inspect runs/audiomnist-ecapa-adabreg
  bregman inspect runs/audiomnist-ecapa-adabreg/last --json")]
pub(crate) struct Args {
    /// Folder of a run or of a checkpoint
    run: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Outcome {
    let inspection = Inspection::of(&args.run)?;
    if args.json { print_json(&inspection) } else { print(&text(&inspection)) }
}

fn text(inspection: &Inspection) -> String {
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    let mut text = format!("checkpoint  {}\nmethod      {}\n", inspection.checkpoint.display(), inspection.method);
    let ending = if inspection.finished { "finished" } else { "not finished" };
    let _ = writeln!(text, "trained     {} epochs, {} steps, {:.0} s ({ending})", inspection.epoch, inspection.step, inspection.seconds);
    let asked = inspection.target.map_or(String::new(), |target| format!(" (asked for {})", percent(target)));
    let _ = writeln!(text, "sparsity    {}{asked}", percent(inspection.sparsity));
    if let Some(lambda) = inspection.lambda {
        let _ = writeln!(text, "λ           {lambda:.4}");
    }
    let _ = writeln!(text, "parameters  {} of {} live", inspection.live, inspection.parameters);
    if let Some(best) = inspection.best {
        let _ = writeln!(text, "best        epoch {}: validation loss {:.3}, accuracy {}", best.epoch, best.loss, percent(best.accuracy));
    }
    let width = inspection.layers.iter().map(|layer| layer.name.len()).max().unwrap_or(0);
    let _ = writeln!(text, "\n{:width$}  {:>16}  {:>9}  {:>9}  {:>8}", "layer", "shape", "zeros", "live", "norm");
    for layer in &inspection.layers {
        let shape = layer.shape.iter().map(ToString::to_string).collect::<Vec<_>>().join("×");
        let dead = if layer.live == 0 { "  dead" } else { "" };
        let zeros = percent(layer.sparsity);
        let _ = writeln!(text, "{:width$}  {shape:>16}  {zeros:>9}  {:>9}  {:>8.3}{dead}", layer.name, layer.live, layer.norm);
    }
    text
}
