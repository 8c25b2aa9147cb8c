//! Pictures of sparsity: one panel per layer, rows are outputs, columns are inputs; darker means more non-zero weights.

use std::fmt::Write as _;
use std::path::Path;

use crate::failure::Failure;

/// Largest number of cells of a panel in each direction.
const CELLS: usize = 48;
/// Pixels per cell.
const PIXELS: usize = 3;
/// Panels per row.
const ACROSS: usize = 8;
const SIDE: usize = CELLS * PIXELS;
/// Space between panels; below them it holds two lines of text.
const GAP: usize = 12;
const TEXT: usize = 30;
/// Number of shades, including white.
const SHADES: usize = 16;

/// Where the non-zero weights of a layer are.
pub(crate) struct SparsityPattern {
    name: String,
    shape: Vec<usize>,
    zeros: f64,
    width: usize,
    /// Fraction of non-zero weights in each cell, row by row.
    density: Vec<f64>,
}

impl SparsityPattern {
    /// The pattern of a weight tensor whose first dimension are the outputs.
    pub(crate) fn new(name: &str, shape: &[usize], weights: &[f32]) -> Self {
        let (rows, columns) = (shape[0], shape[1..].iter().product::<usize>());
        let (height, width) = (rows.min(CELLS), columns.min(CELLS));
        let (mut nonzero, mut all) = (vec![0usize; height * width], vec![0usize; height * width]);
        for (i, &weight) in weights.iter().enumerate() {
            let cell = i / columns * height / rows * width + i % columns * width / columns;
            all[cell] += 1;
            nonzero[cell] += usize::from(weight != 0.0);
        }
        let zeros = 1.0 - nonzero.iter().sum::<usize>() as f64 / weights.len().max(1) as f64;
        let density = nonzero.iter().zip(&all).map(|(&nonzero, &all)| nonzero as f64 / all.max(1) as f64).collect();
        Self { name: name.to_owned(), shape: shape.to_vec(), zeros, width, density }
    }

    /// Column, row and shade of every cell that is not white. The square root makes one non-zero weight in a hundred
    /// visible.
    fn cells(&self) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        let shade = |density: f64| {
            if density > 0.0 { ((density.sqrt() * (SHADES - 1) as f64).round() as usize).max(1) } else { 0 }
        };
        let cells =
            self.density.iter().enumerate().map(move |(i, &density)| (i % self.width, i / self.width, shade(density)));
        cells.filter(|&(_, _, shade)| shade > 0)
    }
}

/// From white to dark blue.
fn colour(shade: usize) -> [u8; 3] {
    let towards = |end: f64| (255.0 + (end - 255.0) * shade as f64 / (SHADES - 1) as f64) as u8;
    [towards(12.0), towards(44.0), towards(110.0)]
}

/// Left and top edge of a panel.
fn place(field: usize, below: usize) -> (usize, usize) {
    (GAP + field % ACROSS * (SIDE + GAP), GAP + field / ACROSS * (SIDE + GAP + below))
}

fn size(fields: usize, below: usize) -> (usize, usize) {
    (GAP + ACROSS.min(fields) * (SIDE + GAP), GAP + fields.div_ceil(ACROSS) * (SIDE + GAP + below))
}

/// Writes the picture in the format given by the file's extension.
pub(crate) fn draw(path: &Path, patterns: &[SparsityPattern]) -> Result<(), Failure> {
    let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_lowercase);
    let bytes = match ending.as_deref() {
        Some("svg") => svg(patterns).into_bytes(),
        Some("png") => png(patterns).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?,
        _ => {
            return Err(Failure::mistake(
                format!("{}: not an .svg or .png file", path.display()),
                "for example: --plot pattern.svg",
            ));
        }
    };
    Ok(bregman_base::files::write_file(path, bytes)?)
}

fn svg(patterns: &[SparsityPattern]) -> String {
    let (width, height) = size(patterns.len(), TEXT);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"9\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#eee\"/>\n"
    );
    for (field, pattern) in patterns.iter().enumerate() {
        let (x, y) = place(field, TEXT);
        let _ = writeln!(
            text,
            "<g transform=\"translate({x} {y})\"><rect width=\"{SIDE}\" height=\"{SIDE}\" fill=\"#fff\"/>"
        );
        // one path per shade keeps the file small
        let mut paths = vec![String::new(); SHADES];
        for (column, row, shade) in pattern.cells() {
            let _ = write!(paths[shade], "M{} {}h{PIXELS}v{PIXELS}h-{PIXELS}z", column * PIXELS, row * PIXELS);
        }
        for (shade, path) in paths.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
            let [r, g, b] = colour(shade);
            let _ = writeln!(text, "<path fill=\"#{r:02x}{g:02x}{b:02x}\" d=\"{path}\"/>");
        }
        let shape = pattern.shape.iter().map(ToString::to_string).collect::<Vec<_>>().join("×");
        let name = pattern.name.replace('&', "&amp;").replace('<', "&lt;");
        let (first, second) = (SIDE + 11, SIDE + 22);
        let _ = writeln!(
            text,
            "<text y=\"{first}\">{name}</text><text y=\"{second}\">{shape}, {:.1} % zeros</text></g>",
            100.0 * pattern.zeros
        );
    }
    text + "</svg>\n"
}

fn png(patterns: &[SparsityPattern]) -> Result<Vec<u8>, png::EncodingError> {
    let (width, height) = size(patterns.len(), 0);
    let mut pixels = vec![238u8; 3 * width * height];
    let mut fill = |x: usize, y: usize, side: usize, colour: [u8; 3]| {
        for row in y..y + side {
            pixels[3 * (row * width + x)..3 * (row * width + x + side)].as_chunks_mut::<3>().0.fill(colour);
        }
    };
    for (field, pattern) in patterns.iter().enumerate() {
        let (x, y) = place(field, 0);
        fill(x, y, SIDE, [255; 3]);
        pattern
            .cells()
            .for_each(|(column, row, shade)| fill(x + column * PIXELS, y + row * PIXELS, PIXELS, colour(shade)));
    }
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header()?.write_image_data(&pixels)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern() -> SparsityPattern {
        // non-zero only in the upper left quarter
        let weights: Vec<f32> = (0..100 * 200).map(|i| if i / 200 < 50 && i % 200 < 100 { 1.0 } else { 0.0 }).collect();
        SparsityPattern::new("a<b", &[100, 200], &weights)
    }

    #[test]
    fn cells_with_non_zero_weights_are_dark() {
        let pattern = pattern();
        assert_eq!(pattern.zeros, 0.75);
        let dark: Vec<_> = pattern.cells().collect();
        assert_eq!(dark.len(), CELLS * CELLS / 4);
        assert!(dark.iter().all(|&(column, row, shade)| column < CELLS / 2 && row < CELLS / 2 && shade == SHADES - 1));
    }

    #[test]
    fn drawings_are_complete_files_of_their_format() {
        let patterns: Vec<SparsityPattern> = (0..11).map(|_| pattern()).collect();
        let drawn = svg(&patterns);
        assert!(
            drawn.starts_with("<svg")
                && drawn.ends_with("</svg>\n")
                && drawn.contains("a&lt;b")
                && drawn.contains("75.0 % zeros")
        );
        let bytes = png(&patterns).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let frame = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((frame.width as usize, frame.height as usize), size(11, 0));
        let (x, y) = place(9, 0);
        assert_eq!(pixels[3 * (y * frame.width as usize + x)..][..3], colour(SHADES - 1));
    }
}
