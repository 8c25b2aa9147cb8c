//! From the paths a user names to run folders with short names.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bregman_train::{CheckpointFolder, RunFolder};

use crate::failure::Failure;

/// A run folder and what to call it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) folder: PathBuf,
    pub(crate) name: String,
}

/// Finds the runs that `paths` mean: runs, checkpoints of runs, or folders of runs such as those of a sweep.
///
/// A folder with nothing in it counts as a run that has not written yet; one that does not exist only if it may still
/// come.
pub(crate) fn find(paths: &[PathBuf], may_come: bool) -> Result<Vec<Found>, Failure> {
    let mut folders = Vec::new();
    for path in paths {
        if !path.is_dir() && !may_come {
            let hint =
                "pass run folders, or a folder of runs such as that of a sweep; --watch waits for a run to begin";
            return Err(Failure::mistake(format!("{}: no such folder", path.display()), hint));
        }
        let path = &path.canonicalize().unwrap_or_else(|_| std::env::current_dir().unwrap_or_default().join(path));
        let inner = if is_run(path) { Vec::new() } else { runs_in(path)? };
        match inner.is_empty() || CheckpointFolder::new(path).is_present() {
            true => folders.push(RunFolder::around(path).path().to_owned()),
            false => folders.extend(inner),
        }
    }
    let mut seen = std::collections::HashSet::new();
    folders.retain(|folder| seen.insert(folder.clone()));
    let names = short_names(&folders);
    Ok(folders.into_iter().zip(names).map(|(folder, name)| Found { folder, name }).collect())
}

fn is_run(path: &Path) -> bool {
    RunFolder::new(path).is_present()
}

fn runs_in(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(Vec::new());
    }
    let entries = std::fs::read_dir(path).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
    let mut runs: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|inner| inner.is_dir() && is_run(inner)).collect();
    runs.sort();
    Ok(runs)
}

/// The ends of the paths, as long as it takes to tell them apart.
fn short_names(folders: &[PathBuf]) -> Vec<String> {
    let end = |folder: &Path, parts: usize| {
        let all: Vec<_> = folder.components().map(|part| part.as_os_str().to_string_lossy()).collect();
        all[all.len().saturating_sub(parts)..].join("/")
    };
    let deepest = folders.iter().map(|folder| folder.components().count()).max().unwrap_or(1);
    let mut parts = vec![1; folders.len()];
    for _ in 0..deepest {
        let mut count: HashMap<String, usize> = HashMap::new();
        let names: Vec<String> = folders.iter().zip(&parts).map(|(folder, &parts)| end(folder, parts)).collect();
        names.iter().for_each(|name| *count.entry(name.clone()).or_default() += 1);
        for (parts, name) in parts.iter_mut().zip(&names) {
            *parts += usize::from(count[name] > 1);
        }
    }
    folders.iter().zip(parts).map(|(folder, parts)| end(folder, parts)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_short_as_they_can_be() {
        let folders = ["/a/sweep/x", "/b/sweep/x", "/b/sweep/y"].map(PathBuf::from);
        assert_eq!(short_names(&folders), ["a/sweep/x", "b/sweep/x", "y"]);
    }

    #[test]
    fn a_sweep_gives_its_runs_a_checkpoint_its_run_and_an_empty_folder_itself() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for run in ["sweep/b", "sweep/a", "sweep/not", "empty", "one/best"] {
            std::fs::create_dir_all(root.join(run)).unwrap();
        }
        for file in ["sweep/b/config.toml", "sweep/a/metrics.jsonl", "sweep/a.log", "one/best/state.json"] {
            std::fs::write(root.join(file), "").unwrap();
        }
        let found = find(&["sweep", "empty", "one/best", "one"].map(|path| root.join(path)), false).unwrap();
        assert_eq!(found.iter().map(|found| found.name.as_str()).collect::<Vec<_>>(), ["a", "b", "empty", "one"]);
        assert!(find(&[root.join("none")], false).is_err());
        assert_eq!(find(&[root.join("none")], true).unwrap()[0].name, "none");
    }
}
