//! The front end of a checkpoint that another toolkit wrote. It belongs to the checkpoint and not to the network:
//! WeSpeaker and 3D-Speaker train the same CAM++ on different features.

use std::fmt;
use std::str::FromStr;

use bregman_audio::FbankConfig;
use serde::{Deserialize, Serialize};

use super::FeatureConfig;
use crate::{Error, Result};

/// What a foreign checkpoint was trained on. All take the mean of each bin off and use no dither for embeddings.
///
/// | as text | filterbank | samples |
/// | --- | --- | --- |
/// | `wespeaker`, `pyannote` | Kaldi's, Hamming window | × 32768, not levelled |
/// | `3d-speaker` | Kaldi's, Povey window | in ±1, not levelled |
/// | `speechbrain` | SpeechBrain's, a transform of 400 points | in ±1, not levelled |
/// | JSON: `{"window": "povey"}` | settings of [`FeatureConfig`]; `{}` is what our recipes train on | as they say |
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum FrontEndChoice {
    /// WeSpeaker's; pyannote keeps it for the networks that it wraps.
    WeSpeaker,
    /// 3D-Speaker's.
    ThreeDSpeaker,
    /// That of the networks SpeechBrain published.
    SpeechBrain,
    /// That of a recipe.
    Features(FeatureConfig),
}

impl FrontEndChoice {
    /// The filterbank for a network that reads so many bins.
    ///
    /// # Errors
    /// Settings with another number of bins.
    pub fn fbank(&self, bins: usize) -> Result<FbankConfig> {
        let named = match self {
            Self::WeSpeaker => FbankConfig::wespeaker(),
            Self::ThreeDSpeaker => FbankConfig::three_d_speaker(),
            Self::SpeechBrain => FbankConfig::speechbrain_published(),
            Self::Features(features) if features.bins == bins => return Ok(features.fbank()),
            Self::Features(features) => {
                return Err(refused(features.bins, format!("\"bins\": {bins}, as the network")));
            }
        };
        Ok(FbankConfig { bins, ..named })
    }
}

fn refused(value: impl ToString, expected: impl Into<String>) -> Error {
    Error::Setting { field: "front_end", value: value.to_string(), expected: expected.into() }
}

impl FromStr for FrontEndChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "wespeaker" | "pyannote" => Ok(Self::WeSpeaker),
            "3d-speaker" => Ok(Self::ThreeDSpeaker),
            "speechbrain" => Ok(Self::SpeechBrain),
            json if json.trim_start().starts_with('{') => {
                let settings =
                    |problem: serde_json::Error| refused(text, format!("settings of data.features: {problem}"));
                let features: FeatureConfig = serde_json::from_str(json).map_err(settings)?;
                features.check()?;
                Ok(Self::Features(features))
            }
            _ => {
                Err(refused(text, "wespeaker, 3d-speaker, pyannote, speechbrain, or settings of data.features as JSON"))
            }
        }
    }
}

impl fmt::Display for FrontEndChoice {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::WeSpeaker => f.write_str("wespeaker"),
            Self::ThreeDSpeaker => f.write_str("3d-speaker"),
            Self::SpeechBrain => f.write_str("speechbrain"),
            Self::Features(features) => f.write_str(&serde_json::to_string(features).expect("settings are plain data")),
        }
    }
}

impl TryFrom<String> for FrontEndChoice {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<FrontEndChoice> for String {
    fn from(choice: FrontEndChoice) -> Self {
        choice.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bregman_audio::{Waveform, Window};

    #[test]
    fn every_choice_is_read_back_from_its_text() {
        let features = FeatureConfig { window: Window::Povey, waveform: Waveform::Sixteen, ..FeatureConfig::default() };
        for choice in [
            FrontEndChoice::WeSpeaker,
            FrontEndChoice::ThreeDSpeaker,
            FrontEndChoice::SpeechBrain,
            FrontEndChoice::Features(features),
        ] {
            assert_eq!(choice.to_string().parse::<FrontEndChoice>().unwrap(), choice);
        }
        assert_eq!("pyannote".parse::<FrontEndChoice>().unwrap(), FrontEndChoice::WeSpeaker);
        let ours: FrontEndChoice = "{}".parse().unwrap();
        assert_eq!(ours.fbank(80).unwrap(), FeatureConfig::default().fbank());
    }

    #[test]
    fn mistakes_are_errors_that_name_what_is_known() {
        let fail = |text: &str| text.parse::<FrontEndChoice>().unwrap_err().to_string();
        assert!(fail("kaldi").contains("front_end = kaldi: expected wespeaker, 3d-speaker"));
        assert!(fail(r#"{"windows": "povey"}"#).contains("unknown field `windows`"));
        assert!(fail(r#"{"n_fft": 400}"#).contains("data.features.n_fft"));
        let other_bins = FrontEndChoice::Features(FeatureConfig::default()).fbank(40).unwrap_err().to_string();
        assert!(other_bins.contains("front_end = 80") && other_bins.contains("\"bins\": 40"), "{other_bins}");
        assert_eq!(FrontEndChoice::WeSpeaker.fbank(40).unwrap().bins, 40);
    }
}
