//! A Kaldi data folder: `wav.scp` (`utterance path`) and `utt2spk` (`utterance speaker`).
//!
//! Relative paths are resolved against the folder itself if they exist there, else against the working directory, as
//! Kaldi does. Lines that are shell pipes (`… |`) are refused: nothing here runs commands found in a file. A `segments`
//! file, whose utterances are parts of recordings, is refused too.

use std::collections::HashMap;
use std::path::Path;

use super::UtteranceBuilder;
use crate::{Error, Result};

pub(super) fn find(root: &Path) -> Result<UtteranceBuilder> {
    let (scp, utt2spk) = (root.join("wav.scp"), root.join("utt2spk"));
    if root.join("segments").exists() {
        return Err(Error::format(
            &root.join("segments"),
            "segments (utterances that are parts of recordings) are not supported; cut them into files first",
        ));
    }
    let speakers: HashMap<String, String> = pairs(&utt2spk)?.into_iter().map(|(_, key, value)| (key, value)).collect();
    let mut found = UtteranceBuilder::default();
    for (line, id, path) in pairs(&scp)? {
        if path.ends_with('|') {
            return Err(Error::line(
                &scp,
                line,
                "shell pipes are not supported; write the audio to a file and list that file",
            ));
        }
        let Some(speaker) = speakers.get(&id) else {
            return Err(Error::line(&scp, line, format!("utterance '{id}' is not in {}", utt2spk.display())));
        };
        let inside = root.join(&path);
        let path = if inside.exists() { inside } else { path.into() };
        found.add(id, speaker, path, None, None);
    }
    Ok(found)
}

/// `(line, first word, rest)` of every line that is not blank.
fn pairs(path: &Path) -> Result<Vec<(u64, String, String)>> {
    let text = std::fs::read_to_string(path).map_err(Error::io(path))?;
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| match line.trim().split_once(char::is_whitespace) {
            Some((key, value)) => Ok((number, key.to_owned(), value.trim().to_owned())),
            None => Err(Error::line(path, number, format!("expected two fields, found only '{}'", line.trim()))),
        })
        .collect()
}
