//! Who speaks from when to when.

use std::collections::BTreeSet;

use serde::Serialize;

/// A stretch of speech of one speaker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Turn {
    /// Seconds from the beginning of the recording.
    pub start: f64,
    /// Seconds from the beginning of the recording.
    pub end: f64,
    /// The speaker's name.
    pub speaker: String,
}

impl Turn {
    /// Its length.
    pub fn seconds(&self) -> f64 {
        self.end - self.start
    }
}

/// The speakers of some turns, by name.
pub fn speakers_of(turns: &[Turn]) -> Vec<&str> {
    turns.iter().map(|turn| &*turn.speaker).collect::<BTreeSet<_>>().into_iter().collect()
}
