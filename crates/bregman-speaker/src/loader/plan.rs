//! Which cuts an epoch consists of: every 3 s piece of every utterance, or of joined clips.
//!
//! CN-Celeb has many clips below 2 s, so clips of one speaker and genre are joined, in manifest order, until they
//! exceed `join_seconds`; clips left over at the end join the last group. A group shorter than one cut is repeated to
//! the length of a cut; otherwise the remainder after the last whole cut is dropped, as in the paper.

use std::collections::BTreeMap;
use std::ops::Range;

use bregman_audio::{AugmentConfig, FbankConfig, RATE, cut};
use serde::{Deserialize, Serialize};

use crate::manifest::{Manifest, Speakers, Utterance};
use crate::{Error, Result};

/// How utterances become training examples.
///
/// | field | default | meaning | range |
/// | --- | --- | --- | --- |
/// | `seconds` | 3 | length of a cut | 0.1 … 60 |
/// | `join_seconds` | 0 (off) | clips of one speaker and genre are joined to more than this; CN-Celeb: 5 | 0 … 600 |
/// | `features` | SpeechBrain | the filterbank | |
/// | `augment` | off | noise, reverberation, speed, masks | |
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CutConfig {
    /// Length of a cut.
    pub seconds: f64,
    /// Join clips until they are longer than this; 0 joins nothing.
    pub join_seconds: f64,
    /// The filterbank.
    pub features: FbankConfig,
    /// Augmentation; off for validation.
    pub augment: AugmentConfig,
}

impl Default for CutConfig {
    fn default() -> Self {
        Self {
            seconds: 3.0,
            join_seconds: 0.0,
            features: FbankConfig::speechbrain(),
            augment: AugmentConfig::default(),
        }
    }
}

impl CutConfig {
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |field, value: f64, expected| Err(Error::Setting { field, value: value.to_string(), expected });
        if !(0.1..=60.0).contains(&self.seconds) {
            return wrong("seconds", self.seconds, "a cut of 0.1 to 60 s");
        }
        if !(0.0..=600.0).contains(&self.join_seconds) {
            return wrong("join_seconds", self.join_seconds, "0 (off) to 600 s");
        }
        Ok(())
    }

    /// Samples in one cut.
    pub fn samples(&self) -> usize {
        (self.seconds * f64::from(RATE)).round() as usize
    }
}

/// Cuts of a manifest: compact, because VoxCeleb2 has three million.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CutPlan {
    /// Utterances group after group.
    members: Vec<u32>,
    /// The range of `members` that belongs to each group.
    groups: Vec<Range<u32>>,
    /// Group and first sample of each cut.
    cuts: Vec<(u32, u32)>,
    /// Label of each cut.
    pub(super) labels: Vec<u32>,
    /// Samples of each utterance, from the manifest.
    lengths: Vec<u32>,
}

impl CutPlan {
    pub(super) fn new(manifest: &Manifest, speakers: &Speakers, config: &CutConfig) -> Result<Self> {
        config.check()?;
        let lengths = manifest.utterances.iter().map(samples).collect::<Result<Vec<u32>>>()?;
        let mut plan = Self { members: Vec::new(), groups: Vec::new(), cuts: Vec::new(), labels: Vec::new(), lengths };
        let limit = (config.join_seconds * f64::from(RATE)) as u64;
        for group in joined(manifest, &plan.lengths, limit) {
            let utterance = &manifest.utterances[group[0] as usize];
            let label = speakers.label(&utterance.speaker).ok_or_else(|| {
                let problem = format!(
                    "speaker '{}' is not among the {} speakers of the training set",
                    utterance.speaker,
                    speakers.len()
                );
                Error::format(&utterance.path, problem)
            })?;
            let total: usize = group.iter().map(|&number| plan.lengths[number as usize] as usize).sum();
            let number = plan.groups.len() as u32;
            for range in cut(total, RATE, config.seconds) {
                plan.cuts.push((number, range.start as u32));
                plan.labels.push(label);
            }
            let start = plan.members.len() as u32;
            plan.members.extend(group);
            plan.groups.push(start..plan.members.len() as u32);
        }
        Ok(plan)
    }

    /// The utterances of a cut's group.
    pub(super) fn utterances(&self, cut: usize) -> &[u32] {
        let Range { start, end } = self.groups[self.cuts[cut].0 as usize].clone();
        &self.members[start as usize..end as usize]
    }

    /// The pieces that make up a cut of `length` samples: utterance and its samples.
    pub(super) fn pieces(&self, cut: usize, length: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let start = self.cuts[cut].1 as usize;
        let mut before = 0;
        self.utterances(cut).iter().filter_map(move |&number| {
            let here = before..before + self.lengths[number as usize] as usize;
            before = here.end;
            let (from, to) = (start.max(here.start), (start + length).min(here.end));
            (from < to).then(|| (number as usize, from - here.start..to - here.start))
        })
    }
}

fn samples(utterance: &Utterance) -> Result<u32> {
    match utterance.seconds {
        Some(seconds) if seconds * f64::from(RATE) < f64::from(u32::MAX) => {
            Ok((seconds * f64::from(RATE)).round() as u32)
        }
        Some(seconds) => {
            Err(Error::format(&utterance.path, format!("seconds = {seconds}: longer than 74 hours; split the file")))
        }
        None => Err(Error::format(
            &utterance.path,
            "its length is not in the manifest; run `bregman prepare csv` on the manifest once",
        )),
    }
}

