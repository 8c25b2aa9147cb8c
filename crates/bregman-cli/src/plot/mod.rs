//! Single figures for papers: the charts of the report as SVG, PNG or PDF.
//!
//! ```text
//! runs ─▶ what: panels ─▶ scene: marks over two axes ─▶ draw ─▶ SVG, PNG (plotters), PDF (ours, font embedded)
//! ```

mod axis;
mod curves;
mod draw;
mod layers;
mod output;
mod pdf;
mod scene;
mod scores;
mod turns;
mod what;

pub(crate) use output::{FigureFormat, write};
pub(crate) use scene::Figure;
pub(crate) use turns::turns;
pub(crate) use what::{What, figure};
