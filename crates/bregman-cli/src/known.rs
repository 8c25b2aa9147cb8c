//! The file of known speakers: one embedding of each, all of the same network.

use std::collections::BTreeMap;
use std::path::Path;

use bregman_base::files::{read_text, write_file};
use bregman_base::text::excerpt;
use bregman_speaker::score::cosine;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// Letters of a speaker's name.
pub(crate) const MOST_LETTERS: usize = 100;

/// The largest file of speakers that is read: four kilobytes for each of 250 000.
const MOST_BYTES: u64 = 1 << 30;

/// The format in which the file is written, and the newest that is read. Files without a number are older and mean the
/// same.
const FORMAT: u32 = 1;

/// Known speakers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Known {
    #[serde(default)]
    format: u32,
    /// Embeddings of one network only can be compared.
    network: String,
    speakers: BTreeMap<String, Speaker>,
}

/// What is known of a speaker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Speaker {
    /// How many recordings were enrolled.
    pub(crate) recordings: usize,
    /// How long they are together.
    pub(crate) seconds: f32,
    /// Their mean embedding.
    pub(crate) embedding: Vec<f32>,
}

/// How much a recording sounds like a known speaker.
#[derive(Debug, Serialize)]
pub(crate) struct Match<'a> {
    /// Who that is.
    pub(crate) name: &'a str,
    /// The cosine of the two embeddings.
    pub(crate) score: f64,
}

/// The part of the file that tells which program can read it.
#[derive(Debug, Deserialize)]
struct Numbered {
    #[serde(default)]
    format: u32,
}

impl Known {
    /// The speakers in the file `path`, none if there is no such file yet; with embeddings of `size` values by the
    /// network of this name.
    pub(crate) fn read_or_new(path: &Path, network: &str, size: usize) -> Result<Self, Failure> {
        if path.exists() {
            return Self::read(path, network, size);
        }
        Ok(Self { format: FORMAT, network: network.to_owned(), speakers: BTreeMap::new() })
    }

    /// As [`Known::read_or_new`], of a file that must exist.
    pub(crate) fn read(path: &Path, network: &str, size: usize) -> Result<Self, Failure> {
        const AGAIN: &str = "enroll them again with this model, or pass the model they were enrolled with";
        let shown = path.display();
        let text = read_text(path, MOST_BYTES)
            .map_err(|error| Failure::mistake(error.to_string(), "make it with `bregman enroll`"))?;
        let wrong = |error: serde_json::Error| {
            Failure::mistake(format!("{shown}: {error}"), "expected a file of speakers made by `bregman enroll`")
        };
        let Numbered { format } = serde_json::from_str(&text).map_err(wrong)?;
        if format > FORMAT {
            let message = format!("{shown}: written in format {format}, this program reads {FORMAT}");
            return Err(Failure::mistake(message, "it is of a newer bregman: use that one, or update this one"));
        }
        let known = Self { format: FORMAT, ..serde_json::from_str(&text).map_err(wrong)? };
        if known.network != network {
            let message = format!("{shown}: its speakers were enrolled with another network or other settings");
            return Err(Failure::mistake(message, AGAIN));
        }
        for (name, Speaker { embedding, seconds, .. }) in &known.speakers {
            let problem = match embedding.iter().chain([seconds]).find(|value| !value.is_finite()) {
                _ if embedding.len() != size => {
                    format!("{} values, where the network's embeddings have {size}", embedding.len())
                }
                Some(value) => format!("{value}, which is no finite number"),
                None => continue,
            };
            let name = excerpt(name, MOST_LETTERS);
            return Err(Failure::mistake(format!("{shown}: the embedding of '{name}' has {problem}"), AGAIN));
        }
        Ok(known)
    }

    /// Refuses a name that is taken, unless the speaker is to be replaced.
    pub(crate) fn check_free(&self, name: &str, path: &Path, force: bool) -> Result<(), Failure> {
        if force || !self.speakers.contains_key(name) {
            return Ok(());
        }
        let message = format!("{}: '{name}' is enrolled already", path.display());
        Err(Failure::mistake(message, "choose another name, or pass --force to replace the speaker"))
    }

    /// Adds or replaces a speaker. How many there are then.
    pub(crate) fn insert(&mut self, name: &str, speaker: Speaker) -> usize {
        self.speakers.insert(name.to_owned(), speaker);
        self.speakers.len()
    }

    /// Every speaker, the best match first.
    pub(crate) fn matches(&self, embedding: &[f32]) -> Vec<Match<'_>> {
        let score = |speaker: &Speaker| cosine(embedding, &speaker.embedding);
        let mut matches: Vec<Match> =
            self.speakers.iter().map(|(name, speaker)| Match { name, score: score(speaker) }).collect();
        matches.sort_by(|a, b| b.score.total_cmp(&a.score));
        matches
    }

    /// Writes the file `path`.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Failure> {
        let text =
            serde_json::to_string(self).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
        Ok(write_file(path, text)?)
    }
}