/// Groups of utterances that are read as one.
fn joined(manifest: &Manifest, lengths: &[u32], limit: u64) -> Vec<Vec<u32>> {
    if limit == 0 {
        return (0..lengths.len() as u32).map(|number| vec![number]).collect();
    }
    let mut by_kind: BTreeMap<(&str, Option<&str>), Vec<u32>> = BTreeMap::new();
    for (number, utterance) in (0..).zip(&manifest.utterances) {
        by_kind.entry((&utterance.speaker, utterance.genre.as_deref())).or_default().push(number);
    }
    let mut groups: Vec<Vec<u32>> = Vec::new();
    for numbers in by_kind.into_values() {
        let first = groups.len();
        let (mut open, mut total) = (Vec::new(), 0);
        for number in numbers {
            open.push(number);
            total += u64::from(lengths[number as usize]);
            if total > limit {
                groups.push(std::mem::take(&mut open));
                total = 0;
            }
        }
        match groups[first..].last_mut() {
            Some(last) => last.append(&mut open),
            None => groups.push(open),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    fn manifest(lines: &str) -> Manifest {
        let text = format!("utterance,speaker,genre,seconds,path\n{lines}");
        Manifest::parse(text.as_bytes(), Path::new("m.csv"), Path::new("/")).unwrap()
    }

    fn plan(lines: &str, join_seconds: f64) -> Result<CutPlan> {
        let manifest = manifest(lines);
        CutPlan::new(&manifest, &manifest.speakers(), &CutConfig { join_seconds, ..CutConfig::default() })
    }

    #[test]
    fn every_whole_cut_occurs_once_and_short_utterances_keep_one() {
        let plan = plan("a,x,,7.5,1\nb,y,,2,2\nc,y,,0,3\nd,x,,3,4\n", 0.0).unwrap();
        assert_eq!(plan.labels, [0, 0, 1, 0]);
        let pieces = |cut| plan.pieces(cut, 48_000).collect::<Vec<_>>();
        assert_eq!(pieces(0), [(0, 0..48_000)]);
        assert_eq!(pieces(1), [(0, 48_000..96_000)]);
        assert_eq!(pieces(2), [(1, 0..32_000)]);
        assert_eq!(pieces(3), [(3, 0..48_000)]);
    }

    #[test]
    fn clips_join_within_speaker_and_genre_to_more_than_the_limit() {
        let lines = "a,x,song,2,1\nb,x,song,2,2\nc,x,talk,2,3\nd,x,song,2,4\ne,x,song,1,5\nf,y,song,9,6\n";
        let plan = plan(lines, 5.0).unwrap();
        let groups: Vec<&[u32]> = plan.groups.iter().map(|g| &plan.members[g.start as usize..g.end as usize]).collect();
        assert_eq!(groups, [&[0, 1, 3, 4][..], &[2], &[5]]); // the 1 s clip left over joins the last group
        // 7 s of song give two cuts, the 2 s of talk one, 9 s of y three.
        assert_eq!(plan.labels, [0, 0, 0, 1, 1, 1]);
        assert_eq!(plan.pieces(0, 48_000).collect::<Vec<_>>(), [(0, 0..32_000), (1, 0..16_000)]);
        assert_eq!(plan.pieces(1, 48_000).collect::<Vec<_>>(), [(1, 16_000..32_000), (3, 0..32_000)]);
    }

    #[test]
    fn an_unmeasured_utterance_and_an_unknown_speaker_are_errors() {
        let message = plan("a,x,,,1\n", 0.0).unwrap_err().to_string();
        assert_eq!(message, "/1: its length is not in the manifest; run `bregman prepare csv` on the manifest once");
        let (train, valid) = (manifest("a,x,,3,1\n"), manifest("b,z,,3,2\n"));
        let message = CutPlan::new(&valid, &train.speakers(), &CutConfig::default()).unwrap_err().to_string();
        assert_eq!(message, "/2: speaker 'z' is not among the 1 speakers of the training set");
    }

    proptest! {
        #[test]
        fn cuts_take_every_sample_at_most_once_and_have_their_length(
            lengths in proptest::collection::vec((0u32..20, 0u8..3, 0u8..2), 1..30), join in 0u32..8
        ) {
            let line = |(n, (half, speaker, genre)): (usize, &(u32, u8, u8))| {
                format!("{n},s{speaker},g{genre},{},{n}\n", f64::from(*half) / 2.0)
            };
            let lines: String = lengths.iter().enumerate().map(line).collect();
            let plan = plan(&lines, f64::from(join)).unwrap();
            let mut taken: Vec<Vec<Range<usize>>> = vec![Vec::new(); lengths.len()];
            for cut in 0..plan.labels.len() {
                let pieces: Vec<_> = plan.pieces(cut, 48_000).collect();
                let group: usize = plan.utterances(cut).iter().map(|&n| plan.lengths[n as usize] as usize).sum();
                prop_assert_eq!(pieces.iter().map(|(_, range)| range.len()).sum::<usize>(), group.min(48_000));
                let kind = |n: usize| (lengths[n].1, lengths[n].2);
                prop_assert!(pieces.iter().all(|(n, _)| kind(*n) == kind(pieces[0].0)));
                pieces.into_iter().for_each(|(number, range)| taken[number].push(range));
            }
            for ranges in &mut taken {
                ranges.sort_by_key(|range| range.start);
                prop_assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
            }
        }
    }
}
