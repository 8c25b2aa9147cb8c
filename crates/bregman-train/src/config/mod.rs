//! An experiment: everything that decides a run, as TOML.
//!
//! ```toml
//! base = "audiomnist/ecapa-adabreg"     # a file, a recipe's name, or a list of them; what stands here wins
//! seed = 1
//!
//! [data]
//! root = "corpora/audiomnist"
//!
//! [method]
//! kind = "adaptive"
//! target = 0.95
//! optimizer = { kind = "adabreg" }
//! ```

mod built_in;
mod compose;
mod data;
mod front_end;
mod method;
mod read;
mod settle;
mod sparsify;
mod train;

use std::path::{Path, PathBuf};

use bregman_network::Architecture;
use serde::{Deserialize, Serialize};

pub use bregman_network::NetworkConfig;
pub use built_in::BuiltIn;
pub use data::{DataConfig, FeatureConfig, FeaturesBy, FrontEndKind, Validation};
pub use front_end::FrontEndChoice;
pub use method::{
    AcDcConfig, AdaptiveConfig, DenseConfig, FixedConfig, GraNetConfig, GradualConfig, MestConfig, MethodConfig,
    OneShotConfig, Period, RigLConfig, RunLength, SetConfig, SnipConfig, StaticConfig, StrConfig,
};
pub(crate) use method::{MaskedRun, SparseStart};
pub use sparsify::{Sparsify, SparsifyBy, ZerosFor};
pub use train::{LossConfig, LrSchedule, Metric, SelectConfig, TrainConfig};

use crate::Result;
use crate::error::require;

/// A whole experiment.
///
/// | section | what it decides |
/// | --- | --- |
/// | `seed` | initial weights, masks, order of the data |
/// | `init` | none: a run or checkpoint whose weights the network starts from |
/// | `teacher` | none: a run or checkpoint whose embeddings the network follows, instead of labels or beside them |
/// | `front_end` | none: that of `init` and `teacher` where they are files of others, see [`FrontEndChoice`] |
/// | `model` | network and its size, see [`NetworkConfig`] |
/// | `data` | corpus, cuts and features, see [`DataConfig`] |
/// | `loss` | scale and margin, see [`LossConfig`] |
/// | `method` | how it becomes sparse, see [`MethodConfig`] |
/// | `train` | epochs, batches, learning rate, checkpoints, see [`TrainConfig`] |
/// | `select` | which epoch is the best, see [`SelectConfig`] |
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Everything random follows from it.
    #[serde(default = "one")]
    pub seed: u64,
    /// A run or checkpoint whose weights the network starts from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<PathBuf>,
    /// A run or checkpoint whose embeddings the network follows, instead of labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teacher: Option<PathBuf>,
    /// What `init` and `teacher` were trained on where they are files of others, which may not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front_end: Option<FrontEndChoice>,
    /// The network.
    #[serde(default)]
    pub model: NetworkConfig,
    /// The corpus.
    pub data: DataConfig,
    /// The loss.
    #[serde(default)]
    pub loss: LossConfig,
    /// The method.
    pub method: MethodConfig,
    /// The loop.
    #[serde(default)]
    pub train: TrainConfig,
    /// The choice of the best epoch.
    #[serde(default)]
    pub select: SelectConfig,
}

fn one() -> u64 {
    1
}

impl Experiment {
    /// Reads a recipe, given as a file or by name (`audiomnist/ecapa-adabreg`), or composes one from several; then
    /// applies `a.b=c` settings in order. `recipes/README.md` tells how parts fit together.
    ///
    /// # Errors
    /// A name, file or setting that cannot be understood, a key that does not exist (the error names the nearest that
    /// does), a value out of range.
    pub fn read(recipes: &[impl AsRef<Path>], settings: &[impl AsRef<str>]) -> Result<Self> {
        let mut experiment = read::Layers::of_tables(compose::layers(recipes)?).experiment(settings)?;
        experiment.settle();
        Ok(experiment)
    }

    /// As [`Experiment::read`], from text without bases: what a run saved. What it does not say stays unsaid.
    ///
    /// # Errors
    /// As [`Experiment::read`].
    pub fn parse(text: &str, origin: &str, settings: &[impl AsRef<str>]) -> Result<Self> {
        read::Layers::of_text(text, origin)?.experiment(settings)
    }

    /// The same experiment; where it names no precision, that of the run it continues.
    pub fn in_precision_of(mut self, saved: &Self) -> Self {
        self.train.precision = self.train.precision.or(saved.train.precision);
        self
    }

    /// The network, for the features of its corpus.
    pub fn architecture(&self) -> Architecture {
        Architecture::new(self.data.features.bins, self.model)
    }

    /// Outputs of the classifier for a corpus of so many speakers; none where a teacher takes the place of labels.
    pub(crate) fn classes(&self, speakers: usize) -> Option<usize> {
        (self.teacher.is_none() || self.loss.distance.is_some()).then_some(speakers)
    }

    /// The learning rate the schedule starts from.
    pub fn base_lr(&self) -> f64 {
        self.train.lr.unwrap_or_else(|| self.method.rule().default_lr())
    }

    /// The resolved experiment as TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("an experiment is plain data")
    }

    fn check(&self) -> Result<()> {
        self.architecture().check().map_err(bregman_nn::Error::from)?;
        self.data.check()?;
        self.loss.check()?;
        self.train.check()?;
        self.method.check(self.train.epochs)?;
        let begins = !self.train.fixed_norms || self.init.is_some();
        require(begins, "train.fixed_norms", true, "false without `init`: there are no statistics to keep")?;
        let followed = self.loss.distance.is_none() || self.teacher.is_some();
        require(followed, "loss.distance", "set", "a `teacher` to be at a distance from")?;
        self.select.check()
    }
}
