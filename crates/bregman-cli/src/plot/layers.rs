//! The layers of one run, one row each.

use super::axis::{PlotAxis, Scale};
use super::curves::target_look;
use super::scene::{COLORS, Color, Drawn, LegendEntry, Look, Mark, Panel};
use crate::runs::ReportedRun;

/// One row per layer of the first run that has layers.
fn layered<'a>(runs: &[&'a ReportedRun]) -> Option<(&'a ReportedRun, PlotAxis, Vec<String>)> {
    let run = runs.iter().find(|run| !run.layers.layers.is_empty())?;
    let names = run.layers.layers.iter().map(|layer| layer.name.trim_end_matches(".weight").to_owned()).collect();
    let rows = PlotAxis {
        scale: Scale::Linear,
        range: [run.layers.layers.len() as f64, 0.0],
        label: "".into(),
        percent: false,
    };
    Some((run, rows, names))
}

const ALL_ZERO: Color = COLORS[1];

pub(super) fn layers(runs: &[&ReportedRun]) -> Drawn {
    let (run, y, rows) = layered(runs)?;
    let bar = |(row, layer): (usize, &crate::runs::Layer)| Mark::Rectangle {
        from: [0.0, row as f64 + 0.12],
        to: [layer.sparsity.last().copied().unwrap_or(0.0), row as f64 + 0.88],
        color: if layer.zero_since.is_some() { ALL_ZERO } else { COLORS[0] },
        alpha: 1.0,
    };
    let mut marks: Vec<Mark> = run.layers.layers.iter().enumerate().map(bar).collect();
    marks.extend(
        run.target
            .map(|target| Mark::Line { points: vec![[target, 0.0], [target, rows.len() as f64]], look: target_look() }),
    );
    let x = PlotAxis { scale: Scale::Linear, range: [0.0, 1.0], label: "zeros, %".into(), percent: true };
    let all_zero = LegendEntry {
        name: "all weights are zero".to_owned(),
        look: Look { color: ALL_ZERO, dash: None, width: 4.0 },
        symbol: None,
    };
    let keys = if run.layers.all_zero().next().is_some() { vec![all_zero] } else { vec![] };
    Some((Panel { x, y, marks, rows }, keys))
}

pub(super) fn heat(runs: &[&ReportedRun]) -> Drawn {
    let (run, y, rows) = layered(runs)?;
    let last = *run.layers.epoch.last()? as f64;
    let cell = |(row, layer): (usize, &crate::runs::Layer)| {
        let epochs = &run.layers.epoch;
        let cells = layer.sparsity.iter().enumerate().filter(|(_, sparsity)| sparsity.is_finite()).map(
            move |(at, &sparsity)| {
                let from = if at == 0 { 0.5 } else { epochs[at - 1] as f64 + 0.5 };
                let to = epochs[at] as f64 + 0.5;
                Mark::Rectangle {
                    from: [from, row as f64],
                    to: [to, row as f64 + 1.0],
                    color: cividis(sparsity),
                    alpha: 1.0,
                }
            },
        );
        cells.collect::<Vec<_>>()
    };
    let marks = run.layers.layers.iter().enumerate().flat_map(cell).collect();
    let x = PlotAxis { scale: Scale::Linear, range: [0.5, last + 0.5], label: "epoch".into(), percent: false };
    let keys = [0.0, 0.5, 0.75, 0.9, 1.0].map(|share: f64| LegendEntry {
        name: format!("{} % zeros", 100.0 * share),
        look: Look { color: cividis(share), dash: None, width: 6.0 },
        symbol: None,
    });
    Some((Panel { x, y, marks, rows }, keys.to_vec()))
}

/// Cividis: perceptually uniform, also for colour-blind readers (Nuñez, Anderton & Renslow 2018).
fn cividis(share: f64) -> Color {
    const STOPS: [Color; 11] = [
        (0, 32, 77),
        (0, 52, 110),
        (39, 68, 108),
        (69, 85, 107),
        (94, 101, 110),
        (119, 119, 119),
        (146, 138, 118),
        (174, 157, 109),
        (203, 178, 94),
        (232, 200, 70),
        (255, 233, 69),
    ];
    let at = share.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let low = (at as usize).min(STOPS.len() - 2);
    let mix = |a: u8, b: u8| (f64::from(a) + (at - low as f64) * (f64::from(b) - f64::from(a))).round() as u8;
    let (a, b) = (STOPS[low], STOPS[low + 1]);
    (mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}
