//! Every file that bregman writes is written here: files and folders that are either whole or absent (written under a
//! temporary name, synced, renamed), files that only grow, and locks. Clippy refuses other ways (`clippy.toml`).
#![expect(clippy::disallowed_methods, reason = "what all others call instead")]

mod append;
mod error;
mod file;
mod folder;
mod lines;
mod lock;
#[cfg(not(target_family = "wasm"))]
mod parts;
mod read;

pub use append::{append_after, append_to};
pub use error::FileError;
pub use file::{remove_temporaries, sync_files, write_file, write_file_at, write_file_with, write_unsynced};
pub use folder::{present_folder, replace_folder, settle_folder};
pub use lines::ShortLines;
pub use lock::Lock;
#[cfg(not(target_family = "wasm"))]
pub use parts::PartsFile;
pub use read::{MARK, open_regular, read_bytes, read_text};

use std::path::{Path, PathBuf};

/// `dir/nameSUFFIX` for `dir/name`: the name stays complete, so `a.csv` and `a.txt` never share a companion.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Where a user's programs keep what they can make again: `bregman` in `$XDG_CACHE_HOME` or `~/.cache`, if there is a
/// home. It need not exist.
pub fn user_cache() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let given = folder("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    given.or_else(|| Some(folder("HOME")?.join(".cache"))).map(|cache| cache.join("bregman"))
}

/// Waits until the names in the folder of `path` are on disk.
fn sync_parent(path: &Path) -> std::io::Result<()> {
    // elsewhere a folder cannot be opened as a file
    if cfg!(unix) {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::File::open(parent)?.sync_all()?;
    }
    Ok(())
}
