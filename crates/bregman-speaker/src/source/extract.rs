//! The one way from samples to what a network sees, for training and evaluation alike: level, filterbank, mean
//! subtraction.

use bregman_audio::{Fbank, FbankConfig, Features, RATE, level};

use crate::source::AudioSource;
use crate::{Error, Result};

/// Computes features; has buffers, so make one per thread.
pub struct Extractor {
    fbank: Fbank,
    features: Features,
}

impl Extractor {
    /// Checks the settings.
    pub fn new(config: &FbankConfig) -> Result<Self> {
        Ok(Self { fbank: Fbank::new(config.clone()).map_err(Error::front_end)?, features: Features::default() })
    }

    /// Frames that `samples` samples give.
    pub fn frames(&self, samples: usize) -> usize {
        self.fbank.frames(samples)
    }

    /// Features of 16 kHz samples, which are levelled in place. `seed` matters only to a front end with dither.
    pub fn extract(&mut self, samples: &mut [f32], seed: u64) -> &mut Features {
        level(samples);
        self.fbank.reseed(seed);
        self.fbank.compute_into(samples, &mut self.features);
        self.features.subtract_mean();
        &mut self.features
    }

    /// Features of a whole utterance, or of its first `max_seconds`: what an embedding is computed from.
    pub fn utterance(&mut self, source: &dyn AudioSource, utterance: usize, max_seconds: f64) -> Result<&Features> {
        let mut samples = Vec::new();
        let end = (max_seconds * f64::from(RATE)).min(usize::MAX as f64) as usize;
        source.append(utterance, 0..end, &mut samples)?;
        let id = || source.manifest().utterances[utterance].path.display().to_string();
        if self.frames(samples.len()) == 0 {
            let problem = format!("{} samples at 16 kHz are shorter than one frame", samples.len());
            return Err(Error::Unreadable { utterance: id(), problem });
        }
        Ok(self.extract(&mut samples, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CutConfig, CutSource, Cuts, MemoryCorpus, SynthConfig, SynthCorpus, Waveforms};
    use bregman_audio::{AugmentConfig, MaskConfig};
    use std::sync::Arc;

    fn corpus(seconds: f64) -> MemoryCorpus {
        let config =
            SynthConfig { speakers: 2, utterances: 1, held_out: 0, seconds: [seconds; 2], ..SynthConfig::default() };
        SynthCorpus::new(config).unwrap().in_memory().0
    }

    #[test]
    fn training_and_evaluation_see_the_same_features() {
        let source = Arc::new(corpus(3.0));
        let config = CutConfig::default();
        let mut extractor = Extractor::new(&config.features).unwrap();
        let cuts = Cuts::new(source.clone(), &source.manifest().speakers(), config).unwrap();
        let mut trained = vec![0.0; cuts.shape().iter().product()];
        cuts.reader().read(1, 7, &mut trained).unwrap();
        assert_eq!(extractor.utterance(&*source, 1, f64::INFINITY).unwrap().data, trained);
    }

    #[test]
    fn waveforms_are_what_the_features_of_a_cut_are_computed_from() {
        let source = Arc::new(corpus(3.0));
        let cuts = |augment| {
            Cuts::new(source.clone(), &source.manifest().speakers(), CutConfig { augment, ..CutConfig::default() })
                .unwrap()
        };
        let plain = cuts(AugmentConfig::default());
        let mut features = vec![0.0; plain.shape().iter().product()];
        let label = plain.reader().read(1, 7, &mut features).unwrap();
        let waveforms = Waveforms::new(cuts(AugmentConfig::default())).unwrap();
        let mut samples = vec![0.0; waveforms.shape().iter().product()];
        assert_eq!(waveforms.reader().read(1, 7, &mut samples).unwrap(), label);
        assert_eq!(
            (waveforms.labels(), waveforms.classes(), waveforms.name(1)),
            (plain.labels(), plain.classes(), plain.name(1))
        );
        let mut computed = Fbank::new(FbankConfig::speechbrain()).unwrap().compute(&samples);
        computed.subtract_mean();
        assert_eq!(computed.data, features);
        let masked = AugmentConfig { mask: Some(MaskConfig::default()), ..AugmentConfig::default() };
        assert!(matches!(Waveforms::new(cuts(masked)), Err(Error::Setting { field: "augment.mask", .. })));
    }

    #[test]
    fn long_utterances_are_limited_and_empty_ones_refused() {
        let source = corpus(2.0);
        let mut extractor = Extractor::new(&FbankConfig::speechbrain()).unwrap();
        assert_eq!(extractor.utterance(&source, 0, 1.0).unwrap().frames, 101);
        assert!(matches!(extractor.utterance(&source, 0, 0.0), Err(Error::Unreadable { .. })));
    }
}
