//! Validation split by utterance, stratified by speaker.
//!
//! Of a speaker's n utterances, ⌊f·n + u⌋ go to validation, with u ∈ [0, 1) drawn from the seed: f·n on average, never
//! all of them. The choice depends only on the seed and the names, not on the order: a manifest and its shards are
//! split in the same way.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Rng;
use crate::manifest::Manifest;
use crate::{Error, Result};
use bregman_base::hash::fnv;

/// Splits `manifest` into (training, validation) with `fraction` of the utterances in the second, order kept in both.
pub fn split(manifest: &Manifest, fraction: f64, seed: u64) -> Result<(Manifest, Manifest)> {
    let validation = validation_mask(manifest, fraction, seed)?;
    let part = |wanted: bool| {
        let chosen = manifest.utterances.iter().zip(&validation).filter(|(_, is)| **is == wanted);
        Manifest { utterances: chosen.map(|(utterance, _)| utterance.clone()).collect() }
    };
    Ok((part(false), part(true)))
}

/// True for the utterances that go to validation.
pub(crate) fn validation_mask(manifest: &Manifest, fraction: f64, seed: u64) -> Result<Vec<bool>> {
    if !(0.0..1.0).contains(&fraction) {
        return Err(Error::Setting {
            field: "validation",
            value: fraction.to_string(),
            expected: "a fraction in [0, 1)",
        });
    }
    let mut by_speaker: BTreeMap<&Arc<str>, Vec<usize>> = BTreeMap::new();
    for (number, utterance) in manifest.utterances.iter().enumerate() {
        by_speaker.entry(&utterance.speaker).or_default().push(number);
    }
    let mut validation = vec![false; manifest.utterances.len()];
    for (speaker, mut numbers) in by_speaker {
        let mut rng = Rng::keyed(&[seed, fnv(speaker)]);
        let share = (fraction * numbers.len() as f64 + rng.unit()).floor() as usize;
        let share = share.min(numbers.len() - 1); // every speaker keeps training data
        numbers.sort_by_key(|&number| {
            let id = &manifest.utterances[number].id;
            (Rng::keyed(&[seed, fnv(id)]).bits(), id)
        });
        numbers[..share].iter().for_each(|&number| validation[number] = true);
    }
    Ok(validation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn corpus(counts: &[usize]) -> Manifest {
        let mut text = "path,speaker\n".to_owned();
        for (speaker, &count) in counts.iter().enumerate() {
            (0..count).for_each(|number| text += &format!("{speaker}/{number}.wav,s{speaker}\n"));
        }
        Manifest::parse(text.as_bytes(), Path::new("m"), Path::new("/")).unwrap()
    }

    #[test]
    fn every_speaker_contributes_its_share_and_keeps_training_data() {
        let manifest = corpus(&[1, 10, 10, 40, 200]);
        let (train, valid) = split(&manifest, 0.1, 5).unwrap();
        assert_eq!(train.utterances.len() + valid.utterances.len(), 261);
        let count = |part: &Manifest, speaker: &str| part.utterances.iter().filter(|u| &*u.speaker == speaker).count();
        assert_eq!(train.speakers(), manifest.speakers());
        assert_eq!(count(&valid, "s0"), 0);
        for (speaker, expected) in [("s1", 1), ("s2", 1), ("s3", 4), ("s4", 20)] {
            assert!(count(&valid, speaker).abs_diff(expected) <= 1, "{speaker}: {}", count(&valid, speaker));
        }
    }

    #[test]
    fn speakers_with_few_utterances_contribute_the_fraction_on_average() {
        let (_, valid) = split(&corpus(&[4; 2000]), 0.05, 1).unwrap();
        assert!((300..500).contains(&valid.utterances.len()), "{} of 8000 at 5 %", valid.utterances.len());
    }

    #[test]
    fn the_seed_decides_and_a_removed_speaker_changes_nothing_for_the_others() {
        let manifest = corpus(&[30, 30, 30]);
        let ids = |m: Manifest| m.utterances.into_iter().map(|u| u.id).collect::<Vec<_>>();
        let valid = |m: &Manifest, seed| ids(split(m, 0.2, seed).unwrap().1);
        assert_eq!(valid(&manifest, 1), valid(&manifest, 1));
        assert_ne!(valid(&manifest, 1), valid(&manifest, 2));
        let fewer = manifest.filtered(|u| &*u.speaker != "s1");
        let expected: Vec<String> = valid(&manifest, 1).into_iter().filter(|id| !id.starts_with("1/")).collect();
        assert_eq!(valid(&fewer, 1), expected);
    }

    #[test]
    fn the_order_of_the_utterances_does_not_matter() {
        let manifest = corpus(&[20, 7]);
        let mut reversed = manifest.clone();
        reversed.utterances.reverse();
        let (_, valid) = split(&manifest, 0.3, 1).unwrap();
        let (_, mut other) = split(&reversed, 0.3, 1).unwrap();
        other.utterances.reverse();
        assert_eq!(other, valid);
    }

    #[test]
    fn a_fraction_out_of_range_is_refused() {
        for fraction in [-0.1, 1.0, f64::NAN] {
            assert!(split(&corpus(&[3]), fraction, 0).is_err());
        }
    }
}
