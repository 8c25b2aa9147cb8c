//! From a trained network to a sparse one, without labels: the experiment of `bregman sparsify`.
//!
//! The network starts from its own weights and follows its own dense embeddings. The duals of a Bregman optimizer that
//! starts so change nothing at the first step (p = θ/δ + λ·∂R(θ)); then the target rises, weights die from the smallest
//! up, and the rest keeps learning. Gradual pruning by magnitude is there to compare with.

use std::path::{Path, PathBuf};

use bregman::{GroupRule, Penalty, Ramp, RampShape};
use bregman_audio::{AugmentConfig, NoiseConfig, ReverbConfig};
use bregman_network::{Architecture, Extent, LayerKind, LayerSpec, Node, Operation};
use bregman_speaker::Progress;
use serde::Serialize;
use toml::{Table, Value};

use super::{Experiment, FeatureConfig, FrontEndChoice, MethodConfig};
use crate::trainer::data::{Data, Division};
use crate::{Deployable, Error, Ranks, Result};

/// What depends neither on the network nor on the corpus nor on the method.
const RECIPE: &str = r#"
[data]
validation = 0.05

[train]
epochs = 10
batch = 64
schedule = { kind = "exponential", warmup = 0.1, last = 0.05 }
clip = 1.0
# a batch of other speech has other statistics than those that the network was trained with: the first step would be far
# from where it begins
fixed_norms = true

[select]
metric = "loss"
"#;

/// λ₀ is small beside the weights, so that θ/δ + λ·∂R(θ) keeps their digits.
const BREGMAN: &str = r#"
kind = "adaptive"
optimizer = { kind = "adabreg" }
lambda = 0.001
initial_sparsity = 0.0
initial_inputs = 1.0
"#;

const MAGNITUDE: &str = r#"
kind = "gradual"
optimizer = { kind = "adamw" }
"#;

/// By what weights are chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SparsifyBy {
    /// Duals, that of a zero weight too, which may come back.
    #[default]
    Bregman,
    /// Their size, along a ramp; what is zero stays zero.
    Magnitude,
}

/// Where the zeros go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ZerosFor {
    /// Wherever they cost least: λ is the same in all layers.
    #[default]
    Size,
    /// More of them where a weight is used at more positions, so that more multiplications go with as many zeros.
    Speed,
}

/// The share of the steps in which the target rises.
const RISE: f64 = 0.6;

/// Frames of the utterance for which zeros make a network fast: 3 s.
const FRAMES: usize = 300;

/// Which network becomes how sparse, on which speech.
#[derive(Debug, Clone)]
pub struct Sparsify {
    /// A run or checkpoint.
    pub network: PathBuf,
    /// The front end of a checkpoint of others, where it is known.
    pub front_end: Option<FrontEndChoice>,
    /// Folder of the corpus.
    pub root: PathBuf,
    /// Manifest or shards in it.
    pub corpus: PathBuf,
    /// The sparsity asked for.
    pub target: f64,
    /// By what weights are chosen.
    pub by: SparsifyBy,
    /// Where the zeros go, if duals choose them; pruning knows no groups.
    pub zeros_for: ZerosFor,
    /// Folders of noises and of rooms to train with.
    pub surroundings: Option<[PathBuf; 2]>,
}

