//! One folder per speaker: `SPEAKER/…/anything.wav`. A folder between speaker and file is the session.

use std::path::Path;

use super::Builder;
use super::walk::{audio_files, parts};
use crate::manifest::Utterance;
use crate::{Error, Result};

pub(super) fn find(root: &Path) -> Result<Vec<Utterance>> {
    let mut found = Builder::default();
    for path in audio_files(root)? {
        let Some(parts) = parts(root, &path) else {
            return Err(Error::format(&path, "the name is not UTF-8; rename it"));
        };
        let [speaker, between @ .., _] = &parts[..] else { continue };
        let session = (!between.is_empty()).then(|| between.join("/"));
        found.add(parts.join("/"), speaker, &path, session.as_deref(), None);
    }
    Ok(found.utterances)
}
