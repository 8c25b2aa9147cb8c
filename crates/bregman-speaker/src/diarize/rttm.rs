//! RTTM, NIST's file of turns: one per line, ten fields.
//!
//! ```text
//! SPEAKER meeting 1 12.340 5.660 <NA> <NA> ann <NA> <NA>
//!         file    channel start seconds      speaker
//! ```
//!
//! Lines of other types, comments (`;;`) and blank lines are skipped.

use std::fmt::Write as _;
use std::path::Path;

use bregman_base::files::{MARK, read_text};

use super::turn::Turn;
use crate::{Error, Result};

/// A reference of a hundred hours has some ten megabytes.
const MOST_BYTES: u64 = 1 << 28;

/// Three years: no recording is longer, and milliseconds of such a number are still exact.
const MOST_SECONDS: f64 = 1e8;

/// The turns of one or more recordings.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rttm {
    /// By recording, in the order of the file.
    pub recordings: Vec<(String, Vec<Turn>)>,
}

impl Rttm {
    /// Reads a file.
    ///
    /// # Errors
    /// One that cannot be read, or a wrong line, which is named.
    pub fn read(path: &Path) -> Result<Self> {
        Self::parse(&read_text(path, MOST_BYTES)?, path)
    }

    /// Parses the text of a file; `name` is for messages.
    ///
    /// # Errors
    /// A wrong line, or no turns at all.
    pub fn parse(text: &str, name: &Path) -> Result<Self> {
        let mut rttm = Self::default();
        for (line, text) in (1..).zip(text.trim_start_matches(MARK).lines()) {
            let fields: Vec<&str> = text.split_whitespace().collect();
            if fields.first() != Some(&"SPEAKER") {
                match fields.first() {
                    Some(kind) if !kind.starts_with(";;") && !OTHER_TYPES.contains(kind) => {
                        let problem = format!("'{kind}'; expected SPEAKER file channel start seconds <NA> <NA> name");
                        return Err(Error::line(name, line, problem));
                    }
                    _ => continue,
                }
            }
            let &[_, file, _, start, seconds, _, _, speaker, ..] = &fields[..] else {
                let problem =
                    format!("{} fields; expected SPEAKER file channel start seconds <NA> <NA> name", fields.len());
                return Err(Error::line(name, line, problem));
            };
            let number = |field: &str, what: &str| match field.parse::<f64>() {
                Ok(number) if (0.0..=MOST_SECONDS).contains(&number) => Ok(number),
                _ => Err(Error::line(name, line, format!("{what} '{field}'; expected seconds, 0 to {MOST_SECONDS}"))),
            };
            let (start, seconds) = (number(start, "start")?, number(seconds, "length")?);
            let turn = Turn { start, end: start + seconds, speaker: speaker.to_owned() };
            match rttm.recordings.iter_mut().rev().find(|(recording, _)| recording == file) {
                Some((_, turns)) => turns.push(turn),
                None => rttm.recordings.push((file.to_owned(), vec![turn])),
            }
        }
        if rttm.recordings.is_empty() { Err(Error::format(name, "no SPEAKER lines in it")) } else { Ok(rttm) }
    }

    /// The turns of a recording: those under its name, or all of a file that has one recording only.
    pub fn of(&self, recording: &str) -> Option<&[Turn]> {
        let named = self.recordings.iter().find(|(name, _)| name == recording);
        let only = if self.recordings.len() == 1 { self.recordings.first() } else { None };
        named.or(only).map(|(_, turns)| &**turns)
    }

    /// The file as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (recording, turns) in &self.recordings {
            let recording = one_word(recording);
            for turn in turns {
                // rounded ends, so that turns that touch do so in the file
                let [start, end] = [turn.start, turn.end].map(|seconds| (seconds * 1e3).round() / 1e3);
                let (length, speaker) = (end - start, one_word(&turn.speaker));
                let _ = writeln!(text, "SPEAKER {recording} 1 {start:.3} {length:.3} <NA> <NA> {speaker} <NA> <NA>");
            }
        }
        text
    }
}

/// Other lines that an RTTM file may have.
const OTHER_TYPES: [&str; 11] =
    ["SPKR-INFO", "LEXEME", "NON-LEX", "NON-SPEECH", "FILLER", "EDIT", "IP", "SU", "CB", "A/P", "SEGMENT"];

/// Fields are separated by blanks, so they have none inside.
fn one_word(name: &str) -> String {
    let word = name.split_whitespace().collect::<Vec<_>>().join("_");
    if word.is_empty() { "_".to_owned() } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Rttm> {
        Rttm::parse(text, Path::new("ref.rttm"))
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let turn = |start, end, name: &str| Turn { start, end, speaker: name.to_owned() };
        let rttm = Rttm {
            recordings: vec![
                ("a".to_owned(), vec![turn(0.0, 1.5, "x"), turn(1.5, 2.25, "y")]),
                ("b".to_owned(), vec![turn(10.125, 11.0, "x")]),
            ],
        };
        let text = rttm.text();
        assert!(text.starts_with("SPEAKER a 1 0.000 1.500 <NA> <NA> x <NA> <NA>\nSPEAKER a 1 1.500 0.750 "), "{text}");
        assert_eq!(parse(&text).unwrap(), rttm);
        assert_eq!((rttm.of("b").unwrap().len(), rttm.of("c")), (1, None));
        let only = Rttm { recordings: vec![("my talk".to_owned(), vec![turn(0.0, 1.0, "Ann Lee")])] };
        assert_eq!(only.text(), "SPEAKER my_talk 1 0.000 1.000 <NA> <NA> Ann_Lee <NA> <NA>\n");
        assert_eq!(only.of("other").unwrap().len(), 1);
    }

    #[test]
    fn other_lines_are_skipped_and_wrong_ones_named() {
        let read = parse(
            "\u{feff};; made by hand\nSPKR-INFO a 1 <NA> <NA> <NA> unknown x <NA> <NA>\n\n\
             SPEAKER a 1 0.5 1 <NA> <NA> x <NA>\n",
        );
        assert_eq!(read.unwrap().recordings[0].1[0].end, 1.5);
        let wrong = |text: &str| parse(text).unwrap_err().to_string();
        assert!(wrong("SPEAKER a 1 0.5 1 <NA> <NA> x\nSPEAKER a 1 0.5\n").starts_with("ref.rttm, line 2: 4 fields"));
        assert!(wrong("SPEAKER a 1 zero 1 <NA> <NA> x").contains("line 1: start 'zero'; expected seconds"));
        assert!(wrong("SPEAKER a 1 0 -1 <NA> <NA> x").contains("length '-1'"));
        assert!(wrong("SPEAKER a 1 0 nan <NA> <NA> x").contains("length 'nan'"));
        assert!(wrong("SPEAKER a 1 1e300 1 <NA> <NA> x").contains("start '1e300'; expected seconds, 0 to 100000000"));
        assert!(wrong("utterance,speaker\n").contains("line 1: 'utterance,speaker'; expected SPEAKER"));
        assert_eq!(wrong("\n;; nothing\n"), "ref.rttm: no SPEAKER lines in it");
    }
}
