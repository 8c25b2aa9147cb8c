//! One folder per speaker: `SPEAKER/…/anything.wav`. A folder between speaker and file is the session.

use std::path::Path;

use super::UtteranceBuilder;
use super::walk::{audio_files, parts};
use crate::Result;

pub(super) fn find(root: &Path) -> Result<UtteranceBuilder> {
    let mut found = UtteranceBuilder::default();
    for path in audio_files(root)? {
        let parts = parts(root, &path)?;
        let [speaker, between @ .., _] = &parts[..] else { continue };
        let session = (!between.is_empty()).then(|| between.join("/"));
        found.add(parts.join("/"), speaker, &path, session.as_deref(), None);
    }
    Ok(found)
}
