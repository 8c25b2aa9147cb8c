//! `bregman inspect model.breg`: what is in a model file.

use std::path::Path;
use std::time::Duration;

use bregman_runtime::{Architecture, FrontEnd, LayerInfo, Model, ModelFile, Positions, Threshold};
use serde::Serialize;

use crate::Outcome;
use crate::failure::Failure;
use crate::output::{print, print_json, table};
use crate::pattern::{self, SparsityPattern};

/// Frames of three seconds.
const FRAMES: usize = 300;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Inspection<'a> {
    file: &'a Path,
    bytes: usize,
    architecture: &'a Architecture,
    front_end: &'a FrontEnd,
    threshold: Option<&'a Threshold>,
    /// In the file: without the classifier.
    weights: usize,
    nonzero: usize,
    /// Their share of zeros.
    zeros_in_file: f64,
    /// For 300 frames.
    multiply_adds: u64,
    layers: Vec<LayerRow<'a>>,
}

#[derive(Debug, Serialize)]
struct LayerRow<'a> {
    #[serde(flatten)]
    layer: &'a LayerInfo,
    zeros: f64,
    multiply_adds: u64,
    time_ms: f64,
    time_share: f64,
}

pub(super) fn run(path: &Path, plot: Option<&Path>, json: bool) -> Outcome {
    let named = |error: bregman_runtime::Error| Failure::from(error).in_file(path);
    let bytes = ModelFile::read_bytes(path)?;
    let model = Model::from_bytes(&bytes).map_err(named)?;
    if let Some(plot) = plot {
        let file = ModelFile::from_bytes(&bytes).map_err(named)?;
        let layers = model.layers().iter().zip(&file.layers);
        pattern::draw(
            plot,
            &layers
                .map(|(info, layer)| SparsityPattern::new(&info.name, &info.shape, &layer.weight))
                .collect::<Vec<_>>(),
        )?;
    }
    let times = times(&model)?;
    let total: f64 = times.iter().map(Duration::as_secs_f64).sum();
    let row = |(layer, time): (_, &Duration)| {
        let layer: &LayerInfo = layer;
        let (multiply_adds, zeros) = (layer.multiply_adds(FRAMES), layer.zeros());
        LayerRow {
            layer,
            zeros,
            multiply_adds,
            time_ms: 1e3 * time.as_secs_f64(),
            time_share: time.as_secs_f64() / total,
        }
    };
    let layers: Vec<LayerRow> = model.layers().iter().zip(&times).map(row).collect();
    let inspection = Inspection {
        file: path,
        bytes: bytes.len(),
        architecture: model.architecture(),
        front_end: model.front_end(),
        threshold: model.calibration(),
        weights: model.weights(),
        nonzero: model.nonzero(),
        zeros_in_file: model.zeros_in_file(),
        multiply_adds: layers.iter().map(|row| row.multiply_adds).sum(),
        layers,
    };
    if json { print_json(&inspection) } else { print(&text(&inspection, 1e3 * total)) }
}

/// The shortest time of each layer in a few executions.
fn times(model: &Model) -> Result<Vec<Duration>, Failure> {
    let features: Vec<f32> =
        (0..FRAMES * model.architecture().features).map(|i| ((i * 7919) % 201) as f32 / 50.0 - 2.0).collect();
    let mut best = model.profile(&features)?;
    for _ in 0..4 {
        best.iter_mut().zip(model.profile(&features)?).for_each(|(best, time)| *best = time.min(*best));
    }
    Ok(best)
}

fn text(inspection: &Inspection, total_ms: f64) -> String {
    let Inspection { file, bytes, weights, nonzero, zeros_in_file, multiply_adds, threshold, .. } = inspection;
    let mut text = format!(
        "model       {} ({:.2} MB)\nnetwork     {}\nfront end   {}\n",
        file.display(),
        *bytes as f64 / 1e6,
        inspection.architecture,
        inspection.front_end.settings()
    );
    text += &format!("weights     {nonzero} of {weights} non-zero, {:.2} % zeros in the file\n", 100.0 * zeros_in_file);
    text += &match threshold {
        Some(threshold) => format!("threshold   {threshold}\n"),
        None => "threshold   none\n".to_owned(),
    };
    text += &format!(
        "3 s         {:.1} million multiply-adds, {total_ms:.1} ms on one thread\n\n",
        *multiply_adds as f64 / 1e6
    );
    let row = |row: &LayerRow| {
        let shape = row.layer.shape.iter().map(ToString::to_string).collect::<Vec<_>>().join("×");
        let positions = match row.layer.positions {
            Positions::Dense => "dense",
            Positions::Bitmap => "bitmap",
            Positions::Gaps { .. } => "gaps",
        };
        vec![
            row.layer.name.clone(),
            shape,
            format!("{:.2} %", 100.0 * row.zeros),
            format!("{positions} {:?}", row.layer.values).to_lowercase(),
            row.layer.bytes.to_string(),
            format!("{:?}", row.layer.runs).to_lowercase(),
            format!("{:.2}", row.multiply_adds as f64 / 1e6),
            format!("{:.1} %", 100.0 * row.time_share),
        ]
    };
    let rows: Vec<Vec<String>> = inspection.layers.iter().map(row).collect();
    text + &table(&["layer", "shape", "zeros", "encoding", "bytes", "runs", "M mult-adds", "time"], &rows)
}
