//! `bregman inspect`: what is in a run, or in a model file.

use std::fmt::Write as _;
use std::path::PathBuf;

use bregman_train::{Inspection, Trained};

use crate::Outcome;
use crate::network::is_model_file;
use crate::output::{print, print_json, refuse_existing};
use crate::pattern::{self, SparsityPattern};

/// Show the sparsity of a run or a model file, layer by layer.
///
/// A run is a folder (its best checkpoint is shown, or its last where none was close enough to the target), or one of
/// its checkpoints. Of a model file, the table also says how each layer is stored, what is left to compute and where
/// the time goes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bregman inspect runs/audiomnist-ecapa-adabreg
  bregman inspect model.breg --plot pattern.svg
  bregman inspect runs/audiomnist-ecapa-adabreg/last --json")]
pub(crate) struct Args {
    /// Run (its best checkpoint, or else its last), checkpoint, or model file (.breg)
    model: PathBuf,
    /// Draw where the non-zero weights are, as an .svg or .png file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Replace an existing drawing
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Outcome {
    if let Some(path) = &args.plot {
        refuse_existing(path, args.force)?;
    }
    if is_model_file(&args.model) {
        return super::inspect_model::run(&args.model, args.plot.as_deref(), args.json);
    }
    if let Some(path) = &args.plot {
        let trained = Trained::load(&args.model)?;
        let weights = trained.model().params().all().iter().filter(|parameter| parameter.param.shape.len() > 1);
        pattern::draw(
            path,
            &weights
                .map(|weight| SparsityPattern::new(&weight.param.name, &weight.param.shape, &weight.value))
                .collect::<Vec<_>>(),
        )?;
    }
    let inspection = Inspection::of(&args.model)?;
    if args.json { print_json(&inspection) } else { print(&text(&inspection)) }
}

fn text(inspection: &Inspection) -> String {
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    let mut text = format!("checkpoint  {}\nmethod      {}\n", inspection.checkpoint.display(), inspection.method);
    let ending = if inspection.finished { "finished" } else { "not finished" };
    let _ = writeln!(
        text,
        "trained     {} epochs, {} steps, {:.0} s ({ending})",
        inspection.epoch, inspection.step, inspection.seconds
    );
    let asked = inspection.target.map_or(String::new(), |target| format!(" (asked for {})", percent(target)));
    let _ = writeln!(text, "sparsity    {}{asked}", percent(inspection.sparsity));
    if let Some(lambda) = inspection.lambda {
        let _ = writeln!(text, "λ           {lambda:.4}");
    }
    if let Some(survived) = inspection.survived {
        let _ = writeln!(text, "exchanges   {} of the weights they grew survived the next one", percent(survived));
    }
    let _ = writeln!(text, "parameters  {} of {} non-zero", inspection.nonzero_parameters, inspection.parameters);
    if let Some(best) = inspection.best {
        let _ = writeln!(
            text,
            "best        epoch {}: validation loss {:.3}, accuracy {}",
            best.epoch,
            best.loss,
            percent(best.accuracy)
        );
    }
    let width = inspection.layers.iter().map(|layer| layer.name.len()).max().unwrap_or(0);
    let _ = writeln!(text, "\n{:width$}  {:>16}  {:>9}  {:>9}  {:>8}", "layer", "shape", "zeros", "non-zero", "norm");
    for layer in &inspection.layers {
        let shape = layer.shape.iter().map(ToString::to_string).collect::<Vec<_>>().join("×");
        let all_zero = if layer.nonzero == 0 { "  all zero" } else { "" };
        let zeros = percent(layer.sparsity);
        let _ = writeln!(
            text,
            "{:width$}  {shape:>16}  {zeros:>9}  {:>9}  {:>8.3}{all_zero}",
            layer.name, layer.nonzero, layer.norm
        );
    }
    text
}
