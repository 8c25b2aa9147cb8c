//! Reads runs again only when they have changed, and replaces the report atomically.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rayon::prelude::*;

use crate::runs::{Found, Run};

/// The runs read so far.
pub(crate) struct RunReader {
    buckets: usize,
    known: Vec<(Found, Fingerprint, Run)>,
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
                None => ((found.clone(), now, Run::read(found, buckets)), true),
            }
        };
        let (known, news): (Vec<_>, Vec<bool>) = found.par_iter().map(read).unzip();
        self.known = known;
        news.contains(&true) || self.known.len() != old.len()
    }

    /// The runs, in the order in which they were named.
    pub(crate) fn runs(&self) -> Vec<&Run> {
        self.known.iter().map(|(_, _, run)| run).collect()
    }
}

fn fingerprint(run: &Path) -> Fingerprint {
    let files = ["metrics.jsonl", "config.toml", "command.json", "last/state.json", "best/state.json"]
        .map(|name| run.join(name));
    let evaluations =
        std::fs::read_dir(run.join("evaluations")).into_iter().flatten().flatten().map(|entry| entry.path());
    let all = files.into_iter().chain(evaluations).filter_map(|file| {
        let data = file.metadata().ok()?;
        Some((file, data.len(), data.modified().ok()))
    });
    let mut all: Fingerprint = all.collect();
    all.sort();
    all
}
