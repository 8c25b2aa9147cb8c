//! What turns samples into features: its settings travel in the model file, so that serving computes what training did.

use serde::{Deserialize, Serialize};

/// Settings of a filterbank, as JSON: `bregman_audio::FbankConfig` where the feature `audio` is on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FrontEnd(serde_json::Value);

impl FrontEnd {
    /// The settings.
    pub fn settings(&self) -> &serde_json::Value {
        &self.0
    }
}

#[cfg(feature = "audio")]
pub(crate) use audio::Extractor;

#[cfg(feature = "audio")]
mod audio {
    use bregman_audio::{Fbank, FbankConfig, Features};

    use super::FrontEnd;
    use crate::{Architecture, Error, Result};

    impl From<&FbankConfig> for FrontEnd {
        fn from(config: &FbankConfig) -> Self {
            Self(serde_json::to_value(config).expect("numbers and names are JSON"))
        }
    }

    impl FrontEnd {
        /// The filterbank's settings.
        ///
        /// # Errors
        /// Settings of another front end than this program knows.
        pub fn fbank(&self) -> Result<FbankConfig> {
            serde_json::from_value(self.0.clone()).map_err(|error| Error::FrontEnd(error.to_string()))
        }
    }

    /// Level, filterbank, mean subtraction: what training does to an utterance.
    pub(crate) struct Extractor {
        fbank: Fbank,
        samples: Vec<f32>,
        features: Features,
        /// The fewest samples that it takes.
        shortest: usize,
    }

    impl Extractor {
        pub(crate) fn new(front_end: &FrontEnd, architecture: &Architecture) -> Result<Self> {
            let (config, bins) = (front_end.fbank()?, architecture.features);
            if config.bins != bins {
                return Err(Error::FrontEnd(format!("{} bins for a network of {bins}", config.bins)));
            }
            let window = (f64::from(config.rate) * f64::from(config.window_ms) / 1000.0) as usize;
            let fbank = Fbank::new(config).map_err(|error| Error::FrontEnd(error.to_string()))?;
            let fewest = architecture.fewest_frames();
            let enough = |samples: &usize| fbank.frames(*samples) >= fewest;
            let shortest = (window..).find(enough).expect("frames grow with samples");
            Ok(Self { fbank, samples: Vec::new(), features: Features::default(), shortest })
        }

        /// Samples per second that it wants.
        pub(crate) fn rate(&self) -> u32 {
            self.fbank.config().rate
        }

        /// The fewest samples that it takes: those of one window, or of as many frames as the network needs.
        pub(crate) fn shortest(&self) -> usize {
            self.shortest
        }

        /// Frames × bins.
        pub(crate) fn features(&mut self, samples: &[f32]) -> Result<&[f32]> {
            if samples.len() < self.shortest {
                return Err(Error::TooShort { samples: samples.len(), needed: self.shortest, rate: self.rate() });
            }
            if samples.iter().any(|sample| !sample.is_finite()) {
                return Err(Error::NotFinite);
            }
            self.samples.clear();
            self.samples.extend_from_slice(samples);
            self.fbank.config().prepare(&mut self.samples);
            self.fbank.compute_into(&self.samples, &mut self.features);
            self.features.subtract_mean();
            Ok(&self.features.data)
        }
    }
}
