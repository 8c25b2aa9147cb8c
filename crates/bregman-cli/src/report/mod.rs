//! `report.html`: one file with everything in it, for one run or many.

mod page;
mod watch;

pub(crate) use page::{Live, page};
pub(crate) use watch::Reader;

/// Points of each curve: fewer where many runs share the page, so that it stays quick to open.
pub(crate) fn buckets(runs: usize) -> usize {
    (20_000 / runs.max(1)).clamp(500, 4000)
}
