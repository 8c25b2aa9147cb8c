//! VoxCeleb1 and 2 (Nagrani et al. 2017, Chung et al. 2018): `…/SPEAKER/VIDEO/CLIP.{wav,m4a,flac}` under any folders,
//! such as `vox1_dev_wav/wav/id10001/1zcIwhmdeo4/00001.wav` or `dev/aac/id00012/21Uxsk56VDQ/00001.m4a`.
//!
//! The id is `SPEAKER/VIDEO/CLIP`, which is what the O, E and H lists name; the session is the video. Test speakers are
//! VoxCeleb1's id10270–id10309 (the 40 of VoxCeleb1-O) and whatever lies below a folder with the word `test` in its
//! name.

use std::ops::RangeInclusive;
use std::path::Path;

use super::walk::{audio_files, parts};
use super::{CorpusPart, UtteranceBuilder};
use crate::Result;
use crate::manifest::names::stem;

/// The 40 speakers of VoxCeleb1-O.
const TEST_SPEAKERS: RangeInclusive<u32> = 10_270..=10_309;
/// VoxCeleb1's 1251 speakers, whom VoxCeleb1-E and -H test; VoxCeleb2's have smaller numbers.
const VOXCELEB1_SPEAKERS: RangeInclusive<u32> = 10_001..=11_251;

pub(super) fn find(root: &Path, part: CorpusPart) -> Result<UtteranceBuilder> {
    let mut found = UtteranceBuilder::default();
    for path in audio_files(root)? {
        let parts = parts(root, &path)?;
        let [above @ .., speaker, video, clip] = &parts[..] else { continue };
        let Some(number) = speaker_number(speaker) else { continue };
        let is_test = TEST_SPEAKERS.contains(&number) || above.iter().any(|folder| names_test(folder));
        if is_test {
            found.note_test_speaker(speaker);
        }
        if part == CorpusPart::All || is_test == (part == CorpusPart::Test) {
            found.add(format!("{speaker}/{video}/{}", stem(clip)), speaker, &path, Some(video), None);
        } else {
            found.left_out += usize::from(is_test);
        }
    }
    Ok(found)
}

/// Whether a speaker is one of VoxCeleb1.
pub(crate) fn is_of_voxceleb1(speaker: &str) -> bool {
    speaker_number(speaker).is_some_and(|number| VOXCELEB1_SPEAKERS.contains(&number))
}

/// True for `test` and `vox1_test_wav`, not for `latest`.
fn names_test(folder: &str) -> bool {
    folder.split(|c: char| !c.is_alphanumeric()).any(|word| word.eq_ignore_ascii_case("test"))
}

/// 10270 for `id10270`.
pub(super) fn speaker_number(name: &str) -> Option<u32> {
    name.strip_prefix("id").filter(|digits| digits.len() == 5)?.parse().ok()
}
