//! Statistics of a corpus.

use serde::Serialize;

use crate::manifest::Manifest;

/// Upper ends of the length classes in seconds; the last class is open.
const CLASSES: [f64; 8] = [1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 60.0, f64::INFINITY];

/// Speakers, utterances, hours and how long the utterances are.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CorpusSummary {
    /// Number of different speakers.
    pub speakers: usize,
    /// Number of utterances.
    pub utterances: usize,
    /// Total duration.
    pub hours: f64,
    /// Shortest, median and longest utterance, in seconds.
    pub seconds: [f64; 3],
    /// Utterances per speaker: fewest, median, most.
    pub per_speaker: [usize; 3],
    /// Utterances per length class.
    pub histogram: Vec<LengthClass>,
}

/// One class of the length histogram.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LengthClass {
    /// Shortest length in the class, seconds.
    pub from: f64,
    /// Lengths in the class are below this; absent for the last, open class.
    pub below: Option<f64>,
    /// Utterances in it.
    pub utterances: usize,
}

impl CorpusSummary {
    /// The statistics of `manifest`; utterances of unknown duration count as 0 s.
    pub fn of(manifest: &Manifest) -> Self {
        let mut lengths: Vec<f64> =
            manifest.utterances.iter().map(|utterance| utterance.seconds.unwrap_or(0.0)).collect();
        lengths.sort_by(f64::total_cmp);
        let speakers = manifest.speakers();
        let mut counts = vec![0usize; speakers.len()];
        for utterance in &manifest.utterances {
            counts[speakers.label(&utterance.speaker).expect("every speaker is in its own list") as usize] += 1;
        }
        counts.sort_unstable();
        let mut from = 0.0;
        let class = |below: f64| {
            let inside =
                lengths.partition_point(|&length| length < below) - lengths.partition_point(|&length| length < from);
            let class = LengthClass { from, below: below.is_finite().then_some(below), utterances: inside };
            from = below;
            class
        };
        Self {
            speakers: speakers.len(),
            utterances: lengths.len(),
            hours: lengths.iter().sum::<f64>() / 3600.0,
            seconds: spread(&lengths),
            per_speaker: spread(&counts),
            histogram: CLASSES.into_iter().map(class).collect(),
        }
    }
}

/// First, middle and last of sorted values.
fn spread<T: Copy + Default>(sorted: &[T]) -> [T; 3] {
    match sorted {
        [] => [T::default(); 3],
        [first, .., last] => [*first, sorted[sorted.len() / 2], *last],
        [only] => [*only; 3],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_utterance_is_in_exactly_one_class() {
        let text = "path,speaker,seconds\n1,a,0.5\n2,a,1\n3,b,2.99\n4,b,3\n5,b,900\n6,b,60\n";
        let summary = CorpusSummary::of(&Manifest::parse(text.as_bytes(), Path::new("m"), Path::new("/")).unwrap());
        assert_eq!((summary.speakers, summary.utterances, summary.per_speaker), (2, 6, [2, 4, 4]));
        assert_eq!(summary.seconds, [0.5, 3.0, 900.0]);
        let counts: Vec<usize> = summary.histogram.iter().map(|class| class.utterances).collect();
        assert_eq!(counts, [1, 1, 1, 1, 0, 0, 0, 2]);
        assert!((summary.hours - 967.49 / 3600.0).abs() < 1e-9);
    }

    #[test]
    fn an_empty_manifest_has_an_empty_summary() {
        assert_eq!(CorpusSummary::of(&Manifest::default()).utterances, 0);
    }
}
