//! Which corpus, and how it becomes training examples.

use std::path::{Path, PathBuf};

use bregman_audio::{AugmentConfig, FbankConfig, FilterbankKind, Waveform, Window};
use bregman_speaker::{CutConfig, Order};
use bregman_tensor::FilterbankTables;
use serde::{Deserialize, Serialize};

use crate::error::require;
use crate::{Error, Result};

/// The corpus.
///
/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `root` | – | folder of the corpus; relative to the current folder |
/// | `train` | train.csv | manifest or folder of shards in it |
/// | `validation` | 0.1 | share of each speaker's utterances, or a manifest of training speakers |
/// | `seconds` | 3 | length of a cut |
/// | `join_seconds` | 0 (off) | clips of one speaker and genre are joined to more than this |
/// | `features` | Kaldi's, 80 bins | the filterbank |
/// | `features_by` | loader | the `loader`'s threads or the `device` that trains; not with masks or a cache |
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
    /// Who computes the features.
    #[serde(default)]
    pub features_by: FeaturesBy,
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
/// | `front_end` | kaldi | Kaldi's, as in WeSpeaker, or `speechbrain`, the paper's |
/// | `bins` | 80 | mel bins |
/// | `window` | hamming | with `kaldi`: or `povey`, Kaldi's own |
/// | `waveform` | leveled | or as decoded: `sixteen`, × 32768 (WeSpeaker); `decoded`, ±1 (3D-Speaker, SpeechBrain) |
/// | `n_fft` | 512 | with `speechbrain`: points of its transform; 400 for networks of SpeechBrain |
/// | `dither` | 0 | with `kaldi`: noise on each frame in training, in steps of 16-bit audio; WeSpeaker's is 1 |
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FeatureConfig {
    /// Whose definition.
    pub front_end: FrontEndKind,
    /// Mel bins.
    pub bins: usize,
    /// Shape of the window of Kaldi's filterbank.
    pub window: Window,
    /// What is done to the samples first.
    pub waveform: Waveform,
    /// Points of the transform of SpeechBrain's filterbank.
    pub n_fft: usize,
    /// Noise on each frame in training.
    pub dither: f32,
}

/// Points of the transform, but where a network asks for others.
const N_FFT: usize = 512;

impl Default for FeatureConfig {
    fn default() -> Self {
        Self {
            front_end: FrontEndKind::default(),
            bins: 80,
            window: Window::Hamming,
            waveform: Waveform::Leveled,
            n_fft: N_FFT,
            dither: 0.0,
        }
    }
}

/// Whose filterbank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FrontEndKind {
    /// SpeechBrain's, the paper's.
    SpeechBrain,
    /// Kaldi's, with a Hamming window WeSpeaker's: as good on many speakers, better in short runs on few
    /// (`docs/results.md`).
    #[default]
    Kaldi,
}

/// Who computes the features of training and validation; the same ones but for rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeaturesBy {
    /// The loader's threads.
    #[default]
    Loader,
    /// The device that trains, from samples. Made for GPUs; a CPU is slower this way.
    Device,
}

impl FeatureConfig {
    /// The settings of the filterbank that validation and embeddings use: without dither, so that a recording always
    /// has the same embedding.
    pub fn fbank(&self) -> FbankConfig {
        let base = match self.front_end {
            FrontEndKind::SpeechBrain => {
                let mut base = FbankConfig::speechbrain();
                if let FilterbankKind::SpeechBrain { n_fft, .. } = &mut base.front_end {
                    *n_fft = self.n_fft;
                }
                base
            }
            FrontEndKind::Kaldi => FbankConfig::kaldi(self.window),
        };
        FbankConfig { bins: self.bins, waveform: self.waveform, ..base }
    }

    /// The settings that make this filterbank; none where a recipe cannot say it.
    pub fn of(fbank: &FbankConfig) -> Option<Self> {
        let (front_end, window, n_fft) = match fbank.front_end {
            FilterbankKind::SpeechBrain { n_fft, .. } => (FrontEndKind::SpeechBrain, Window::Hamming, n_fft),
            FilterbankKind::Kaldi { window, .. } => (FrontEndKind::Kaldi, window, N_FFT),
        };
        let config = Self { front_end, bins: fbank.bins, window, waveform: fbank.waveform, n_fft, dither: 0.0 };
        (config.fbank() == *fbank).then_some(config)
    }

    /// The settings of the filterbank that training uses.
    fn training_fbank(&self) -> FbankConfig {
        let mut config = self.fbank();
        if let FilterbankKind::Kaldi { dither, .. } = &mut config.front_end {
            *dither = self.dither;
        }
        config
    }

