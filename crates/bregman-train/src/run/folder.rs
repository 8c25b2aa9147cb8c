//! Checkpoints are folders that are either whole or absent.

pub(crate) use bregman_base::files::{present_folder as present, replace_folder as replace};

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::path::Path;

    use crate::Error;

    #[test]
    fn a_full_disk_keeps_the_old_checkpoint_and_says_how_to_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let full = |folder: &Path| Err(Error::io(folder)(ErrorKind::StorageFull.into()));
        let error = super::replace(&dir.path().join("last"), full).unwrap_err();
        assert!(error.hint().unwrap().contains("--resume"));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
