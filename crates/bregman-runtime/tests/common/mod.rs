//! Golden models and random ones, in the training engine and as model files.
#![allow(dead_code, reason = "each test file uses its own part of this module")]

use bregman_audio::FbankConfig;
use bregman_nn::{
    CampPlusConfig, Checkpoint, EcapaConfig, Input, ResNetConfig, Rng, SpeechBrainEcapaConfig, TrainableModel, Values,
};
use bregman_runtime::{Architecture, FrontEnd, ModelFile};
use bregman_tensor::Cpu;
use serde_json::Value;

/// A network in both worlds.
pub(crate) struct Pair {
    pub(crate) name: String,
    pub(crate) engine: TrainableModel<Cpu>,
    pub(crate) file: ModelFile,
}

/// The network that a golden json describes.
pub(crate) fn architecture(case: &Value) -> Architecture {
    let constructor = &case["constructor"];
    let number = |key: &str| constructor[key].as_u64().unwrap_or_else(|| panic!("no {key} in {constructor}")) as usize;
    let kind = case["kind"].as_str().unwrap();
    if kind == "speechbrain-ecapa" {
        let [channels, pooled] = [0, 4].map(|at| constructor["channels"][at].as_u64().unwrap() as usize);
        return speechbrain(channels, pooled, number("input_size"), number("lin_neurons"), true);
    }
    let features = number("feat_dim");
    let embedding = number(if kind == "campplus" { "embedding_size" } else { "embed_dim" });
    match kind {
        "ecapa" => ecapa(number("channels"), features, embedding, constructor["global_context_att"].as_bool().unwrap()),
        "resnet" => {
            let blocks: Vec<usize> =
                constructor["num_blocks"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
            resnet(blocks.try_into().unwrap(), number("m_channels"), features, embedding)
        }
        "campplus" => Architecture::new(
            features,
            CampPlusConfig {
                head: case["m_channels"].as_u64().unwrap() as usize,
                channels: number("init_channels"),
                growth: number("growth_rate"),
                bottleneck: number("bn_size"),
                embedding,
            },
        ),
        other => panic!("unknown kind {other}"),
    }
}

pub(crate) fn ecapa(channels: usize, features: usize, embedding: usize, global_context: bool) -> Architecture {
    Architecture::new(features, EcapaConfig { channels, embedding, global_context })
}

pub(crate) fn speechbrain(
    channels: usize,
    pooled: usize,
    features: usize,
    embedding: usize,
    global_context: bool,
) -> Architecture {
    Architecture::new(features, SpeechBrainEcapaConfig { channels, pooled, embedding, global_context })
}

pub(crate) fn resnet(blocks: [usize; 4], channels: usize, features: usize, embedding: usize) -> Architecture {
    Architecture::new(features, ResNetConfig { blocks, channels, embedding })
}

/// A narrow CAM++.
pub(crate) fn campplus(growth: usize, features: usize, embedding: usize) -> Architecture {
    let config = CampPlusConfig { head: growth, channels: 2 * growth + 1, growth, bottleneck: 2, embedding };
    Architecture::new(features, config)
}

/// Every golden model with its own weights.
pub(crate) fn golden() -> Vec<(Pair, Value)> {
    let load = |name: String| {
        let case = bregman_golden::json(&format!("{name}_expected"));
        let weights = Checkpoint::read(&bregman_golden::file(&format!("{name}.safetensors"))).unwrap();
        (pair(&name, architecture(&case), weights), case)
    };
    bregman_golden::models().into_iter().map(load).collect()
}

pub(crate) fn front_end(bins: usize) -> FrontEnd {
    FrontEnd::from(&FbankConfig { bins, ..FbankConfig::speechbrain() })
}

pub(crate) fn pair(name: &str, architecture: Architecture, weights: Checkpoint) -> Pair {
    let mut engine = TrainableModel::new(Cpu::new(), &architecture, None, 0).unwrap();
    engine.load(&weights).unwrap();
    let front_end = front_end(architecture.features);
    let tensor = |name: &str| match weights.tensors.get(name).map(|array| (&array.shape, &array.values)) {
        Some((shape, Values::F32(values))) => Some((shape.as_slice(), values.as_slice())),
        _ => None,
    };
    let file = ModelFile::from_state(architecture, front_end, tensor).unwrap();
    Pair { name: name.to_owned(), engine, file }
}

/// A network with random weights, some of them zero, and random norms.
pub(crate) fn random(architecture: Architecture, sparsity: f32, seed: u64) -> Pair {
    let model = TrainableModel::new(Cpu::new(), &architecture, None, seed).unwrap();
    let mut state = model.state().unwrap();
    let mut rng = Rng::new(seed);
    let mut uniform = || 0.5 * (1.0 + rng.symmetric(1.0));
    for (name, array) in &mut state.tensors {
        let Values::F32(values) = &mut array.values else { continue };
        if array.shape.len() > 1 {
            // as large in sum as without zeros
            let scale = (1.0 - sparsity).max(1e-3).sqrt().recip();
            values.iter_mut().for_each(|value| *value = if uniform() < sparsity { 0.0 } else { *value * scale });
        } else if name.ends_with("running_var") {
            values.iter_mut().for_each(|value| *value = 0.2 + uniform());
        } else {
            values.iter_mut().for_each(|value| *value += uniform() - 0.5);
        }
    }
    pair(&format!("{:?} at {sparsity}", architecture), architecture, state)
}

impl Pair {
    /// The training engine's embedding of `features`.
    pub(crate) fn expected(&mut self, features: &[f32]) -> Vec<f32> {
        let frames = features.len() / self.engine.features();
        self.engine.embed(Input { values: features, batch: 1, frames }).unwrap()
    }
}

/// Features that look like mean-subtracted filterbanks.
pub(crate) fn features(frames: usize, bins: usize, seed: u64) -> Vec<f32> {
    let mut rng = Rng::new(seed);
    (0..frames * bins).map(|_| rng.symmetric(3.0)).collect()
}

/// 1 − cosine.
pub(crate) fn distance(a: &[f32], b: &[f32]) -> f64 {
    assert!(a.len() == b.len() && a.iter().chain(b).all(|value| value.is_finite()), "lengths differ or not finite");
    1.0 - bregman_runtime::cosine(a, b)
}
