//! Curves over steps and epochs, with targets and tolerances behind them.

use super::axis::{PlotAxis, Scale};
use super::scene::{Drawn, GOOD, LegendEntry, Look, Mark, Panel};
use crate::runs::ReportedRun;

pub(super) fn line(xs: impl Iterator<Item = f64>, ys: &[f64], look: Look) -> Mark {
    Mark::Line { points: xs.zip(ys).map(|(x, &y)| [x, y]).collect(), look }
}

fn key(run: &ReportedRun, at: usize) -> LegendEntry {
    LegendEntry { name: run.name.clone(), look: Look::of(at), symbol: None }
}

/// A metric of every step: the mean, and if steps were thinned a band from the lowest to the highest value.
pub(super) fn steps(runs: &[&ReportedRun], metric: &str, label: &'static str, scale: Scale, percent: bool) -> Drawn {
    let (mut marks, mut keys) = (Vec::new(), Vec::new());
    for (at, run) in runs.iter().enumerate() {
        let Some(curve) = run.curves.metrics.get(metric) else { continue };
        let (look, xs) = (Look::of(at), || run.curves.last.iter().map(|&step| step as f64));
        let edge = |values: &[f64]| {
            xs().zip(values.to_vec()).map(|(x, y)| [x, y]).filter(|[_, y]| y.is_finite()).collect::<Vec<_>>()
        };
        let (above, below) = (edge(&curve.high), edge(&curve.low));
        if !above.is_empty() {
            let points = above.into_iter().chain(below.into_iter().rev()).collect();
            marks.push(Mark::Area { points, color: look.color, alpha: (0.3 / runs.len() as f64).max(0.04) });
        }
        marks.push(line(xs(), &curve.mean, look));
        keys.push(key(run, at));
    }
    Some((Panel::around((Scale::Linear, "step", false), (scale, label, percent), marks)?, keys))
}

pub(super) fn epochs(
    runs: &[&ReportedRun],
    column: fn(&ReportedRun) -> &Vec<f64>,
    label: &'static str,
    scale: Scale,
    percent: bool,
) -> Drawn {
    let known = || runs.iter().enumerate().filter(|(_, run)| column(run).iter().any(|value| value.is_finite()));
    let marks = known()
        .map(|(at, run)| line(run.epochs.epoch.iter().map(|&epoch| epoch as f64), column(run), Look::of(at)))
        .collect();
    Some((
        Panel::around((Scale::Linear, "epoch", false), (scale, label, percent), marks)?,
        known().map(|(at, run)| key(run, at)).collect(),
    ))
}

pub(super) fn target_look() -> Look {
    Look { color: GOOD, dash: Some([4.0, 2.5]), width: 0.9 }
}

/// Draws the targets of the runs and their tolerances behind the curves.
pub(super) fn with_targets(
    (mut panel, keys): (Panel, Vec<LegendEntry>),
    runs: &[&ReportedRun],
) -> (Panel, Vec<LegendEntry>) {
    let mut targets: Vec<(f64, f64)> = runs.iter().filter_map(|run| Some((run.target?, run.tolerance))).collect();
    targets.sort_by(|a, b| a.0.total_cmp(&b.0));
    targets.dedup_by(|a, b| a.0 == b.0);
    let [low, high] = panel.y.range;
    let ends = targets.iter().flat_map(|(target, tolerance)| [target - tolerance, target + tolerance]);
    panel.y = PlotAxis::over(panel.y.scale, panel.y.label.clone(), true, ends.chain([low, high]))
        .unwrap_or(panel.y)
        .within(f64::NEG_INFINITY, 1.005);
    bands(&mut panel, targets.into_iter());
    (panel, keys)
}

/// Draws the tolerances around an error of zero.
pub(super) fn with_tolerance(
    (mut panel, keys): (Panel, Vec<LegendEntry>),
    runs: &[&ReportedRun],
) -> (Panel, Vec<LegendEntry>) {
    let tolerance = runs.iter().map(|run| run.tolerance).fold(0.0, f64::max);
    let [low, high] = panel.y.range;
    panel.y.range = [low.min(-1.2 * tolerance), high.max(1.2 * tolerance)];
    bands(&mut panel, std::iter::once((0.0, tolerance)));
    (panel, keys)
}

fn bands(panel: &mut Panel, targets: impl Iterator<Item = (f64, f64)>) {
    let [left, right] = panel.x.range;
    let mut behind = Vec::new();
    for (target, tolerance) in targets {
        behind.push(Mark::Rectangle {
            from: [left, target - tolerance],
            to: [right, target + tolerance],
            color: GOOD,
            alpha: 0.13,
        });
        behind.push(Mark::Line { points: vec![[left, target], [right, target]], look: target_look() });
    }
    behind.append(&mut panel.marks);
    panel.marks = behind;
}

pub(super) fn groups(runs: &[&ReportedRun]) -> Drawn {
    let run = runs.iter().find(|run| !run.epochs.groups.is_empty())?;
    let named = || run.epochs.groups.iter().enumerate();
    let marks = named()
        .map(|(at, group)| line(run.epochs.epoch.iter().map(|&epoch| epoch as f64), &group.sparsity, Look::of(at)));
    let panel = Panel::around((Scale::Linear, "epoch", false), (Scale::Linear, "zeros, %", true), marks.collect())?;
    let keys = named().map(|(at, group)| LegendEntry { name: group.name.clone(), look: Look::of(at), symbol: None });
    Some((panel, keys.collect()))
}
