//! One folder per speaker: `SPEAKER/…/anything.wav`. A folder between speaker and file is the session.

use std::path::Path;

use super::UtteranceBuilder;
use super::walk::{audio_files, parts};
use crate::Result;

/// Files that lie in no folder are of the speaker `loose`, or left out.
pub(super) fn find(root: &Path, loose: Option<&str>) -> Result<UtteranceBuilder> {
    let mut found = UtteranceBuilder::default();
    for path in audio_files(root)? {
        let parts = parts(root, &path)?;
        let (speaker, between) = match (&parts[..], loose) {
            ([speaker, between @ .., _], _) => (*speaker, between),
            (_, Some(speaker)) => (speaker, &[][..]),
            (_, None) => continue,
        };
        let session = (!between.is_empty()).then(|| between.join("/"));
        found.add(parts.join("/"), speaker, &path, session.as_deref(), None);
    }
    Ok(found)
}
