//! From samples to the input of a network, the same for training and evaluation: level, filterbank, mean subtraction.

use bregman_audio::{Fbank, FbankConfig, Features};

use crate::{Error, Result};

/// Computes features. It owns buffers, so each thread needs its own.
pub struct Extractor {
    fbank: Fbank,
    features: Features,
}

impl Extractor {
    /// Checks the settings.
    pub fn new(config: &FbankConfig) -> Result<Self> {
        Ok(Self { fbank: Fbank::new(config.clone()).map_err(Error::front_end)?, features: Features::default() })
    }

    /// Number of frames of `samples` samples.
    pub fn frames(&self, samples: usize) -> usize {
        self.fbank.frames(samples)
    }

    /// Features of 16 kHz samples, which are prepared in place. `seed` matters only for front ends with dither.
    pub fn extract(&mut self, samples: &mut [f32], seed: u64) -> &mut Features {
        self.fbank.config().prepare(samples);
        self.fbank.reseed(seed);
        self.fbank.compute_into(samples, &mut self.features);
        self.features.subtract_mean();
        &mut self.features
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AudioSource, CutConfig, CutSource, Cuts, MemoryCorpus, SynthConfig, SynthCorpus, Waveforms};
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
        assert_eq!(extractor.extract(&mut source.whole(1).unwrap(), 0).data, trained);
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
}
