//! A PDF of one page: vector paths, and text in an embedded font, as publishers require (ISO 32000-1, 8.5 paths, 9.7
//! composite fonts).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;

use ab_glyph::{Font, FontRef};
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind, FontTransform,
};

use super::output::FONT;

/// A page being drawn; `scale` units of the backend are one point.
pub(super) struct Pdf {
    size: [f64; 2],
    scale: f64,
    font: FontRef<'static>,
    content: String,
    /// Transparencies in use, in 1/1000.
    alphas: Vec<u32>,
    /// Glyphs in use and their letters.
    glyphs: BTreeMap<u16, char>,
}

type BackendResult = Result<(), DrawingErrorKind<Infallible>>;

impl Pdf {
    /// An empty page of this size in points.
    pub(super) fn new(size: [f64; 2], scale: f64) -> Result<Self, String> {
        let font = FontRef::try_from_slice(FONT).map_err(|error| error.to_string())?;
        // The origin is at the bottom in PDF, at the top in backends.
        let content = format!("{0:.6} 0 0 -{0:.6} 0 {1:.2} cm 1 j\n", 1.0 / scale, size[1]);
        Ok(Self { size, scale, font, content, alphas: Vec::new(), glyphs: BTreeMap::new() })
    }

    fn alpha(&mut self, alpha: f64) -> usize {
        let alpha = (1000.0 * alpha).round() as u32;
        self.alphas.iter().position(|known| *known == alpha).unwrap_or_else(|| {
            self.alphas.push(alpha);
            self.alphas.len() - 1
        })
    }

    /// Sets colour, transparency and line width.
    fn ink(&mut self, color: BackendColor, width: u32) {
        let [r, g, b] = [color.rgb.0, color.rgb.1, color.rgb.2].map(|channel| f64::from(channel) / 255.0);
        let alpha = self.alpha(color.alpha);
        let _ = writeln!(self.content, "/A{alpha} gs {r:.3} {g:.3} {b:.3} RG {r:.3} {g:.3} {b:.3} rg {width} w");
    }

    fn path(&mut self, points: impl IntoIterator<Item = BackendCoord>, finish: &str) {
        for (at, (x, y)) in points.into_iter().enumerate() {
            let _ = writeln!(self.content, "{x} {y} {}", if at == 0 { "m" } else { "l" });
        }
        let _ = writeln!(self.content, "{finish}");
    }

    fn advance(&self, glyph: u16) -> f64 {
        let units = self.font.units_per_em().unwrap_or(2048.0);
        f64::from(self.font.h_advance_unscaled(ab_glyph::GlyphId(glyph)) / units)
    }

    /// The file.
    pub(super) fn finish(self) -> Vec<u8> {
        let units = f64::from(self.font.units_per_em().unwrap_or(2048.0));
        let em = |value: f32| (1000.0 * f64::from(value) / units).round();
        let widths: String =
            self.glyphs.keys().map(|&glyph| format!("{glyph} [{:.0}] ", 1000.0 * self.advance(glyph))).collect();
        let letters: String =
            self.glyphs.iter().map(|(glyph, letter)| format!("<{glyph:04x}> <{:04x}>\n", u32::from(*letter))).collect();
        let unicode = format!(
            "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /Letters def /CMapType 2 def\n\
             1 begincodespacerange <0000> <ffff> endcodespacerange\n{} beginbfchar\n{letters}endbfchar\n\
             endcmap end end\n",
            self.glyphs.len()
        );
        let alphas: String = self
            .alphas
            .iter()
            .enumerate()
            .map(|(at, &alpha)| format!("/A{at} << /CA {0:.3} /ca {0:.3} >> ", f64::from(alpha) / 1e3))
            .collect();
        let stream = |bytes: &[u8], extra: &str| {
            [format!("<< /Length {}{extra} >>\nstream\n", bytes.len()).as_bytes(), bytes, b"\nendstream"].concat()
        };
        let [wide, high] = self.size;
        let objects: [Vec<u8>; 9] = [
            b"<< /Type /Catalog /Pages 2 0 R >>".to_vec(),
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_vec(),
            format!(
                "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {wide:.2} {high:.2}] /Contents 4 0 R \
                 /Resources << /Font << /F 5 0 R >> /ExtGState << {alphas}>> >> >>"
            )
            .into_bytes(),
            stream(self.content.as_bytes(), ""),
            b"<< /Type /Font /Subtype /Type0 /BaseFont /BREGMA+DejaVuSans /Encoding /Identity-H \
              /DescendantFonts [6 0 R] /ToUnicode 9 0 R >>"
                .to_vec(),
            format!(
                "<< /Type /Font /Subtype /CIDFontType2 /BaseFont /BREGMA+DejaVuSans /FontDescriptor 7 0 R /CIDToGIDMap \
                 /Identity \
                 /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> /W [{widths}] >>"
            )
            .into_bytes(),
            format!(
                "<< /Type /FontDescriptor /FontName /BREGMA+DejaVuSans /Flags 4 /FontBBox [-1021 -463 1793 1232] \
                 /ItalicAngle 0 \
                 /Ascent {} /Descent {} /CapHeight 729 /StemV 80 /FontFile2 8 0 R >>",
                em(self.font.ascent_unscaled()),
                em(self.font.descent_unscaled())
            )
            .into_bytes(),
            stream(FONT, &format!(" /Length1 {}", FONT.len())),
            stream(unicode.as_bytes(), ""),
        ];
        let mut file = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n".to_vec();
        let mut places = Vec::new();
        for (at, object) in objects.iter().enumerate() {
            places.push(file.len());
            file.extend_from_slice(&[format!("{} 0 obj\n", at + 1).as_bytes(), object, b"\nendobj\n"].concat());
        }
        let table: String = places.iter().map(|place| format!("{place:010} 00000 n \n")).collect();
        let (start, count) = (file.len(), objects.len() + 1);
        let trailer = format!(
            "xref\n0 {count}\n0000000000 65535 f \n{table}trailer\n<< /Size {count} /Root 1 0 R >>\nstartxref\n\
             {start}\n%%EOF\n"
        );
        file.extend_from_slice(trailer.as_bytes());
        file
    }
}

