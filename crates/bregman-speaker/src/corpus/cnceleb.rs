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
//! Training: the speakers of `dev.lst` and all of CN-Celeb2, but never those whom CN-Celeb-E tests. Test: the files of
//! `eval`, and those of `data` that `enroll.map` names for multi-session enrollment. Ids are what the lists say:
//! `id00800/singing-01-001`, `test/id00800-singing-02-005`, `enroll/id00800-enroll`.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use super::voxceleb::speaker_number;
use super::walk::{audio_files, parts};
use super::{CorpusPart, UtteranceBuilder};
use crate::manifest::names::stem;
use crate::manifest::trials::Enrollments;
use crate::{Error, Result};

/// The 200 speakers of CN-Celeb-E; those of CN-Celeb2 have numbers from 10000 on.
const TEST_SPEAKERS: RangeInclusive<u32> = 800..=999;

pub(super) fn find(root: &Path, part: CorpusPart) -> Result<UtteranceBuilder> {
    let mut found = UtteranceBuilder::default();
    for corpus in corpora(root)? {
        let files = audio_files(&corpus)?;
        let lists = SpeakerLists::read(&corpus, &files)?;
        for path in files {
            let parts = parts(&corpus, &path)?;
            match parts[..] {
                ["data", speaker, clip] => {
                    let id = format!("{speaker}/{}", stem(clip));
                    let wanted = match part {
                        CorpusPart::All => true,
                        CorpusPart::Train => lists.trains(speaker),
                        CorpusPart::Test => lists.enrolled.contains(&id),
                    };
                    let for_test = !lists.trains(speaker);
                    if for_test {
                        found.note_test_speaker(speaker);
                    }
                    if wanted {
                        let (genre, session) = genre_and_session(stem(clip));
                        found.add(id, speaker, &path, session.as_deref(), genre);
                    } else {
                        found.left_out += usize::from(for_test);
                    }
                }
                ["eval", kind @ ("enroll" | "test"), clip] if part != CorpusPart::Train => {
                    let name = stem(clip);
                    let Some((speaker, rest)) = name.split_once('-') else { continue };
                    let (genre, session) = if kind == "test" { genre_and_session(rest) } else { (None, None) };
                    found.note_test_speaker(speaker);
                    found.add(format!("{kind}/{name}"), speaker, &path, session.as_deref(), genre);
                }
                _ => {}
            }
        }
    }
    Ok(found)
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

/// Who is for training and who for test.
struct SpeakerLists {
    train: Option<HashSet<String>>,
    test: HashSet<String>,
    /// Clips of multi-session enrollment.
    enrolled: HashSet<String>,
}

impl SpeakerLists {
    /// Training speakers by `dev.lst` or `spk.lst`; test speakers by `enroll.map` and the names of the files in `eval`.
    fn read(corpus: &Path, files: &[PathBuf]) -> Result<Self> {
        let lines = |path: &Path| -> Result<HashSet<String>> {
            let text = std::fs::read_to_string(path).map_err(Error::io(path))?;
            Ok(text.split_whitespace().map(str::to_owned).collect())
        };
        let train = [corpus.join("dev/dev.lst"), corpus.join("spk.lst")].into_iter().find(|path| path.exists());
        let map = corpus.join("eval/lists/enroll.map");
        let models = if map.exists() { Enrollments::read(&map)?.models } else { Vec::new() };
        let enrolled: HashSet<String> =
            models.into_iter().flat_map(|(_, names)| names).map(|name| stem(&name).to_owned()).collect();
        let mapped = enrolled.iter().filter_map(|id| id.split('/').next());
        let mut test: HashSet<String> = mapped.map(str::to_owned).collect();
        for path in files {
            if let ["eval", "enroll" | "test", clip] = parts(corpus, path)?[..] {
                test.extend(clip.split_once('-').map(|(speaker, _)| speaker.to_owned()));
            }
        }
        Ok(Self { train: train.map(|path| lines(&path)).transpose()?, test, enrolled })
    }

    /// A test speaker is never for training, whatever the list of training speakers says.
    fn trains(&self, speaker: &str) -> bool {
        let listed = self.train.as_ref().is_none_or(|list| list.contains(speaker));
        let published = speaker_number(speaker).is_some_and(|number| TEST_SPEAKERS.contains(&number));
        listed && !published && !self.test.contains(speaker)
    }
}
