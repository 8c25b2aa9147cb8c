//! Draws a figure on any of plotters' backends. Lengths are in points; backends use whole units, `scale` of them
//! per point.

use plotters::prelude::{IntoFont, RGBAColor, ShapeStyle, TextStyle};
use plotters::style::FontTransform;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters_backend::{DrawingBackend, DrawingErrorKind};

use super::scene::{Color, Figure, GREY, LegendEntry, Look, Mark, Panel};

/// The embedded font of all text.
pub(super) const FAMILY: &str = "DejaVu Sans";
const INK: Color = (26, 31, 38);
const GRID: Color = (228, 232, 236);
const SMALL: f64 = 7.5;
const LINE: f64 = 11.0;

/// Width and height of a figure in points.
pub(super) fn size(figure: &Figure, width: f64) -> [f64; 2] {
    let panels: f64 = figure.panels.iter().map(|panel| panel_height(panel, width)).sum();
    [width, panels + legend_height(&figure.keys, width) + 4.0]
}

fn panel_height(panel: &Panel, width: f64) -> f64 {
    if panel.rows.is_empty() { (0.45 * width).clamp(110.0, 240.0) } else { 34.0 + 9.5 * panel.rows.len() as f64 }
}

/// Space above and below the axes of a panel.
const ABOVE: f64 = 8.0;
const BELOW: f64 = 27.0;

fn y_ticks(panel: &Panel, height: f64) -> Vec<(f64, String)> {
    if panel.rows.is_empty() { panel.y.ticks((height - ABOVE - BELOW) / 30.0) } else { Vec::new() }
}

/// Width of a letter of a label beside the vertical axis.
const LETTER: f64 = 0.58 * SMALL;

/// Space for the labels of the vertical axis, at most half of the figure: names of rows come from files.
fn left_margin(panel: &Panel, width: f64) -> f64 {
    let ticks = y_ticks(panel, panel_height(panel, width));
    let letters =
        ticks.iter().map(|(_, text)| text).chain(&panel.rows).map(|text| text.chars().count()).max().unwrap_or(0);
    (LETTER * letters as f64 + if panel.rows.is_empty() { 24.0 } else { 10.0 }).min(0.5 * width)
}

/// The end of a name that is too long for its place: there names of layers differ.
fn shortened(name: &str, most: usize) -> String {
    let letters = name.chars().count();
    if letters <= most {
        return name.to_owned();
    }
    std::iter::once('…').chain(name.chars().skip(letters - most.saturating_sub(1))).collect()
}

fn columns(keys: &[LegendEntry], width: f64) -> usize {
    let longest = keys.iter().map(|key| key.name.chars().count()).max().unwrap_or(1);
    ((width / (0.56 * SMALL * longest as f64 + 34.0)) as usize).clamp(1, keys.len().max(1))
}

fn legend_height(keys: &[LegendEntry], width: f64) -> f64 {
    if keys.is_empty() { 0.0 } else { keys.len().div_ceil(columns(keys, width)) as f64 * LINE + 6.0 }
}

/// Draws the whole figure.
pub(super) fn draw<B: DrawingBackend>(
    figure: &Figure,
    width: f64,
    backend: &mut B,
    scale: f64,
) -> Result<(), DrawingErrorKind<B::ErrorType>> {
    let [_, height] = size(figure, width);
    let mut pen = Pen { backend, scale };
    pen.backend.ensure_prepared()?;
    pen.rectangle([0.0, 0.0], [width, height], (255, 255, 255), 1.0)?;
    // Panels with the same axis are aligned.
    let left = figure
        .panels
        .iter()
        .filter(|panel| panel.rows.is_empty())
        .map(|panel| left_margin(panel, width))
        .fold(0.0, f64::max);
    let mut top = 0.0;
    for panel in &figure.panels {
        let below = top + panel_height(panel, width);
        let left = if panel.rows.is_empty() { left } else { left_margin(panel, width) };
        pen.panel(panel, [left, top], [width, below])?;
        top = below;
    }
    pen.legend(&figure.keys, top + 4.0, width)?;
    pen.backend.present()
}

struct Pen<'a, B> {
    backend: &'a mut B,
    scale: f64,
}

type Drawing<B> = Result<(), DrawingErrorKind<<B as DrawingBackend>::ErrorType>>;

