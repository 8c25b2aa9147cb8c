//! Speakers of a corpus kept for testing, and a trial list of their utterances.
//!
//! A target trial is a pair of utterances of one speaker, from different sessions where sessions are known, so that the
//! channel does not help. Each is followed by a nontarget trial: the same first utterance with one of another speaker.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bregman_base::hash::fnv;

use super::{Manifest, Utterance};
use crate::{Error, Result, Rng};

/// Target trials at most; of more, this many are drawn.
const MAX_TARGETS: usize = 20_000;

/// Utterances of a speaker that are paired at most.
const MAX_PER_SPEAKER: usize = 200;

impl Manifest {
    /// Divides the corpus into (training, testing) with `count` speakers in the second, drawn by `seed` from those with
    /// two or more utterances. The choice depends on the names alone, not on their order.
    pub fn hold_out(&self, count: usize, seed: u64) -> Result<(Self, Self)> {
        let mut utterances: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        self.utterances.iter().for_each(|utterance| *utterances.entry(&utterance.speaker).or_default() += 1);
        let mut candidates: Vec<_> =
            utterances.iter().filter(|(_, count)| **count >= 2).map(|(speaker, _)| *speaker).collect();
        if count < 2 || count > candidates.len() || utterances.len() - count < 2 {
            return Err(Error::Setting {
                field: "held_out",
                value: format!("{count} of {} speakers", utterances.len()),
                expected: "2 or more speakers of two or more utterances, and 2 or more that are left for training",
            });
        }
        candidates.sort_by_key(|speaker| (Rng::keyed(&[seed, fnv(speaker)]).bits(), *speaker));
        let held_out: HashSet<_> = candidates[..count].iter().copied().collect();
        let part = |wanted| {
            let chosen = self.utterances.iter().filter(|utterance| held_out.contains(&utterance.speaker) == wanted);
            Self { utterances: chosen.cloned().collect() }
        };
        Ok((part(false), part(true)))
    }

    /// A trial list in VoxCeleb's form, half of it targets; empty where no speaker has two utterances, or two sessions.
    /// Where names contain spaces, tabs separate the fields.
    pub fn trial_list(&self, seed: u64) -> String {
        let mut rng = Rng::keyed(&[seed, fnv("trials")]);
        let mut speakers: BTreeMap<&Arc<str>, Vec<&Utterance>> = BTreeMap::new();
        self.utterances.iter().for_each(|utterance| speakers.entry(&utterance.speaker).or_default().push(utterance));
        let mut speakers: Vec<_> = speakers.into_values().collect();
        let mut targets = Vec::new();
        for (speaker, utterances) in speakers.iter_mut().enumerate() {
            rng.shuffle(utterances);
            let paired = &utterances[..utterances.len().min(MAX_PER_SPEAKER)];
            for (at, first) in paired.iter().enumerate() {
                let others =
                    paired[at + 1..].iter().filter(|other| first.session.is_none() || first.session != other.session);
                targets.extend(others.map(|second| (speaker, *first, *second)));
            }
        }
        rng.shuffle(&mut targets);
        targets.truncate(MAX_TARGETS);
        let tab = if self.utterances.iter().any(|utterance| utterance.id.contains(' ')) { '\t' } else { ' ' };
        let mut list = String::new();
        for (speaker, first, second) in targets {
            list += &format!("1{tab}{}{tab}{}\n", first.id, second.id);
            if speakers.len() > 1 {
                let other = &speakers[(speaker + 1 + rng.below(speakers.len() - 1)) % speakers.len()];
                list += &format!("0{tab}{}{tab}{}\n", first.id, other[rng.below(other.len())].id);
            }
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Trials;

    /// `speakers` with `utterances` each, in sessions of two, their names with a space.
    fn corpus(speakers: usize, utterances: usize) -> Manifest {
        let mut text = "path,speaker,session\n".to_owned();
        for (speaker, number) in (0..speakers).flat_map(|speaker| (0..utterances).map(move |n| (speaker, n))) {
            text += &format!("voice {speaker}/{number}.wav,s{speaker},{}\n", number / 2);
        }
        Manifest::parse(text.as_bytes(), Path::new("m"), Path::new("/")).unwrap()
    }

    #[test]
    fn held_out_speakers_have_all_their_utterances_in_the_second_part_whatever_the_order() {
        let corpus = corpus(20, 3);
        let (train, test) = corpus.hold_out(5, 1).unwrap();
        assert_eq!((train.speakers().len(), test.speakers().len()), (15, 5));
        assert_eq!(train.utterances.len(), 45);
        assert!(test.speakers().names().iter().all(|speaker| train.speakers().label(speaker).is_none()));
        let mut reversed = corpus.clone();
        reversed.utterances.reverse();
        assert_eq!(reversed.hold_out(5, 1).unwrap().1.speakers(), test.speakers());
        assert_ne!(corpus.hold_out(5, 2).unwrap().1.speakers(), test.speakers());
    }

    #[test]
    fn speakers_of_one_utterance_are_never_held_out() {
        let mut corpus = corpus(6, 3);
        corpus.utterances.extend(self::corpus(12, 1).utterances.split_off(6));
        let (_, test) = corpus.hold_out(4, 1).unwrap();
        assert_eq!(test.utterances.len(), 12);
        for count in [0, 1, 7, 12] {
            assert!(corpus.hold_out(count, 1).is_err(), "{count}");
        }
        assert!(self::corpus(3, 2).hold_out(2, 1).is_err(), "one speaker is left");
    }

    #[test]
    fn a_list_pairs_every_two_sessions_of_a_speaker_and_as_many_of_two_speakers() {
        let corpus = corpus(4, 6);
        let trials = Trials::parse(corpus.trial_list(1).as_bytes(), Path::new("list")).unwrap();
        let resolved = trials.resolve(&corpus, None).unwrap();
        let pairs: HashSet<_> = resolved
            .trials
            .iter()
            .map(|trial| {
                let (first, second) = (resolved.models[trial.enroll as usize][0], trial.test as usize);
                let (a, b) = (&corpus.utterances[first], &corpus.utterances[second]);
                assert_eq!(trial.target, a.speaker == b.speaker);
                assert!(!trial.target || a.session != b.session);
                (first.min(second), first.max(second), trial.target)
            })
            .collect();
        assert_eq!(pairs.iter().filter(|pair| pair.2).count(), 4 * 12);
        assert_eq!(resolved.trials.len(), 2 * 4 * 12);
        assert_ne!(corpus.trial_list(1), corpus.trial_list(2));
    }

    #[test]
    fn a_list_of_a_large_corpus_is_bounded() {
        assert_eq!(corpus(3, 2000).trial_list(1).lines().count(), 2 * MAX_TARGETS);
    }

    #[test]
    fn one_session_makes_no_targets() {
        assert_eq!(corpus(4, 2).trial_list(1), "");
    }
}
