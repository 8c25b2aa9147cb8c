//! Reads runs again only when they have changed, and replaces the report atomically.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bregman_train::RunFolder;
use rayon::prelude::*;

use crate::runs::{Found, ReportedRun};

/// The runs read so far.
pub(crate) struct RunReader {
    buckets: usize,
    known: Vec<(Found, Fingerprint, ReportedRun)>,
}

/// Size and modification time of every file that a report reads.
type Fingerprint = Vec<(PathBuf, u64, Option<SystemTime>)>;

impl RunReader {
    pub(crate) fn new(buckets: usize) -> Self {
        Self { buckets, known: Vec::new() }
    }

    /// Reads the runs that are new or have changed; returns whether there were any.
    pub(crate) fn read(&mut self, found: &[Found]) -> bool {
        let old = std::mem::take(&mut self.known);
        let buckets = self.buckets;
        let read = |found: &Found| {
            let now = fingerprint(&found.folder);
            match old.iter().find(|(other, then, _)| other == found && *then == now) {
                Some(known) => (known.clone(), false),
                None => ((found.clone(), now, ReportedRun::read(found, buckets)), true),
            }
        };
        let (known, news): (Vec<_>, Vec<bool>) = found.par_iter().map(read).unzip();
        self.known = known;
        news.contains(&true) || self.known.len() != old.len()
    }

    /// The runs, in the order in which they were named.
    pub(crate) fn runs(&self) -> Vec<&ReportedRun> {
        self.known.iter().map(|(_, _, run)| run).collect()
    }
}

fn fingerprint(run: &Path) -> Fingerprint {
    let all = RunFolder::new(run).reported().into_iter().filter_map(|file| {
        let data = file.metadata().ok()?;
        Some((file, data.len(), data.modified().ok()))
    });
    let mut all: Fingerprint = all.collect();
    all.sort();
    all
}