impl DrawingBackend for Pdf {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        ((self.size[0] * self.scale) as u32, (self.size[1] * self.scale) as u32)
    }

    fn ensure_prepared(&mut self) -> BackendResult {
        Ok(())
    }

    fn present(&mut self) -> BackendResult {
        Ok(())
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, color: BackendColor) -> BackendResult {
        self.ink(color, 1);
        let _ = writeln!(self.content, "{x} {y} 1 1 re f");
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> BackendResult {
        self.ink(style.color(), style.stroke_width());
        self.path(path, "S");
        Ok(())
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> BackendResult {
        self.draw_path([from, to], style)
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        corners: I,
        style: &S,
    ) -> BackendResult {
        self.ink(style.color(), 1);
        self.path(corners, "f");
        Ok(())
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
        fill: bool,
    ) -> BackendResult {
        self.ink(style.color(), style.stroke_width());
        let _ = writeln!(
            self.content,
            "{} {} {} {} re {}",
            from.0,
            from.1,
            to.0 - from.0,
            to.1 - from.1,
            if fill { "f" } else { "S" }
        );
        Ok(())
    }

    fn draw_circle<S: BackendStyle>(
        &mut self,
        (x, y): BackendCoord,
        radius: u32,
        style: &S,
        fill: bool,
    ) -> BackendResult {
        self.ink(style.color(), style.stroke_width());
        // Four Bézier curves with handles of 4/3·(√2 − 1) times the radius.
        let (x, y, r) = (f64::from(x), f64::from(y), f64::from(radius));
        let k = 0.552_284_75 * r;
        let _ = writeln!(self.content, "{} {y} m", x + r);
        for [a, b, c] in [
            [(x + r, y + k), (x + k, y + r), (x, y + r)],
            [(x - k, y + r), (x - r, y + k), (x - r, y)],
            [(x - r, y - k), (x - k, y - r), (x, y - r)],
            [(x + k, y - r), (x + r, y - k), (x + r, y)],
        ] {
            let _ = writeln!(self.content, "{:.2} {:.2} {:.2} {:.2} {:.2} {:.2} c", a.0, a.1, b.0, b.1, c.0, c.1);
        }
        let _ = writeln!(self.content, "{}", if fill { "f" } else { "S" });
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, (x, y): BackendCoord) -> BackendResult {
        let size = style.size() / 1.24;
        let glyphs: Vec<u16> = text.chars().map(|letter| self.font.glyph_id(letter).0).collect();
        let width: f64 = size * glyphs.iter().map(|&glyph| self.advance(glyph)).sum::<f64>();
        self.glyphs.extend(glyphs.iter().copied().zip(text.chars()));
        let anchor = style.anchor();
        let right = match anchor.h_pos {
            HPos::Left => 0.0,
            HPos::Center => -width / 2.0,
            HPos::Right => -width,
        };
        let down = match anchor.v_pos {
            VPos::Top => 0.76 * size,
            VPos::Center => 0.27 * size,
            VPos::Bottom => -0.2 * size,
        };
        // The page is flipped vertically, so letters are flipped back; the anchor follows the direction of writing.
        let (x, y) = (f64::from(x), f64::from(y));
        let (matrix, [x, y]) = match style.transform() {
            FontTransform::Rotate270 => ("0 -1 -1 0", [x + down, y - right]),
            FontTransform::Rotate90 => ("0 1 1 0", [x - down, y + right]),
            _ => ("1 0 0 -1", [x + right, y + down]),
        };
        let hex: String = glyphs.iter().map(|glyph| format!("{glyph:04x}")).collect();
        self.ink(style.color(), 1);
        let _ = writeln!(self.content, "BT /F {size:.2} Tf {matrix} {x:.2} {y:.2} Tm <{hex}> Tj ET");
        Ok(())
    }
}