impl<B: DrawingBackend> Pen<'_, B> {
    fn at(&self, [x, y]: [f64; 2]) -> (i32, i32) {
        ((x * self.scale).round() as i32, (y * self.scale).round() as i32)
    }

    fn style(&self, (r, g, b): Color, alpha: f64, width: f64) -> ShapeStyle {
        ShapeStyle {
            color: RGBAColor(r, g, b, alpha),
            filled: true,
            stroke_width: (width * self.scale).round().max(1.0) as u32,
        }
    }

    fn path(&mut self, points: &[[f64; 2]], color: Color, width: f64) -> Drawing<B> {
        let style = self.style(color, 1.0, width);
        let points: Vec<(i32, i32)> = points.iter().map(|&point| self.at(point)).collect();
        self.backend.draw_path(points, &style)
    }

    fn polygon(&mut self, points: &[[f64; 2]], color: Color, alpha: f64) -> Drawing<B> {
        let style = self.style(color, alpha, 1.0);
        let points: Vec<(i32, i32)> = points.iter().map(|&point| self.at(point)).collect();
        self.backend.fill_polygon(points, &style)
    }

    fn rectangle(&mut self, from: [f64; 2], to: [f64; 2], color: Color, alpha: f64) -> Drawing<B> {
        let corner = |pick: fn(f64, f64) -> f64| [pick(from[0], to[0]), pick(from[1], to[1])];
        let (style, low, high) = (self.style(color, alpha, 1.0), self.at(corner(f64::min)), self.at(corner(f64::max)));
        self.backend.draw_rect(low, high, &style, true)
    }

    fn line(&mut self, points: &[[f64; 2]], look: Look) -> Drawing<B> {
        for part in points.split(|point| !point[0].is_finite() || !point[1].is_finite()).filter(|part| part.len() > 1) {
            match look.dash {
                None => self.path(part, look.color, look.width)?,
                Some(dash) => dashes(part, dash).iter().try_for_each(|dash| self.path(dash, look.color, look.width))?,
            }
        }
        Ok(())
    }

    fn symbol(&mut self, number: usize, [x, y]: [f64; 2], color: Color) -> Drawing<B> {
        let corner = |dx: f64, dy: f64| [x + 2.6 * dx, y + 2.6 * dy];
        match number % 5 {
            0 => {
                let (style, center, radius) = (self.style(color, 1.0, 1.0), self.at([x, y]), (2.6 * self.scale) as u32);
                self.backend.draw_circle(center, radius, &style, true)
            }
            1 => self.rectangle(corner(-0.9, -0.9), corner(0.9, 0.9), color, 1.0),
            2 => self.polygon(&[corner(0.0, -1.2), corner(1.15, 0.9), corner(-1.15, 0.9)], color, 1.0),
            3 => self.polygon(&[corner(0.0, -1.3), corner(1.3, 0.0), corner(0.0, 1.3), corner(-1.3, 0.0)], color, 1.0),
            _ => {
                self.path(&[corner(-1.0, -1.0), corner(1.0, 1.0)], color, 1.3)?;
                self.path(&[corner(-1.0, 1.0), corner(1.0, -1.0)], color, 1.3)
            }
        }
    }

    fn text(&mut self, text: &str, at: [f64; 2], anchor: (HPos, VPos), color: Color, turned: bool) -> Drawing<B> {
        let transform = if turned { FontTransform::Rotate270 } else { FontTransform::None };
        // plotters counts the height of a line as 1.24 of the font's size.
        let font = (FAMILY, 1.24 * SMALL * self.scale).into_font().transform(transform);
        let color = RGBAColor(color.0, color.1, color.2, 1.0);
        let style = TextStyle::from(font).color(&color).pos(Pos::new(anchor.0, anchor.1));
        let at = self.at(at);
        self.backend.draw_text(text, &style, at)
    }

    fn panel(&mut self, panel: &Panel, [left, top]: [f64; 2], [right, bottom]: [f64; 2]) -> Drawing<B> {
        let y_ticks = y_ticks(panel, bottom - top);
        let (top, right, bottom) = (top + ABOVE, right - 12.0, bottom - BELOW);
        let x_at = |value: f64| left + (right - left) * panel.x.place(value);
        let y_at = |value: f64| bottom - (bottom - top) * panel.y.place(value);
        for (value, text) in &y_ticks {
            self.path(&[[left, y_at(*value)], [right, y_at(*value)]], GRID, 0.5)?;
            self.text(text, [left - 4.0, y_at(*value)], (HPos::Right, VPos::Center), GREY, false)?;
        }
        let most = ((left - 10.0) / LETTER).round() as usize;
        for (row, name) in panel.rows.iter().enumerate() {
            let name = &shortened(name, most);
            self.text(name, [left - 4.0, y_at(row as f64 + 0.5)], (HPos::Right, VPos::Center), INK, false)?;
        }
        for (value, text) in panel.x.ticks((right - left) / 60.0) {
            self.path(&[[x_at(value), bottom], [x_at(value), bottom + 2.5]], GREY, 0.5)?;
            self.text(&text, [x_at(value), bottom + 4.0], (HPos::Center, VPos::Top), GREY, false)?;
        }
        let bent = |point: &[f64; 2]| [x_at(point[0]), y_at(point[1])];
        for mark in &panel.marks {
            match mark {
                Mark::Line { points, look } => self.line(&points.iter().map(bent).collect::<Vec<_>>(), *look)?,
                Mark::Area { points, color, alpha } => {
                    let points: Vec<[f64; 2]> = points.iter().map(bent).filter(|point| point[1].is_finite()).collect();
                    self.polygon(&points, *color, *alpha)?;
                }
                // Bands may reach beyond the axes.
                Mark::Rectangle { from, to, color, alpha } => {
                    let inside = |[x, y]: [f64; 2]| [x.clamp(left, right), y.clamp(top, bottom)];
                    self.rectangle(inside(bent(from)), inside(bent(to)), *color, *alpha)?;
                }
                Mark::Point { at, symbol, color } => self.symbol(*symbol, bent(at), *color)?,
            }
        }
        self.path(&[[left, top], [left, bottom], [right, bottom]], GREY, 0.6)?;
        self.text(&panel.x.label, [(left + right) / 2.0, bottom + 14.0], (HPos::Center, VPos::Top), INK, false)?;
        self.text(&panel.y.label, [6.0, (top + bottom) / 2.0], (HPos::Center, VPos::Center), INK, true)
    }

    fn legend(&mut self, keys: &[LegendEntry], top: f64, width: f64) -> Drawing<B> {
        let columns = columns(keys, width);
        for (at, key) in keys.iter().enumerate() {
            let x = 12.0 + (at % columns) as f64 * ((width - 20.0) / columns as f64);
            let y = top + (at / columns) as f64 * LINE + 5.0;
            match key.symbol {
                Some(number) => self.symbol(number, [x + 8.0, y], key.look.color)?,
                None => self.line(&[[x, y], [x + 17.0, y]], key.look)?,
            }
            self.text(&key.name, [x + 22.0, y], (HPos::Left, VPos::Center), INK, false)?;
        }
        Ok(())
    }
}

