//! Single figures for papers: the charts of the report as SVG, PNG or PDF.
//!
//! ```text
//! runs ─▶ what: a panel each ─▶ scene: marks over two axes ─▶ draw ─▶ SVG, PNG (plotters), PDF (ours, with its font inside)
//! ```

mod axis;
mod curves;
mod draw;
mod layers;
mod output;
mod pdf;
mod scene;
mod scores;
mod what;

pub(crate) use output::{Format, write};
pub(crate) use what::{What, figure};
