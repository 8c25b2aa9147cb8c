//! CN-Celeb1 and 2 (Fan et al. 2020, Li et al. 2022). `root` is one of the two corpora or a folder that holds them:
//!
//! ```text
//! CN-Celeb_flac/   data/id00000/singing-01-001.flac     genre-session-number
//!                  dev/dev.lst                          one development speaker per line
//!                  eval/enroll/id00800-enroll.flac      eval/test/id00800-singing-02-005.flac
//!                  eval/lists/{enroll.map, trials.lst}  id00800-enroll id00800/singing-01-001.wav …
//! CN-Celeb2_flac/  data/id10000/…                       spk.lst
//! ```
//!
//! Training: the speakers of `dev.lst` and all of CN-Celeb2. Test: the files of `eval`, and those of `data` that
//! `enroll.map` names for multi-session enrollment. Ids are what the lists say: `id00800/singing-01-001`,
//! `test/id00800-singing-02-005`, `enroll/id00800-enroll`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use bregman_base::files::read_text;

use super::walk::{audio_files, parts};
use super::{CorpusPart, MOST_TEXT, UtteranceBuilder};
use crate::manifest::Utterance;
use crate::manifest::names::stem;
use crate::manifest::trials::Enrollments;
use crate::{Error, Result};

pub(super) fn find(root: &Path, part: CorpusPart) -> Result<Vec<Utterance>> {
    let mut found = UtteranceBuilder::default();
    for corpus in corpora(root)? {
        let lists = SpeakerLists::read(&corpus)?;
        for path in audio_files(&corpus)? {
            let parts = parts(&corpus, &path)?;
            match parts[..] {
                ["data", speaker, clip] => {
                    let id = format!("{speaker}/{}", stem(clip));
                    let wanted = match part {
                        CorpusPart::All => true,
                        CorpusPart::Train => lists.trains(speaker),
                        CorpusPart::Test => lists.enrolled.contains(&id),
                    };
                    if wanted {
                        let (genre, session) = genre_and_session(stem(clip));
                        found.add(id, speaker, &path, session.as_deref(), genre);
                    }
                }
                ["eval", kind @ ("enroll" | "test"), clip] if part != CorpusPart::Train => {
                    let name = stem(clip);
                    let Some((speaker, rest)) = name.split_once('-') else { continue };
                    let (genre, session) = if kind == "test" { genre_and_session(rest) } else { (None, None) };
                    found.add(format!("{kind}/{name}"), speaker, &path, session.as_deref(), genre);
                }
                _ => {}
            }
        }
    }
    Ok(found.utterances)
}

/// `("singing", "singing-01")` for `singing-01-001`: sessions are numbered within a genre.
fn genre_and_session(name: &str) -> (Option<&str>, Option<String>) {
    let mut fields = name.splitn(3, '-');
    match (fields.next(), fields.next(), fields.next()) {
        (Some(genre), Some(session), Some(_)) => (Some(genre), Some(format!("{genre}-{session}"))),
        _ => (None, None),
    }
}

fn corpora(root: &Path) -> Result<Vec<PathBuf>> {
    if root.join("data").is_dir() || root.join("eval").is_dir() {
        return Ok(vec![root.to_owned()]);
    }
    let mut inside = Vec::new();
    for entry in std::fs::read_dir(root).map_err(Error::io(root))? {
        let path = entry.map_err(Error::io(root))?.path();
        if path.join("data").is_dir() {
            inside.push(path);
        }
    }
    inside.sort();
    Ok(inside)
}

/// What the lists of one corpus say about its speakers and clips.
struct SpeakerLists {
    train: Option<HashSet<String>>,
    enrolled: HashSet<String>,
}

impl SpeakerLists {
    fn read(corpus: &Path) -> Result<Self> {
        let lines = |path: &Path| -> Result<HashSet<String>> {
            let text = read_text(path, MOST_TEXT)?;
            Ok(text.split_whitespace().map(str::to_owned).collect())
        };
        let train = [corpus.join("dev/dev.lst"), corpus.join("spk.lst")].into_iter().find(|path| path.exists());
        let map = corpus.join("eval/lists/enroll.map");
        let enrolled = if map.exists() { Enrollments::read(&map)?.models } else { Vec::new() };
        let enrolled = enrolled.into_iter().flat_map(|(_, names)| names).map(|name| stem(&name).to_owned()).collect();
        Ok(Self { train: train.map(|path| lines(&path)).transpose()?, enrolled })
    }

    /// Without a list, all speakers of a corpus are for training except those it enrolls.
    fn trains(&self, speaker: &str) -> bool {
        match &self.train {
            Some(list) => list.contains(speaker),
            None => !self.enrolled.iter().any(|id| id.split('/').next() == Some(speaker)),
        }
    }
}
