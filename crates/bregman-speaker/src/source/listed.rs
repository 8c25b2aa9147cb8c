//! The audio that lists name, wherever it lies.
//!
//! Published lists count from different folders: CN-Celeb's trials name files of `eval/`, its enrollment map files of
//! `data/`; the lists VoxCeleb1-E and -H name files of two archives, which many keep as two folders.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::manifest::Manifest;
use crate::manifest::names::{NameIndex, audio_extension, stem};
use crate::manifest::trials::{Enrollments, Trials};
use crate::shard::ShardCorpus;
use crate::source::{AudioSource, FileCorpus, open_corpus};
use crate::{Error, Result};

/// The utterances that a trial list and an enrollment map name, from one or more roots.
///
/// A root is a folder that names count from, a folder of shards, or a manifest. A name is looked for in one root after
/// the other.
pub struct ListedAudio {
    manifest: Manifest,
    /// Root and utterance number in it, by utterance number here.
    places: Vec<(usize, usize)>,
    roots: Vec<Arc<dyn AudioSource>>,
    renamed: BTreeMap<[String; 2], usize>,
}

impl ListedAudio {
    /// Opens the roots and looks for every name. Names without audio are left to [`Trials::resolve`], which counts
    /// them.
    ///
    /// # Errors
    /// A root that does not exist or cannot be read.
    pub fn find(roots: &[PathBuf], trials: &Trials, enrollments: Option<&Enrollments>) -> Result<Self> {
        let names = names(trials, enrollments);
        let mut opened = Vec::new();
        for root in roots {
            let source = open(root, &names)?;
            let index = NameIndex::new(source.manifest());
            opened.push((source, index));
        }
        let (mut seen, mut renamed) = (HashSet::new(), BTreeMap::new());
        let (mut manifest, mut places) = (Manifest::default(), Vec::new());
        for name in &names {
            let found = opened.iter().enumerate().find_map(|(root, (_, index))| Some((root, index.get(name)?)));
            let Some((root, number)) = found.filter(|_| seen.insert(stem(name))) else { continue };
            let utterance = &opened[root].0.manifest().utterances[number];
            let extensions = [audio_extension(name), utterance.path.to_str().and_then(audio_extension)];
            if let [Some(listed), Some(stored)] = extensions.map(|extension| extension.map(str::to_lowercase))
                && listed != stored
            {
                *renamed.entry([listed, stored]).or_default() += 1;
            }
            manifest.utterances.push(crate::Utterance { id: name.clone(), ..utterance.clone() });
            places.push((root, number));
        }
        Ok(Self { manifest, places, roots: opened.into_iter().map(|(source, _)| source).collect(), renamed })
    }

    /// How many names have another audio extension than their files: `([of the list, of the file], names)`.
    pub fn renamed(&self) -> impl Iterator<Item = (&[String; 2], usize)> {
        self.renamed.iter().map(|(extensions, &count)| (extensions, count))
    }
}

impl AudioSource for ListedAudio {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn append(&self, utterance: usize, range: Range<usize>, out: &mut Vec<f32>) -> Result<()> {
        let (root, number) = self.places[utterance];
        self.roots[root].append(number, range, out)
    }

    fn stated_seconds(&self, utterance: usize) -> Option<f64> {
        let (root, number) = self.places[utterance];
        self.roots[root].stated_seconds(number)
    }

    fn fingerprint(&self, utterance: usize) -> Result<u128> {
        let (root, number) = self.places[utterance];
        self.roots[root].fingerprint(number)
    }
}

/// Every name that may be an utterance: CN-Celeb's trials write `id-enroll` for the file `enroll/id-enroll.wav`.
fn names(trials: &Trials, enrollments: Option<&Enrollments>) -> Vec<String> {
    let mapped = enrollments.into_iter().flat_map(|map| map.models.iter().flat_map(|(_, names)| names));
    let enrolled = trials.names.iter().map(|name| format!("enroll/{name}"));
    trials.names.iter().chain(mapped).cloned().chain(enrolled).collect()
}

fn open(root: &Path, names: &[String]) -> Result<Arc<dyn AudioSource>> {
    std::fs::metadata(root).map_err(Error::io(root))?;
    if root.is_file() || ShardCorpus::is_at(root) {
        return open_corpus(root, None);
    }
    Ok(Arc::new(FileCorpus(Manifest::of_files(root, names.iter().map(String::as_str)))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SynthConfig, SynthCorpus};

    fn trials(text: &str) -> Trials {
        Trials::parse(text.as_bytes(), Path::new("t.txt")).unwrap()
    }

    #[test]
    fn names_are_found_in_folders_and_manifests_one_after_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let config = SynthConfig { speakers: 2, utterances: 2, held_out: 0, seconds: [0.2, 0.3], ..Default::default() };
        let (train, _) = SynthCorpus::new(config).unwrap().write(dir.path(), false, &()).unwrap();
        let path = |speaker: usize, clip: usize| train.utterances[2 * speaker + clip].path.clone();
        let (test, data) = (dir.path().join("eval/test"), dir.path().join("data/ann"));
        [&test, &data].into_iter().for_each(|folder| std::fs::create_dir_all(folder).unwrap());
        std::fs::copy(path(0, 0), test.join("a.flac")).unwrap();
        std::fs::copy(path(0, 1), data.join("1.wav")).unwrap();
        let manifest = dir.path().join("more.csv");
        std::fs::write(&manifest, format!("path,speaker,utterance\n{},bob,bob/2\n", path(1, 0).display())).unwrap();

        let list = trials("ann-enroll test/a.wav 1\nann-enroll bob/2.wav 0\n");
        let map = Enrollments::parse(&b"ann-enroll ann/1.wav\n"[..], Path::new("e.map")).unwrap();
        let roots = [dir.path().join("eval"), dir.path().join("data"), manifest];
        let audio = ListedAudio::find(&roots, &list, Some(&map)).unwrap();
        let resolved = list.resolve(audio.manifest(), Some(&map)).unwrap();
        let whole = |number: usize| audio.whole(number).unwrap();
        let direct = FileCorpus(train.clone());
        for (number, original) in [(resolved.trials[0].test as usize, 0), (resolved.models[0][0], 1)] {
            assert_eq!(whole(number), direct.whole(original).unwrap());
            assert_eq!(audio.fingerprint(number).unwrap(), direct.fingerprint(original).unwrap());
        }
        assert_eq!(whole(resolved.trials[1].test as usize), direct.whole(2).unwrap());
        let renamed: Vec<_> = audio.renamed().map(|(extensions, count)| (extensions.join(" "), count)).collect();
        assert_eq!(renamed, [("wav flac".to_owned(), 1)]);

        let fewer = ListedAudio::find(&roots[..2], &list, Some(&map)).unwrap();
        let error = list.resolve(fewer.manifest(), Some(&map)).unwrap_err();
        assert_eq!(error.to_string(), "t.txt: 1 names have no audio, the first is 'bob/2.wav' (entry 2)");
        assert!(error.hint().unwrap().contains("--root more than once"), "{error}");
        let missing = ListedAudio::find(&[dir.path().join("nowhere")], &list, None);
        assert!(missing.err().unwrap().to_string().contains("nowhere"));
    }
}
