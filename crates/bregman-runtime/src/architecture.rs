//! Which network, and which layers it is made of.
//!
//! A model file stores the layers of [`Architecture::layers`] in their order; names are WeSpeaker's. Where a batch norm
//! follows its convolution directly (ResNet) or stands before a linear layer (the end of ECAPA) it is folded into the
//! weights. In ECAPA's frame layers a ReLU stands between, and the next convolution pads with zeros *after* the norm:
//! there it stays, as a scale and a shift in the store.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Channels of ECAPA's last frame layer.
pub(crate) const FRAME_CHANNELS: usize = 1536;
/// Hidden units of ECAPA's attention and of its squeeze-excitations.
pub(crate) const BOTTLENECK: usize = 128;
/// Weights of the largest network that is read or written: twenty times those of the usual ones, a gigabyte in single
/// precision.
const MOST_WEIGHTS: u64 = 1 << 28;
/// Parts of a Res2 convolution.
pub(crate) const SCALE: usize = 8;

/// The network and its size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Architecture {
    /// ECAPA-TDNN.
    Ecapa {
        /// Channels of the frame layers, a multiple of 8.
        channels: usize,
        /// Filterbank bins.
        features: usize,
        /// Size of the embedding.
        embedding: usize,
        /// Whether the attention sees the utterance's statistics.
        global_context: bool,
    },
    /// ResNet of basic blocks with temporal statistics pooling.
    ResNet {
        /// Blocks of each stage: 3, 4, 6, 3 make a ResNet34.
        blocks: [usize; 4],
        /// Channels of the first stage.
        channels: usize,
        /// Filterbank bins, a multiple of 8.
        features: usize,
        /// Size of the embedding.
        embedding: usize,
    },
}

/// The batch norm around a layer, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Norm {
    /// None.
    Absent,
    /// Of the layer's output: folded into its weights and bias.
    Folded(String),
    /// Of the layer's input: folded into its weights and bias.
    FoldedBefore(String),
    /// After the ReLU that follows the layer: kept as a scale and a shift.
    AfterRelu(String),
}

/// One layer with weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerSpec {
    /// WeSpeaker's name without `.weight`.
    pub name: String,
    /// Shape of the weight in PyTorch's order: outputs, inputs, taps.
    pub shape: Vec<usize>,
    /// Whether the layer has a bias of its own.
    pub bias: bool,
    /// Its batch norm.
    pub norm: Norm,
}

impl Architecture {
    /// Filterbank bins.
    pub fn features(&self) -> usize {
        match *self {
            Self::Ecapa { features, .. } | Self::ResNet { features, .. } => features,
        }
    }

    /// Size of the embedding.
    pub fn embedding(&self) -> usize {
        match *self {
            Self::Ecapa { embedding, .. } | Self::ResNet { embedding, .. } => embedding,
        }
    }

    /// Refuses sizes that no network has, so that a broken file cannot ask for all memory.
    pub fn check(&self) -> Result<()> {
        let within = |field, value: usize, most: usize, step: usize, expected| {
            let fine = (1..=most).contains(&value) && value.is_multiple_of(step);
            if fine { Ok(()) } else { Err(Error::Architecture { field, value, expected }) }
        };
        within("embedding", self.embedding(), 8192, 1, "1 to 8192")?;
        match *self {
            Self::Ecapa { channels, features, .. } => {
                within("channels", channels, 4096, SCALE, "a multiple of 8, at most 4096")?;
                within("features", features, 1024, 1, "1 to 1024")?;
            }
            Self::ResNet { blocks, channels, features, .. } => {
                blocks.iter().try_for_each(|&count| within("blocks", count, 64, 1, "1 to 64 in every stage"))?;
                within("channels", channels, 512, 1, "1 to 512")?;
                within("features", features, 1024, 8, "a multiple of 8, at most 1024")?;
            }
        }
        let weights: u64 =
            self.layers().iter().map(|layer| layer.shape.iter().map(|&size| size as u64).product::<u64>()).sum();
        if weights <= MOST_WEIGHTS {
            Ok(())
        } else {
            Err(Error::Architecture { field: "weights", value: weights as usize, expected: "at most 2²⁸" })
        }
    }

    /// Every layer with weights, in the order of the file.
    pub fn layers(&self) -> Vec<LayerSpec> {
        match *self {
            Self::Ecapa { channels, features, embedding, global_context } => {
                ecapa(channels, features, embedding, global_context)
            }
            Self::ResNet { blocks, channels, features, embedding } => resnet(blocks, channels, features, embedding),
        }
    }
}

fn layer(name: impl Into<String>, shape: &[usize], bias: bool, norm: Norm) -> LayerSpec {
    LayerSpec { name: name.into(), shape: shape.to_vec(), bias, norm }
}

fn ecapa(channels: usize, features: usize, embedding: usize, global_context: bool) -> Vec<LayerSpec> {
    let width = channels / SCALE;
    let after = |name: String| Norm::AfterRelu(name);
    let mut layers = vec![layer("layer1.conv", &[channels, features, 5], true, after("layer1.bn".into()))];
    for block in 2..=4 {
        let part = |i: usize| format!("layer{block}.se_res2block.{i}");
        layers.push(layer(part(0) + ".conv", &[channels, channels, 1], true, after(part(0) + ".bn")));
        for i in 0..SCALE - 1 {
            let [conv, norm] = ["convs", "bns"].map(|kind| format!("{}.{kind}.{i}", part(1)));
            layers.push(layer(conv, &[width, width, 3], true, after(norm)));
        }
        layers.push(layer(part(2) + ".conv", &[channels, channels, 1], true, after(part(2) + ".bn")));
        layers.push(layer(part(3) + ".linear1", &[BOTTLENECK, channels], true, Norm::Absent));
        layers.push(layer(part(3) + ".linear2", &[channels, BOTTLENECK], true, Norm::Absent));
    }
    let seen = if global_context { 3 * FRAME_CHANNELS } else { FRAME_CHANNELS };
    layers.push(layer("conv", &[FRAME_CHANNELS, 3 * channels, 1], true, Norm::Absent));
    layers.push(layer("pool.linear1", &[BOTTLENECK, seen, 1], true, Norm::Absent));
    layers.push(layer("pool.linear2", &[FRAME_CHANNELS, BOTTLENECK, 1], true, Norm::Absent));
    layers.push(layer("linear", &[embedding, 2 * FRAME_CHANNELS], true, Norm::FoldedBefore("bn".into())));
    layers
}

fn resnet(blocks: [usize; 4], channels: usize, features: usize, embedding: usize) -> Vec<LayerSpec> {
    let conv = |name: String, norm: String, outputs: usize, inputs: usize, kernel: usize| {
        layer(name, &[outputs, inputs, kernel, kernel], false, Norm::Folded(norm))
    };
    let mut layers = vec![conv("conv1".into(), "bn1".into(), channels, 1, 3)];
    let mut inputs = channels;
    for (stage, count) in blocks.into_iter().enumerate() {
        let outputs = channels << stage;
        for i in 0..count {
            let name = |part: &str| format!("layer{}.{i}.{part}", stage + 1);
            layers.push(conv(name("conv1"), name("bn1"), outputs, inputs, 3));
            layers.push(conv(name("conv2"), name("bn2"), outputs, outputs, 3));
            if inputs != outputs || stage > 0 && i == 0 {
                layers.push(conv(name("shortcut.0"), name("shortcut.1"), outputs, inputs, 1));
            }
            inputs = outputs;
        }
    }
    layers.push(layer("seg_1", &[embedding, 2 * inputs * features / 8], true, Norm::Absent));
    layers
}
