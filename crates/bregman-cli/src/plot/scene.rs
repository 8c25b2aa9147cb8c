//! A figure before it is drawn: marks over axes, in data coordinates.

use super::axis::{PlotAxis, Scale};

/// Red, green, blue.
pub(super) type Color = (u8, u8, u8);

/// The colour-blind-safe palette of Okabe & Ito, without yellow, which is hard to see on paper.
pub(super) const COLORS: [Color; 7] =
    [(0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167), (230, 159, 0), (86, 180, 233), (77, 77, 77)];
pub(super) const GOOD: Color = (0, 122, 90);
pub(super) const GREY: Color = (98, 108, 121);
/// Strokes and gaps, in points: together with the colours, 21 distinct lines.
const DASHES: [Option<[f64; 2]>; 3] = [None, Some([5.0, 2.5]), Some([1.5, 2.0])];

/// How a line or point looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Look {
    pub(super) color: Color,
    pub(super) dash: Option<[f64; 2]>,
    pub(super) width: f64,
}

impl Look {
    /// The look of run number `at`, as in the report.
    pub(super) fn of(at: usize) -> Self {
        Self { color: COLORS[at % COLORS.len()], dash: DASHES[at / COLORS.len() % DASHES.len()], width: 1.2 }
    }
}

/// What is drawn in a panel.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Mark {
    /// Values that are not numbers are gaps.
    Line { points: Vec<[f64; 2]>, look: Look },
    /// A filled polygon.
    Area { points: Vec<[f64; 2]>, color: Color, alpha: f64 },
    /// A filled rectangle between two corners.
    Rectangle { from: [f64; 2], to: [f64; 2], color: Color, alpha: f64 },
    /// A symbol, by number.
    Point { at: [f64; 2], symbol: usize, color: Color },
}

/// One pair of axes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Panel {
    pub(super) x: PlotAxis,
    pub(super) y: PlotAxis,
    pub(super) marks: Vec<Mark>,
    /// Names of rows at 0.5, 1.5, … from the top, instead of ticks.
    pub(super) rows: Vec<String>,
}

/// A drawn chart; `None` if the runs have no data for it.
pub(super) type Drawn = Option<(Panel, Vec<LegendEntry>)>;

impl Panel {
    /// Axes around all marks, each given as its scale, its label and whether it shows fractions.
    pub(super) fn around(
        x: (Scale, &'static str, bool),
        y: (Scale, &'static str, bool),
        marks: Vec<Mark>,
    ) -> Option<Self> {
        let corners = |mark: &Mark| match mark {
            Mark::Line { points, .. } | Mark::Area { points, .. } => points.clone(),
            Mark::Rectangle { from, to, .. } => vec![*from, *to],
            Mark::Point { at, .. } => vec![*at],
        };
        let all: Vec<[f64; 2]> = marks.iter().flat_map(corners).filter(|[_, y]| y.is_finite()).collect();
        let x = PlotAxis::over(x.0, x.1, x.2, all.iter().map(|[x, _]| *x))?;
        let y = PlotAxis::over(y.0, y.1, y.2, all.iter().map(|[_, y]| *y))?;
        Some(Self { x, y, marks, rows: Vec::new() })
    }
}

/// An entry of the legend.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LegendEntry {
    pub(super) name: String,
    pub(super) look: Look,
    pub(super) symbol: Option<usize>,
}

/// Panels below each other, with one legend.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Figure {
    pub(super) panels: Vec<Panel>,
    pub(super) keys: Vec<LegendEntry>,
}

impl Figure {
    /// Puts another figure below, with what it adds to the legend.
    pub(crate) fn append(&mut self, other: Self) {
        self.panels.extend(other.panels);
        for key in other.keys {
            if !self.keys.iter().any(|known| known.name == key.name) {
                self.keys.push(key);
            }
        }
    }
}
