//! What to know before a network is trained on a manifest: error rates on speakers that were trained on are worthless.

use crate::corpus::{Corpus, CorpusPart, Found, is_of_voxceleb1};

/// Notes on the speakers of the test set, in or out of what was found.
pub(super) fn of(corpus: Corpus, part: CorpusPart, found: &Found) -> Vec<String> {
    let list = match corpus {
        Corpus::VoxCeleb => "VoxCeleb1-O",
        Corpus::CnCeleb => "CN-Celeb-E",
        _ => return Vec::new(),
    };
    if part == CorpusPart::Test {
        return Vec::new();
    }
    let speakers = found.manifest.speakers();
    let inside = found.test_speakers.iter().filter(|name| speakers.label(name).is_some()).count();
    let mut notes = Vec::new();
    if found.left_out > 0 {
        let (count, utterances) = (found.test_speakers.len(), found.left_out);
        notes.push(format!(
            "left out {count} test speakers ({utterances} utterances), so that {list} stays unseen; --part all keeps \
             them"
        ));
    }
    if inside > 0 {
        notes.push(format!(
            "{inside} test speakers are in this manifest: a network trained on it must not be evaluated on {list}"
        ));
    }
    let of_voxceleb1 = speakers.names().iter().filter(|name| is_of_voxceleb1(name)).count();
    if corpus == Corpus::VoxCeleb && of_voxceleb1 > 0 {
        notes.push(format!(
            "{of_voxceleb1} speakers are of VoxCeleb1, whom VoxCeleb1-E and -H test: a network trained on this \
             manifest must not be evaluated on these two lists"
        ));
    }
    notes
}
