//! Which network.

use bregman_nn::{Architecture, EcapaConfig, ResNetConfig};
use serde::{Deserialize, Serialize};

/// The network and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ModelConfig {
    /// ECAPA-TDNN.
    Ecapa(EcapaSize),
    /// ResNet34 and its like.
    #[serde(rename = "resnet")]
    ResNet(ResNetSize),
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self::Ecapa(EcapaSize::default())
    }
}

/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `channels` | 1024 | width of the frame layers, a multiple of 8 |
/// | `embedding` | 192 | size of an embedding |
/// | `global_context` | true | attention sees the utterance's statistics |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EcapaSize {
    /// Width of the frame layers.
    pub channels: usize,
    /// Size of an embedding.
    pub embedding: usize,
    /// Whether the attention sees the utterance's statistics.
    pub global_context: bool,
}

impl Default for EcapaSize {
    fn default() -> Self {
        let EcapaConfig { channels, embedding, global_context, .. } = EcapaConfig::default();
        Self { channels, embedding, global_context }
    }
}

/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `blocks` | [3, 4, 6, 3] | blocks of each stage |
/// | `channels` | 32 | channels of the first stage |
/// | `embedding` | 256 | size of an embedding |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ResNetSize {
    /// Blocks of each stage.
    pub blocks: [usize; 4],
    /// Channels of the first stage.
    pub channels: usize,
    /// Size of an embedding.
    pub embedding: usize,
}

impl Default for ResNetSize {
    fn default() -> Self {
        let ResNetConfig { blocks, channels, embedding, .. } = ResNetConfig::default();
        Self { blocks, channels, embedding }
    }
}

impl ModelConfig {
    /// The network for features of this many bins.
    pub fn architecture(&self, features: usize) -> Architecture {
        match *self {
            Self::Ecapa(EcapaSize { channels, embedding, global_context }) => {
                Architecture::Ecapa(EcapaConfig { channels, features, embedding, global_context })
            }
            Self::ResNet(ResNetSize { blocks, channels, embedding }) => {
                Architecture::ResNet(ResNetConfig { blocks, channels, features, embedding })
            }
        }
    }
}
