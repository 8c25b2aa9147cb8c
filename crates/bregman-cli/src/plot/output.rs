//! Figures as files.

use std::path::Path;

use plotters::backend::{BitMapBackend, SVGBackend};
use plotters::style::{FontStyle, register_font};

use super::draw::{FAMILY, draw, size};
use super::pdf::Pdf;
use super::scene::Figure;
use crate::failure::Failure;

/// The font of figures; see `assets/font/README.md`.
pub(super) const FONT: &[u8] = include_bytes!("../../assets/font/DejaVuSans-subset.ttf");
/// Units per point in SVG and PDF: backends use whole units only.
const FINE: f64 = 16.0;
/// Pixels per point in PNG: 288 per inch.
const PIXELS: usize = 4;
/// Each pixel is the mean of this many by this many, which smooths edges.
const SMOOTH: usize = 2;

/// A file format, chosen by the file's extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FigureFormat {
    Svg,
    Png,
    Pdf,
}

impl FigureFormat {
    pub(crate) fn of(path: &Path) -> Result<Self, Failure> {
        match path.extension().and_then(|ending| ending.to_str()).map(str::to_lowercase).as_deref() {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            Some("pdf") => Ok(Self::Pdf),
            _ => Err(Failure::mistake(
                format!("{}: unknown figure format", path.display()),
                "name the file .svg, .png or .pdf",
            )),
        }
    }
}

/// Writes the figure; returns the bytes written.
pub(crate) fn write(figure: &Figure, format: FigureFormat, width: f64, path: &Path) -> Result<usize, Failure> {
    // Needed to measure text; registering it again changes nothing.
    let _ = register_font(FAMILY, FontStyle::Normal, FONT);
    let failed = |problem: String| Failure::failed(format!("{}: {problem}", path.display()));
    let bytes = match format {
        FigureFormat::Svg => svg(figure, width),
        FigureFormat::Png => png(figure, width),
        FigureFormat::Pdf => pdf(figure, width),
    };
    let bytes = bytes.map_err(failed)?;
    bregman_base::files::write_file(path, &bytes)?;
    Ok(bytes.len())
}

fn units(size: [f64; 2], scale: f64) -> (u32, u32) {
    ((size[0] * scale).ceil() as u32, (size[1] * scale).ceil() as u32)
}

fn svg(figure: &Figure, width: f64) -> Result<Vec<u8>, String> {
    let size = size(figure, width);
    let (wide, high) = units(size, FINE);
    let mut text = String::new();
    draw(figure, width, &mut SVGBackend::with_string(&mut text, (wide, high)), FINE)
        .map_err(|error| error.to_string())?;
    // The view box keeps the fine units; the size of the picture is in points.
    let fine = format!("width=\"{wide}\" height=\"{high}\"");
    let [points_wide, points_high] = size;
    let points = format!("width=\"{points_wide}pt\" height=\"{points_high:.1}pt\"");
    let family = format!("font-family=\"{FAMILY}\"");
    Ok(text
        .replacen(&fine, &points, 1)
        .replace(&family, &format!("font-family=\"{FAMILY}, Helvetica, Arial, sans-serif\""))
        .into_bytes())
}

fn pdf(figure: &Figure, width: f64) -> Result<Vec<u8>, String> {
    let size = size(figure, width);
    let mut pdf = Pdf::new(size, FINE)?;
    draw(figure, width, &mut pdf, FINE).map_err(|error| error.to_string())?;
    Ok(pdf.finish())
}

fn png(figure: &Figure, width: f64) -> Result<Vec<u8>, String> {
    let (wide, high) = units(size(figure, width), PIXELS as f64);
    let (wide, high) = (wide as usize, high as usize);
    let mut fine = vec![255u8; wide * SMOOTH * high * SMOOTH * 3];
    {
        let mut backend = BitMapBackend::with_buffer(&mut fine, ((wide * SMOOTH) as u32, (high * SMOOTH) as u32));
        draw(figure, width, &mut backend, (PIXELS * SMOOTH) as f64).map_err(|error| error.to_string())?;
    }
    let pixel = |x: usize, y: usize, channel: usize| {
        let inner = (0..SMOOTH * SMOOTH).map(|at| [y * SMOOTH + at / SMOOTH, x * SMOOTH + at % SMOOTH]);
        let sum: usize = inner.map(|[y, x]| usize::from(fine[(y * wide * SMOOTH + x) * 3 + channel])).sum();
        (sum / (SMOOTH * SMOOTH)) as u8
    };
    let coarse: Vec<u8> =
        (0..high).flat_map(|y| (0..wide).flat_map(move |x| (0..3).map(move |channel| pixel(x, y, channel)))).collect();
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, wide as u32, high as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let per_metre = (PIXELS as f64 * 72.0 / 0.0254).round() as u32;
    encoder.set_pixel_dims(Some(png::PixelDimensions { xppu: per_metre, yppu: per_metre, unit: png::Unit::Meter }));
    encoder
        .write_header()
        .and_then(|mut writer| writer.write_image_data(&coarse))
        .map_err(|error| error.to_string())?;
    Ok(bytes)
}
