//! `report.html`: one file with everything in it, for one run or many.

mod page;
mod watch;

pub(crate) use page::{Live, page};
pub(crate) use watch::RunReader;

/// Points of each curve: fewer if the page has many runs, so that it opens quickly.
pub(crate) fn buckets(runs: usize) -> usize {
    (20_000 / runs.max(1)).clamp(500, 4000)
}