impl Sparsify {
    /// The experiment of so many ranks; `settings` override what is decided here.
    ///
    /// # Errors
    /// A network or corpus that cannot be read, features that a recipe cannot say, a setting that does not exist.
    pub fn experiment(
        &self,
        settings: &[impl AsRef<str>],
        ranks: &Ranks,
        progress: &dyn Progress,
    ) -> Result<Experiment> {
        let network = Deployable::open_with(&self.network, self.front_end)?;
        let unsayable = || Error::checkpoint(&self.network, "it has a front end that no training run can compute");
        let features = FeatureConfig::of(network.features()).ok_or_else(unsayable)?;
        let own = |text: &str| -> Table { toml::from_str(text).expect("the recipe is valid") };
        let mut recipe = own(RECIPE);
        let (lr, method) = match self.by {
            SparsifyBy::Bregman => (0.003, BREGMAN),
            SparsifyBy::Magnitude => (0.001, MAGNITUDE),
        };
        table(&mut recipe, "train").insert("lr".to_owned(), Value::Float(lr));
        recipe.insert("method".to_owned(), Value::Table(own(method)));
        let path = |path: &Path| Value::String(path.display().to_string());
        recipe.insert("init".to_owned(), path(&self.network));
        recipe.insert("teacher".to_owned(), path(&self.network));
        if let Some(front_end) = self.front_end {
            recipe.insert("front_end".to_owned(), Value::String(front_end.to_string()));
        }
        recipe.insert("model".to_owned(), plain(&network.architecture().network));
        let data = table(&mut recipe, "data");
        data.insert("root".to_owned(), path(&self.root));
        data.insert("train".to_owned(), path(&self.corpus));
        data.insert("features".to_owned(), plain(&features));
        if let Some([noises, rooms]) = &self.surroundings {
            let noise = NoiseConfig { folder: noises.clone(), snr_db: [5.0, 20.0], probability: 0.5 };
            let reverb = ReverbConfig { folder: rooms.clone(), probability: 0.3 };
            let augment = AugmentConfig { noise: Some(noise), reverb: Some(reverb), ..AugmentConfig::default() };
            data.insert("augment".to_owned(), plain(&augment));
        }
        table(&mut recipe, "method").insert("target".to_owned(), Value::Float(self.target));
        let text = toml::to_string(&recipe).expect("a table is TOML");
        let mut experiment = Experiment::parse(&text, "sparsify", settings)?;
        let data = Data::open(&experiment, &Division::of(ranks), progress)?;
        let steps = data.train.batches_per_epoch() * experiment.train.epochs;
        let architecture = experiment.architecture();
        let rising = |of: u64| ((RISE * of as f64) as u64).max(1);
        match &mut experiment.method {
            MethodConfig::Adaptive(method) => {
                let end = rising(steps);
                method.ramp.get_or_insert(Ramp { shape: RampShape::Cubic, from: 0.0, begin: 0, end });
                if self.zeros_for == ZerosFor::Speed {
                    method.groups.extend(rules_for_speed(&architecture, method.penalty));
                }
            }
            MethodConfig::Gradual(method) if !settings.iter().any(|set| set.as_ref().starts_with("method.epochs")) => {
                method.epochs = rising(experiment.train.epochs);
            }
            _ => {}
        }
        Ok(experiment)
    }
}

/// λ of each layer grows with the root of how often one of its weights is used. In proportion to it even fewer
/// multiplications would be left, but hardly a weight in the first layers, which all others read. On average over all
/// weights ln a is 0, so that λ starts where it does without these rules.
fn rules_for_speed(architecture: &Architecture, penalty: Penalty) -> Vec<GroupRule> {
    let graph = architecture.graph();
    let uses = |(node, extent): (&Node, Extent)| match &node.operation {
        Operation::Layer(layer) => Some((layer.clone(), 0.5 * (extent.positions(FRAMES) as f64).ln())),
        _ => None,
    };
    let layers: Vec<(LayerSpec, f64)> = graph.nodes().iter().zip(graph.extents()).filter_map(uses).collect();
    let weights: usize = layers.iter().map(|(layer, _)| layer.weights()).sum();
    let mean = layers.iter().map(|(layer, ln)| layer.weights() as f64 * ln).sum::<f64>() / weights as f64;
    let rule = |(layer, ln): (LayerSpec, f64)| GroupRule {
        pattern: Some(format!("{}.weight", layer.name)),
        penalty: if layer.kind == LayerKind::Linear { Penalty::L1 } else { penalty },
        lambda_scale: (ln - mean).exp(),
        ..GroupRule::default()
    };
    layers.into_iter().map(rule).collect()
}

fn plain(settings: &impl Serialize) -> Value {
    Value::try_from(settings).expect("settings are plain data")
}

fn table<'a>(recipe: &'a mut Table, name: &str) -> &'a mut Table {
    recipe.get_mut(name).and_then(Value::as_table_mut).expect("the recipe has this table")
}
