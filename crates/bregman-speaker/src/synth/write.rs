//! A synthetic corpus on disk: WAV files by speaker, `train.csv`, `test.csv` and the lists of the held-out speakers.
//!
//! The lists are written when all audio is on disk, `train.csv` last, and removed first where a corpus is replaced: one
//! that has it is complete. A killed run is simply started again.

use std::io::Write;
use std::path::{Path, PathBuf};

use bregman_audio::{Audio, RATE, wav_bytes};
use bregman_base::files::{sync_files, write_unsynced};
use rayon::prelude::*;

use super::SynthCorpus;
use crate::files::{check_free, write_whole};
use crate::manifest::Manifest;
use crate::{Error, Progress, Result};

impl SynthCorpus {
    /// Writes the corpus to `folder`; one step per utterance. Returns (training, test) manifests.
    pub fn write(&self, folder: &Path, force: bool, progress: &dyn Progress) -> Result<(Manifest, Manifest)> {
        let lists =
            ["train.csv", "test.csv", "trials.txt", "enroll.map", "trials_multi.txt"].map(|name| folder.join(name));
        lists.iter().try_for_each(|path| check_free(path, force))?;
        for list in lists.iter().filter(|list| list.exists()) {
            std::fs::remove_file(list).map_err(Error::io(list))?;
        }
        let [train_csv, test_csv, trials, enroll, trials_multi] = lists;

        let mut manifest = self.manifest();
        manifest.utterances.iter_mut().for_each(|utterance| utterance.path = folder.join(&utterance.path));
        for first in manifest.utterances.iter().step_by(self.config.utterances) {
            let speaker: PathBuf = first.path.parent().map(Path::to_owned).unwrap_or_default();
            std::fs::create_dir_all(&speaker).map_err(Error::io(&speaker))?;
        }
        let per_speaker = self.config.utterances;
        progress.begin(manifest.utterances.len());
        manifest.utterances.par_iter().enumerate().try_for_each(|(at, utterance)| -> Result<()> {
            let samples = self.render(at / per_speaker, at % per_speaker);
            let samples = samples.into_iter().map(|sample| f32::from(sample) / 32768.0).collect();
            write_unsynced(&utterance.path, wav_bytes(&Audio { samples, rate: RATE }))?;
            progress.step();
            Ok(())
        })?;
        manifest.utterances.par_chunks(per_speaker).try_for_each(|speaker| {
            sync_files(&speaker.iter().map(|utterance| utterance.path.clone()).collect::<Vec<_>>())
        })?;

        let (train, test) = self.divide(&manifest);
        if self.config.held_out > 0 {
            test.write(&test_csv, force)?;
            let text = self.lists();
            for (path, text) in [(trials, text.trials), (enroll, text.enroll), (trials_multi, text.trials_multi)] {
                if !text.is_empty() {
                    write_whole(&path, force, |writer| writer.write_all(text.as_bytes()).map_err(Error::io(&path)))?;
                }
            }
        }
        train.write(&train_csv, force)?;
        Ok((train, test))
    }

    /// (training, held-out) utterances of [`SynthCorpus::manifest`].
    pub fn divide(&self, manifest: &Manifest) -> (Manifest, Manifest) {
        let (train, test) =
            manifest.utterances.split_at((self.config.speakers - self.config.held_out) * self.config.utterances);
        (Manifest { utterances: train.to_vec() }, Manifest { utterances: test.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AudioSource, Enrollments, SynthConfig, Trials};

    #[test]
    fn a_written_corpus_has_resolvable_trials_across_sessions_and_disjoint_speakers() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("synth");
        let config = SynthConfig {
            speakers: 5,
            utterances: 4,
            per_session: 2,
            held_out: 3,
            seconds: [0.2, 0.3],
            seed: 9,
            ..SynthConfig::default()
        };
        let corpus = SynthCorpus::new(config).unwrap();
        corpus.write(&folder, false, &()).unwrap();
        assert!(matches!(corpus.write(&folder, false, &()), Err(Error::Exists(_))));

        let (train, test) = (
            Manifest::read(&folder.join("train.csv"), None).unwrap(),
            Manifest::read(&folder.join("test.csv"), None).unwrap(),
        );
        assert_eq!((train.utterances.len(), test.utterances.len()), (8, 12));
        assert!(train.speakers().names().iter().all(|name| test.speakers().label(name).is_none()));
        for utterance in train.utterances.iter().chain(&test.utterances) {
            let samples = bregman_audio::load_16k(&utterance.path).unwrap();
            assert!((samples.len() as f64 / 16e3 - utterance.seconds.unwrap()).abs() < 1e-4);
        }
        let trials = Trials::read(&folder.join("trials.txt")).unwrap().resolve(&test, None).unwrap();
        assert_eq!(trials.trials.len(), 2 * 3 * 4);
        let (_, in_memory) = corpus.in_memory();
        assert_eq!(corpus.trials().unwrap().resolve(in_memory.manifest(), None).unwrap(), trials);
        for trial in &trials.trials {
            let (a, b) =
                (&test.utterances[trials.models[trial.enroll as usize][0]], &test.utterances[trial.test as usize]);
            assert_eq!(trial.target, a.speaker == b.speaker);
            assert!(!trial.target || a.session != b.session);
        }
        let enroll = Enrollments::read(&folder.join("enroll.map")).unwrap();
        let multi = Trials::read(&folder.join("trials_multi.txt")).unwrap().resolve(&test, Some(&enroll)).unwrap();
        assert_eq!((multi.models.len(), multi.trials.len()), (3, 3 * 3 * 2));
    }
}
