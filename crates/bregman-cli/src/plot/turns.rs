//! Who spoke when: one row per speaker.

use bregman_speaker::diarize::{Turn, speakers_of};

use super::axis::{PlotAxis, Scale};
use super::scene::{COLORS, Color, Figure, GREY, Mark, Panel};

/// The turns of a recording of so many seconds; below them, where it is known, the truth.
pub(crate) fn turns(found: &[Turn], truth: Option<&[Turn]>, seconds: f64) -> Figure {
    let mut panels = vec![panel(found, seconds, "seconds", |row| COLORS[row % COLORS.len()])];
    panels.extend(truth.map(|truth| panel(truth, seconds, "seconds, reference", |_| GREY)));
    Figure { panels, keys: Vec::new() }
}

fn panel(turns: &[Turn], seconds: f64, label: &'static str, color: impl Fn(usize) -> Color) -> Panel {
    let mut rows: Vec<String> = speakers_of(turns).into_iter().map(str::to_owned).collect();
    rows.sort_by_key(|name| turns.iter().position(|turn| turn.speaker == *name));
    let bar = |turn: &Turn| {
        let row = rows.iter().position(|name| *name == turn.speaker).unwrap_or(0);
        Mark::Rectangle {
            from: [turn.start, row as f64 + 0.12],
            to: [turn.end, row as f64 + 0.88],
            color: color(row),
            alpha: 1.0,
        }
    };
    let axis =
        |range, label: &'static str| PlotAxis { scale: Scale::Linear, range, label: label.into(), percent: false };
    let marks = turns.iter().map(bar).collect();
    Panel { x: axis([0.0, seconds.max(1e-3)], label), y: axis([rows.len() as f64, 0.0], ""), marks, rows }
}
