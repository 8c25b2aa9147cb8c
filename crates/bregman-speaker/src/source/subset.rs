//! A subset of the utterances of any corpus, such as one half of a split.

use std::ops::Range;
use std::sync::Arc;

use crate::Result;
use crate::manifest::Manifest;
use crate::manifest::split::validation_mask;
use crate::source::AudioSource;

/// Selected utterances of another source, in its order.
pub struct Subset {
    source: Arc<dyn AudioSource>,
    manifest: Manifest,
    numbers: Vec<usize>,
}

impl Subset {
    /// The utterances whose number `keep` accepts.
    pub fn new(source: Arc<dyn AudioSource>, keep: impl Fn(usize) -> bool) -> Self {
        let utterances = &source.manifest().utterances;
        let numbers: Vec<usize> = (0..utterances.len()).filter(|&number| keep(number)).collect();
        let manifest = Manifest { utterances: numbers.iter().map(|&number| utterances[number].clone()).collect() };
        Self { source, manifest, numbers }
    }

    /// (training, validation) of any corpus; the same utterances as [`crate::split`] chooses from its manifest.
    pub fn split(source: &Arc<dyn AudioSource>, fraction: f64, seed: u64) -> Result<(Self, Self)> {
        let validation = validation_mask(source.manifest(), fraction, seed)?;
        Ok((
            Self::new(source.clone(), |number| !validation[number]),
            Self::new(source.clone(), |number| validation[number]),
        ))
    }
}

impl AudioSource for Subset {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn append(&self, utterance: usize, range: Range<usize>, out: &mut Vec<f32>) -> Result<()> {
        self.source.append(self.numbers[utterance], range, out)
    }

    fn stated_seconds(&self, utterance: usize) -> Option<f64> {
        self.source.stated_seconds(self.numbers[utterance])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SynthConfig, SynthCorpus, split};

    #[test]
    fn halves_of_a_corpus_equal_the_halves_of_its_manifest_and_keep_their_audio() {
        let config =
            SynthConfig { speakers: 3, utterances: 6, held_out: 0, seconds: [0.2, 0.3], ..SynthConfig::default() };
        let whole: Arc<dyn AudioSource> = Arc::new(SynthCorpus::new(config).unwrap().in_memory().0);
        let (train, valid) = Subset::split(&whole, 0.3, 5).unwrap();
        assert_eq!(split(whole.manifest(), 0.3, 5).unwrap(), (train.manifest().clone(), valid.manifest().clone()));
        for half in [train, valid] {
            for (number, utterance) in half.manifest().utterances.iter().enumerate() {
                let original = whole.manifest().utterances.iter().position(|other| other.id == utterance.id).unwrap();
                assert_eq!(half.whole(number).unwrap(), whole.whole(original).unwrap());
            }
        }
    }
}
