//! Compiled kernels on disk: compiling takes seconds at every start, reading a file does not.
//!
//! One file per program, compiler and kind of GPU in `$XDG_CACHE_HOME/bregman` or `~/.cache/bregman`. Nothing depends
//! on it: a folder that cannot be written or a file that was damaged means compiling, as without it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use bregman_base::files::{user_cache, write_unsynced};

use crate::Result;

/// Where compiled programs are kept, if anywhere.
pub(super) struct Cache(Option<PathBuf>);

/// Bytes in front of a program: its hash.
const HEADER: usize = 8;

fn hash(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

impl Cache {
    /// The user's.
    pub(super) fn of_user() -> Self {
        Self(user_cache())
    }

    /// The program made from all that `key` names: as it was kept, else as `compile` makes it, which is then kept.
    pub(super) fn program(&self, key: impl Hash, compile: impl FnOnce() -> Result<Vec<u8>>) -> Result<Vec<u8>> {
        let Some(folder) = &self.0 else { return compile() };
        let file = folder.join(format!("kernels-{:016x}.cubin", hash(key)));
        if let Some(program) = std::fs::read(&file).ok().and_then(whole) {
            return Ok(program);
        }
        let program = compile()?;
        let bytes = [&hash(&program).to_le_bytes()[..], &program].concat();
        let _ = std::fs::create_dir_all(folder); // a cache that cannot be written is none
        let _ = write_unsynced(&file, bytes);
        Ok(program)
    }
}

/// The program in a file, if it is as it was written.
fn whole(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    let expected = u64::from_le_bytes(*bytes.first_chunk::<HEADER>()?);
    bytes.drain(..HEADER);
    (hash(&bytes) == expected).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("bregman-cache-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder); // what an earlier process of this number left
        folder
    }

    fn unused() -> Result<Vec<u8>> {
        panic!("compiled what was kept")
    }

    #[test]
    fn a_program_is_compiled_once_per_key() {
        let folder = folder("once");
        let cache = Cache(Some(folder.join("deep")));
        assert_eq!(cache.program(("source", "sm_90"), || Ok(vec![1, 2, 3])).unwrap(), [1, 2, 3]);
        assert_eq!(cache.program(("source", "sm_90"), unused).unwrap(), [1, 2, 3]);
        assert_eq!(cache.program(("source", "sm_80"), || Ok(vec![4])).unwrap(), [4]);
        let broken = cache.program("broken", || Err(Error::Device("syntax".to_owned())));
        assert!(
            broken.is_err() && std::fs::read_dir(folder.join("deep")).unwrap().count() == 2,
            "failures are not kept"
        );
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_damaged_file_is_compiled_and_kept_again() {
        let folder = folder("damaged");
        let cache = Cache(Some(folder.clone()));
        cache.program("key", || Ok(vec![7; 100])).unwrap();
        let file = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
        let sound = std::fs::read(&file).unwrap();
        let flipped = [&sound[..50], &[!sound[50]], &sound[51..]].concat();
        for damaged in [&sound[..60], &sound[..3], &[], &flipped] {
            std::fs::write(&file, damaged).unwrap();
            assert_eq!(cache.program("key", || Ok(vec![8; 100])).unwrap(), [8; 100]);
            assert_eq!(cache.program("key", unused).unwrap(), [8; 100]);
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn without_a_folder_to_write_every_start_compiles() {
        let file = folder("file");
        std::fs::write(&file, b"no folder").unwrap();
        for cache in [Cache(None), Cache(Some(file.join("below")))] {
            for program in [vec![1], vec![2]] {
                assert_eq!(cache.program("key", || Ok(program.clone())).unwrap(), program);
            }
        }
        std::fs::remove_file(file).unwrap();
    }
}
