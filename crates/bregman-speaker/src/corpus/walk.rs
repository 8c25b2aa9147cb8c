//! All audio files under a folder, found in parallel: listing 150 000 folders one after another takes minutes on
//! network storage.

use std::path::{Path, PathBuf};

use rayon::prelude::*;

use crate::manifest::names::is_audio;
use crate::{Error, Result};

/// Audio files below `root`, sorted. Symbolic links are followed, hidden files skipped.
pub(super) fn audio_files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = walk(root, &[])?;
    files.par_sort_unstable();
    Ok(files)
}

/// The names of the folders below `root` on the way to `path`, and of the file.
pub(super) fn parts<'a>(root: &Path, path: &'a Path) -> Result<Vec<&'a str>> {
    let parts = path.strip_prefix(root).unwrap_or(path).iter().map(|part| part.to_str()).collect::<Option<_>>();
    parts.ok_or_else(|| Error::format(path, "the name is not UTF-8; rename it"))
}

/// `trail` holds the targets of the links followed on the way to `folder`, to detect loops.
fn walk(folder: &Path, trail: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder))? {
        let entry = entry.map_err(Error::io(folder))?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        let kind = entry.file_type().map_err(Error::io(&path))?;
        if kind.is_symlink() {
            // A link counts as what it points to; broken links are skipped.
            let Ok(target) = path.canonicalize() else { continue };
            if target.is_file() && is_audio(&path) {
                files.push(path);
            } else if target.is_dir() {
                let here = folder.canonicalize().map_err(Error::io(folder))?;
                if !here.starts_with(&target) && !trail.contains(&target) {
                    folders.push((path, [trail, &[target]].concat()));
                }
            }
        } else if kind.is_dir() {
            folders.push((path, trail.to_vec()));
        } else if kind.is_file() && is_audio(&path) {
            files.push(path);
        }
    }
    let below: Result<Vec<Vec<PathBuf>>> = folders.par_iter().map(|(folder, trail)| walk(folder, trail)).collect();
    files.extend(below?.into_iter().flatten());
    Ok(files)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_once_and_loops_end() {
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
        for folder in [root.join("a"), root.join("b"), outside.clone()] {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("1.wav"), "").unwrap();
        }
        for (to, from) in [
            (&root, "a/up"),
            (&root.join("a"), "a/self"),
            (&root.join("b"), "a/b"),
            (&root.join("a"), "b/a"),
            (&outside, "c"),
        ] {
            symlink(to, root.join(from)).unwrap();
        }
        symlink("nowhere", root.join("dangling.wav")).unwrap();
        let files = audio_files(&root).unwrap();
        let names: Vec<_> = files.iter().map(|file| file.strip_prefix(&root).unwrap().to_str().unwrap()).collect();
        assert!(names.len() < 12, "{names:?}");
        for expected in ["a/1.wav", "b/1.wav", "c/1.wav"] {
            assert!(names.contains(&expected), "{names:?}");
        }
        assert!(!names.iter().any(|name| name.contains("up") || name.contains("self")), "{names:?}");
    }
}
