//! Golden numbers of the reference implementations: where they are, and how they are read.
#![allow(dead_code, reason = "each test file uses its own part of this module")]

pub(crate) use bregman_golden::{file, json};
use bregman_nn::{
    Architecture, CampPlusConfig, Checkpoint, EcapaConfig, Input, ResNetConfig, SpeechBrainEcapaConfig, TrainableModel,
    Values,
};
use bregman_tensor::Backend;
use serde_json::Value;

pub(crate) fn tensors(name: &str) -> Checkpoint {
    Checkpoint::read(&file(&format!("{name}.safetensors"))).unwrap()
}

pub(crate) trait Floats {
    fn floats(&self, name: &str) -> &[f32];
}

impl Floats for Checkpoint {
    fn floats(&self, name: &str) -> &[f32] {
        match &self.tensors.get(name).unwrap_or_else(|| panic!("no tensor {name}")).values {
            Values::F32(values) => values,
            Values::I64(_) => panic!("{name} is not floating point"),
        }
    }
}

fn number(value: &Value, key: &str) -> usize {
    value[key].as_u64().unwrap_or_else(|| panic!("no {key} in {value}")) as usize
}

/// The network that a golden json describes.
pub(crate) fn architecture(case: &Value) -> Architecture {
    let constructor = &case["constructor"];
    let kind = case["kind"].as_str().unwrap();
    if kind == "speechbrain-ecapa" {
        let channels = |at: usize| constructor["channels"][at].as_u64().unwrap() as usize;
        let config = SpeechBrainEcapaConfig {
            channels: channels(0),
            pooled: channels(4),
            embedding: number(constructor, "lin_neurons"),
            global_context: true,
        };
        return Architecture::new(number(constructor, "input_size"), config);
    }
    let features = number(constructor, "feat_dim");
    let embedding = number(constructor, if kind == "campplus" { "embedding_size" } else { "embed_dim" });
    match kind {
        "ecapa" => Architecture::new(
            features,
            EcapaConfig {
                channels: number(constructor, "channels"),
                embedding,
                global_context: constructor["global_context_att"].as_bool().unwrap(),
            },
        ),
        "resnet" => {
            let blocks: Vec<usize> =
                constructor["num_blocks"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
            let blocks = blocks.try_into().unwrap();
            Architecture::new(features, ResNetConfig { blocks, channels: number(constructor, "m_channels"), embedding })
        }
        "campplus" => Architecture::new(
            features,
            CampPlusConfig {
                head: number(case, "m_channels"),
                channels: number(constructor, "init_channels"),
                growth: number(constructor, "growth_rate"),
                bottleneck: number(constructor, "bn_size"),
                embedding,
            },
        ),
        other => panic!("unknown kind {other}"),
    }
}

pub(crate) fn load<B: Backend>(backend: B, case: &Value, weights: &Checkpoint) -> TrainableModel<B> {
    let mut model = TrainableModel::new(backend, &architecture(case), None, 0).unwrap();
    model.load(weights).unwrap();
    model
}

/// The input of a model: values, batch, frames, features; and its loss where that is not the sum of squares.
pub(crate) struct Features {
    values: Vec<f32>,
    pub(crate) batch: usize,
    pub(crate) frames: usize,
    features: usize,
    loss_weight: Option<Vec<f32>>,
}

impl Features {
    /// CAM++ has an input of its own, with several segments, and a loss of its own, Σ weight · embedding: its last norm
    /// makes the sum of squares a constant.
    pub(crate) fn of(case: &Value) -> Self {
        let file = tensors(if case["kind"] == "campplus" { "campplus_input" } else { "model_input" });
        let [batch, frames, features] = file.tensors["x"].shape[..] else {
            panic!("x is not [batch, frames, features]")
        };
        let loss_weight = file.tensors.contains_key("loss_weight").then(|| file.floats("loss_weight").to_vec());
        Self { values: file.floats("x").to_vec(), batch, frames, features, loss_weight }
    }

    /// Some items and frames.
    pub(crate) fn piece(&self, batch: usize, first: usize, frames: usize) -> Self {
        let item = self.frames * self.features;
        let range = first * self.features..(first + frames) * self.features;
        let values = (0..batch).flat_map(|i| self.values[i * item..(i + 1) * item][range.clone()].to_vec()).collect();
        Self { values, batch, frames, features: self.features, loss_weight: self.loss_weight.clone() }
    }

    /// All of it times `factor`.
    pub(crate) fn scaled(&self, factor: f32) -> Self {
        let values = self.values.iter().map(|value| factor * value).collect();
        Self { values, loss_weight: self.loss_weight.clone(), ..*self }
    }

    /// The gradient of the loss to the embeddings.
    pub(crate) fn slope(&self, embedding: &[f32]) -> Vec<f32> {
        self.loss_weight.clone().unwrap_or_else(|| embedding.iter().map(|e| 2.0 * e).collect())
    }

    pub(crate) fn input(&self) -> Input<'_> {
        Input { values: &self.values, batch: self.batch, frames: self.frames }
    }
}

pub(crate) fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |largest, value| largest.max(value.abs()))
}

pub(crate) fn furthest(got: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(got.len(), expected.len());
    assert!(got.iter().all(|value| value.is_finite()), "not finite");
    got.iter().zip(expected).fold(0.0, |furthest, (a, b)| furthest.max((a - b).abs()))
}
