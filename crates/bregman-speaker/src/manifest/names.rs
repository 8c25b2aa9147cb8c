//! Finding utterances by the names that lists use.
//!
//! A list made for `.wav` files must work on a corpus kept as `.flac` or `.m4a`, so a name is compared without its
//! audio extension: first against the utterance ids, then against the ends of the paths.

use std::collections::HashMap;
use std::path::Path;

use crate::manifest::Manifest;

/// Extensions that count as audio, in lower case.
pub const AUDIO_EXTENSIONS: [&str; 9] = ["wav", "flac", "mp3", "m4a", "aac", "mp4", "ogg", "oga", "opus"];

/// Finds utterance numbers by name.
#[derive(Debug)]
pub struct NameIndex {
    numbers: HashMap<String, usize>,
}

/// `name` without a known audio extension and without a leading `./`.
pub(crate) fn stem(name: &str) -> &str {
    let name = name.strip_prefix("./").unwrap_or(name);
    audio_extension(name).map_or(name, |extension| &name[..name.len() - extension.len() - 1])
}

/// The extension of a name that has a known audio extension.
pub(crate) fn audio_extension(name: &str) -> Option<&str> {
    name.rsplit_once('.').map(|(_, extension)| extension).filter(|extension| is_audio_extension(extension))
}

fn is_audio_extension(extension: &str) -> bool {
    AUDIO_EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(extension))
}

pub(crate) fn is_audio(path: &Path) -> bool {
    path.extension().and_then(|extension| extension.to_str()).is_some_and(is_audio_extension)
}

impl NameIndex {
    /// Indexes ids and, where they are unique, the last three and two parts of every path.
    pub fn new(manifest: &Manifest) -> Self {
        let mut numbers = HashMap::with_capacity(2 * manifest.utterances.len());
        let mut ends: HashMap<String, Option<usize>> = HashMap::new();
        for (number, utterance) in manifest.utterances.iter().enumerate() {
            numbers.insert(stem(&utterance.id).to_owned(), number);
            let path = utterance.path.to_string_lossy();
            let parts: Vec<&str> = stem(&path).split(['/', '\\']).filter(|part| !part.is_empty()).collect();
            for take in [2, 3] {
                if let Some(end) = parts.len().checked_sub(take).map(|start| parts[start..].join("/")) {
                    ends.entry(end).and_modify(|known| *known = None).or_insert(Some(number));
                }
            }
        }
        for (end, number) in ends {
            if let Some(number) = number {
                numbers.entry(end).or_insert(number);
            }
        }
        Self { numbers }
    }

    /// The utterance called `name`.
    pub fn get(&self, name: &str) -> Option<usize> {
        self.numbers.get(stem(name)).copied()
    }

    /// The utterance named by the enrollment side of a trial; CN-Celeb writes `id-enroll` for `enroll/id-enroll.wav`.
    pub fn enrollment(&self, name: &str) -> Option<usize> {
        self.get(name).or_else(|| self.get(&format!("enroll/{name}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_audio_extensions_are_dropped() {
        assert_eq!((stem("./a/b.WAV"), stem("a.b/c"), stem("v1.5"), stem("x.flac")), ("a/b", "a.b/c", "v1.5", "x"));
        assert!(is_audio(Path::new("a/b.M4A")) && !is_audio(Path::new("a/wav")));
    }

    #[test]
    fn path_ends_answer_only_when_they_are_unique() {
        let text = "utterance,speaker,path\nu1,s,x/a/1.wav\nu2,s,y/a/1.wav\nu3,s,z/b/2.wav\n";
        let index = NameIndex::new(&Manifest::parse(text.as_bytes(), Path::new("m"), Path::new("/")).unwrap());
        assert_eq!(
            [index.get("u1"), index.get("b/2.flac"), index.get("a/1.wav"), index.get("y/a/1")],
            [Some(0), Some(2), None, Some(1)]
        );
    }
}
