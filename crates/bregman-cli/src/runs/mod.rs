//! Runs as they lie on disk, in the form that `bregman report` and `bregman plot` show.
//!
//! Reading is lenient: a run that is unfinished, empty or half-written gives what there is, and notes about what is
//! missing.

mod curves;
mod epochs;
mod find;
mod run;

pub(crate) use curves::Curves;
pub(crate) use epochs::{Epochs, Layer, Layers};
pub(crate) use find::{Found, find};
pub(crate) use run::{ReportedRun, Status};

/// Six significant digits: what a chart shows, at a third of the bytes.
fn six_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}