    pub(super) fn check(&self) -> Result<()> {
        let kaldi = "its default with front_end = \"speechbrain\"; only the kaldi front end has it";
        let is_kaldi = self.front_end == FrontEndKind::Kaldi;
        require(is_kaldi || self.window == Window::Hamming, "data.features.window", "povey", kaldi)?;
        require(is_kaldi || self.dither == 0.0, "data.features.dither", self.dither, kaldi)?;
        let speechbrain = "its default with front_end = \"kaldi\"; only the speechbrain front end has it";
        require(!is_kaldi || self.n_fft == N_FFT, "data.features.n_fft", self.n_fft, speechbrain)?;
        let points = "even, from the 400 samples of a window to 65536";
        let fits = self.n_fft.is_multiple_of(2) && (400..=65536).contains(&self.n_fft);
        require(fits, "data.features.n_fft", self.n_fft, points)?;
        let finite = self.dither >= 0.0 && self.dither.is_finite();
        require(finite, "data.features.dither", self.dither, "a number ≥ 0")
    }

    /// Its numbers for a device that computes features itself.
    ///
    /// # Errors
    /// More bins than the transform has.
    pub fn tables(&self) -> Result<FilterbankTables> {
        let refused = |error: bregman_audio::Error| Error::Setting {
            field: "data.features",
            value: error.to_string(),
            expected: "settings of a filterbank".to_owned(),
        };
        self.fbank().products().map_err(refused)
    }
}

impl DataConfig {
    /// How training audio is cut.
    pub fn cuts(&self) -> CutConfig {
        CutConfig { features: self.features.training_fbank(), augment: self.augment.clone(), ..self.validation_cuts() }
    }

    /// How validation audio is cut: as training audio, without augmentation and dither.
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
        self.features.check()?;
        let fixed = "0 with data.cache: noise that changes with every use cannot be kept";
        require(
            self.cache.is_none() || self.features.dither == 0.0,
            "data.features.dither",
            self.features.dither,
            fixed,
        )?;
        if self.features_by == FeaturesBy::Device {
            let dither = "0 where data.features_by = \"device\"";
            require(self.features.dither == 0.0, "data.features.dither", self.features.dither, dither)?;
            let loaders =
                "nothing where data.features_by = \"device\": the loader has no features then; leave one of them out";
            require(
                self.cache.is_none(),
                "data.cache",
                self.cache.as_deref().unwrap_or(Path::new("")).display(),
                loaders,
            )?;
            require(self.augment.mask.is_none(), "data.augment.mask", "set", loaders)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(settings: &str) -> Result<DataConfig> {
        let data: DataConfig = toml::from_str(&format!("root = \"voices\"\n{settings}")).unwrap();
        data.check().map(|()| data)
    }

    #[test]
    fn the_filterbank_of_a_checkpoint_is_settings_of_a_recipe_or_refused() {
        let speaker = FbankConfig { bins: 40, ..FbankConfig::three_d_speaker() };
        for fbank in [
            FbankConfig::speechbrain(),
            FbankConfig::speechbrain_published(),
            FbankConfig::kaldi(Window::Hamming),
            FbankConfig::wespeaker(),
            speaker.clone(),
        ] {
            assert_eq!(FeatureConfig::of(&fbank).unwrap().fbank(), fbank);
        }
        assert_eq!(FeatureConfig::of(&FbankConfig { hop_ms: 12.0, ..speaker }), None);
    }

    #[test]
    fn a_recipe_chooses_the_window_and_the_dither_of_training_alone() {
        let data = parsed("features = { front_end = \"kaldi\", window = \"povey\", dither = 1.0 }").unwrap();
        let kaldi = |dither| FilterbankKind::Kaldi { window: Window::Povey, preemphasis: 0.97, dither };
        assert_eq!(data.cuts().features.front_end, kaldi(1.0));
        assert_eq!(data.validation_cuts().features.front_end, kaldi(0.0), "an embedding must not depend on a seed");
        assert_eq!(data.features.fbank().front_end, kaldi(0.0));
        for (settings, expected) in [
            ("features = { front_end = \"speechbrain\", window = \"povey\" }", "window = povey"),
            ("features = { front_end = \"speechbrain\", dither = 1.0 }", "dither = 1"),
            ("features = { n_fft = 400 }", "n_fft = 400"),
            ("features = { front_end = \"speechbrain\", n_fft = 401 }", "n_fft = 401"),
            ("features = { front_end = \"kaldi\", dither = -1.0 }", "dither = -1"),
            ("cache = \"c\"\nfeatures = { front_end = \"kaldi\", dither = 1.0 }", "0 with data.cache"),
            ("features_by = \"device\"\nfeatures = { front_end = \"kaldi\", dither = 1.0 }", "features_by"),
        ] {
            let message = parsed(settings).unwrap_err().to_string();
            assert!(message.contains(expected), "{settings}: {message}");
        }
    }
}
