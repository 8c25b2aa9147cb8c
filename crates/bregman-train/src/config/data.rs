//! Which corpus, and how it becomes training examples.

use std::path::{Path, PathBuf};

use bregman_audio::{AugmentConfig, FbankConfig, Window};
use bregman_speaker::{CutConfig, Order};
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::error::require;

/// The corpus.
///
/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `root` | – | folder of the corpus; relative to the current folder |
/// | `train` | train.csv | manifest or folder of shards in it |
/// | `validation` | 0.1 | share of each speaker's utterances, or a manifest of training speakers |
/// | `seconds` | 3 | length of a cut |
/// | `join_seconds` | 0 (off) | clips of one speaker and genre are joined to more than this |
/// | `features` | SpeechBrain, 80 bins | the filterbank |
/// | `augment` | nothing | noise, rooms, speeds, masks |
/// | `order` | shuffled | or `balanced` over speakers |
/// | `cache` | none | folder for features computed once (48 kB per cut); not with augmentation |
/// | `strict` | false | stop at the first unreadable file |
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// Folder of the corpus.
    pub root: PathBuf,
    /// Training manifest or shards, in `root`.
    #[serde(default = "train_csv")]
    pub train: PathBuf,
    /// What validates.
    #[serde(default)]
    pub validation: Validation,
    /// Length of a cut.
    #[serde(default = "three")]
    pub seconds: f64,
    /// Join clips to more than this.
    #[serde(default)]
    pub join_seconds: f64,
    /// The filterbank.
    #[serde(default)]
    pub features: FeatureConfig,
    /// Augmentation of training audio.
    #[serde(default)]
    pub augment: AugmentConfig,
    /// Order of an epoch.
    #[serde(default)]
    pub order: Order,
    /// Folder of feature caches.
    #[serde(default)]
    pub cache: Option<PathBuf>,
    /// Stop at the first unreadable file.
    #[serde(default)]
    pub strict: bool,
}

fn train_csv() -> PathBuf {
    "train.csv".into()
}

fn three() -> f64 {
    3.0
}

/// What validates: a share of the training utterances, or a manifest of their speakers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Validation {
    /// Share of each speaker's utterances, taken out of training.
    Share(f64),
    /// Manifest or shards, in `root`.
    Corpus(PathBuf),
}

impl Default for Validation {
    fn default() -> Self {
        Self::Share(0.1)
    }
}

/// The filterbank.
///
/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `front_end` | speechbrain | the paper's, or `kaldi` (WeSpeaker's) |
/// | `bins` | 80 | mel bins |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FeatureConfig {
    /// Whose definition.
    pub front_end: FrontEndKind,
    /// Mel bins.
    pub bins: usize,
}

impl Default for FeatureConfig {
    fn default() -> Self {
        Self { front_end: FrontEndKind::default(), bins: 80 }
    }
}

/// Whose filterbank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FrontEndKind {
    /// SpeechBrain's, the paper's.
    #[default]
    SpeechBrain,
    /// Kaldi's with a Hamming window, WeSpeaker's.
    Kaldi,
}

impl FeatureConfig {
    /// The settings of the filterbank.
    pub fn fbank(&self) -> FbankConfig {
        let base = match self.front_end {
            FrontEndKind::SpeechBrain => FbankConfig::speechbrain(),
            FrontEndKind::Kaldi => FbankConfig::kaldi(Window::Hamming),
        };
        FbankConfig { bins: self.bins, ..base }
    }
}

impl DataConfig {
    /// How training audio is cut.
    pub fn cuts(&self) -> CutConfig {
        CutConfig { augment: self.augment.clone(), ..self.validation_cuts() }
    }

    /// How validation audio is cut: as training audio, without augmentation.
    pub fn validation_cuts(&self) -> CutConfig {
        CutConfig {
            seconds: self.seconds,
            join_seconds: self.join_seconds,
            features: self.features.fbank(),
            augment: AugmentConfig::default(),
        }
    }

    /// A path of the corpus.
    pub(crate) fn path(&self, name: &Path) -> PathBuf {
        self.root.join(name)
    }

    pub(super) fn check(&self) -> Result<()> {
        if let Validation::Share(share) = self.validation {
            require((0.0..1.0).contains(&share), "data.validation", share, "a share in [0, 1), or a manifest")?;
        }
        Ok(())
    }
}