/// A line cut into strokes of `dash[0]` with gaps of `dash[1]`.
fn dashes(points: &[[f64; 2]], dash: [f64; 2]) -> Vec<Vec<[f64; 2]>> {
    let (mut all, mut stroke, mut left, mut on) = (Vec::new(), vec![points[0]], dash[0], true);
    for pair in points.windows(2) {
        let (mut from, to) = (pair[0], pair[1]);
        let mut length = (to[0] - from[0]).hypot(to[1] - from[1]);
        while length > left {
            let share = left / length;
            from = [from[0] + share * (to[0] - from[0]), from[1] + share * (to[1] - from[1])];
            length -= left;
            if on {
                stroke.push(from);
                all.push(std::mem::take(&mut stroke));
            }
            on = !on;
            left = dash[usize::from(!on)];
            stroke = vec![from];
        }
        left -= length;
        stroke.push(to);
    }
    if on && stroke.len() > 1 {
        all.push(stroke);
    }
    all
}

#[cfg(test)]
mod tests {
    use plotters::prelude::SVGBackend;

    use super::super::axis::{PlotAxis, Scale};
    use super::*;

    #[test]
    fn names_that_are_wider_than_the_figure_are_shortened() {
        let axis = |range: [f64; 2]| PlotAxis::over(Scale::Linear, "", false, range).unwrap();
        let rectangle = Mark::Rectangle { from: [0.0, 0.0], to: [1.0, 1.0], color: INK, alpha: 1.0 };
        let names = ["conv", &format!("{}.the.end", "long".repeat(100))];
        let panel = Panel {
            x: axis([0.0, 1.0]),
            y: axis([0.0, 2.0]),
            marks: vec![rectangle],
            rows: names.map(str::to_owned).to_vec(),
        };
        let figure = Figure { panels: vec![panel], keys: vec![] };
        let mut svg = String::new();
        draw(&figure, 300.0, &mut SVGBackend::with_string(&mut svg, (300, 100)), 1.0).unwrap();
        let lines: Vec<&str> = svg.lines().map(str::trim).collect();
        assert!(lines.contains(&"conv"));
        assert!(lines.iter().any(|line| line.starts_with('…') && line.ends_with("long.the.end")), "{svg}");
        assert_eq!(shortened("layer1", 6), "layer1");
        assert_eq!(shortened("layer1.conv", 6), "….conv");
    }

    #[test]
    fn dashes_have_their_length_also_around_corners() {
        let corner = [[0.0, 0.0], [3.0, 0.0], [3.0, 4.0]];
        let strokes = dashes(&corner, [2.0, 1.0]);
        let length = |stroke: &Vec<[f64; 2]>| {
            stroke.windows(2).map(|p| (p[1][0] - p[0][0]).hypot(p[1][1] - p[0][1])).sum::<f64>()
        };
        assert_eq!(strokes.iter().map(length).collect::<Vec<_>>(), [2.0, 2.0, 1.0]);
        assert_eq!(strokes[1][0], [3.0, 0.0]);
    }
}
