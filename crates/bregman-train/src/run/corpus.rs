//! Which utterances a run is trained on: it continues to the same network only on the same ones.

use std::fmt::{self, Write};
use std::path::Path;

use bregman_base::hash::Fnv;
use bregman_speaker::Manifest;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The training and validation utterances of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorpusRecord {
    /// Trained on.
    pub train: UtteranceList,
    /// Validated on, if at all.
    pub validation: Option<UtteranceList>,
}

/// A list of utterances, told from others by a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UtteranceList {
    /// Their number.
    pub utterances: usize,
    /// How many speakers they are of.
    pub speakers: usize,
    /// Names, speakers and lengths of all, in their order. The audio itself would take too long to read.
    pub hash: String,
}

impl UtteranceList {
    pub(crate) fn of(manifest: &Manifest) -> Self {
        let mut hash = Fnv::default();
        for utterance in &manifest.utterances {
            let _ = write!(hash, "{:?} {:?} {:?};", utterance.id, utterance.speaker, utterance.seconds);
        }
        Self {
            utterances: manifest.utterances.len(),
            speakers: manifest.speakers().names().len(),
            hash: format!("{:016x}", hash.finish()),
        }
    }
}

impl fmt::Display for UtteranceList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} utterances of {} speakers", self.utterances, self.speakers)
    }
}

impl CorpusRecord {
    /// Refuses to continue `run`, trained on `self`, on another corpus.
    pub(crate) fn check(&self, now: &Self, run: &Path) -> Result<()> {
        let lists = [
            ("data.train", Some(&self.train), Some(&now.train)),
            ("data.validation", self.validation.as_ref(), now.validation.as_ref()),
        ];
        let Some((corpus, had, has)) = lists.into_iter().find(|(_, had, has)| had != has) else { return Ok(()) };
        let text = |list: Option<&UtteranceList>| list.map_or("no utterances".to_owned(), ToString::to_string);
        let (had, mut has) = (text(had), text(has));
        if had == has {
            has = "as many, but with other names, speakers or lengths".to_owned();
        }
        Err(Error::CorpusChanged { run: run.to_owned(), corpus, had, has })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> UtteranceList {
        UtteranceList::of(&Manifest::parse(text.as_bytes(), Path::new("a.csv"), Path::new("")).unwrap())
    }

    #[test]
    fn another_corpus_is_refused_and_the_error_says_what_differs() {
        let train = list("path,speaker,seconds\na/1.wav,a,1.0\nb/1.wav,b,2.0\n");
        let was = CorpusRecord { train: train.clone(), validation: None };
        let refused = |now: CorpusRecord| was.check(&now, Path::new("run")).unwrap_err().to_string();
        was.check(&was.clone(), Path::new("run")).unwrap();
        let more = list("path,speaker,seconds\na/1.wav,a,1.0\nb/1.wav,b,2.0\nb/2.wav,b,2.0\n");
        let message = refused(CorpusRecord { train: more, validation: None });
        let expected = "had 2 utterances of 2 speakers, now it has 3 utterances of 2 speakers";
        assert!(message.contains(expected) && message.contains("run: data.train"), "{message}");
        let longer = list("path,speaker,seconds\na/1.wav,a,1.0\nb/1.wav,b,2.5\n");
        assert!(refused(CorpusRecord { train: longer, validation: None }).contains("other names, speakers or lengths"));
        let swapped = list("path,speaker,seconds\na/1.wav,b,1.0\nb/1.wav,a,2.0\n");
        assert!(refused(CorpusRecord { train: swapped, validation: None }).contains("as many"));
        let message = refused(CorpusRecord { validation: Some(train.clone()), train });
        assert!(message.contains("data.validation") && message.contains("had no utterances"), "{message}");
    }
}
