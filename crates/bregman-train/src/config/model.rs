//! Which network.

use bregman_nn::{Architecture, EcapaConfig, ResNetConfig};
use bregman_tensor::Precision;
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

/// Number format of the operands of large products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrecisionKind {
    /// Single precision.
    #[default]
    F32,
    /// Single precision in memory, 10 bits of mantissa in products: on GPUs; a CPU computes in f32.
    Tf32,
    /// Operands in bf16, sums in f32.
    Bf16,
}

impl From<PrecisionKind> for Precision {
    fn from(kind: PrecisionKind) -> Self {
        match kind {
            PrecisionKind::F32 | PrecisionKind::Tf32 => Self::F32,
            PrecisionKind::Bf16 => Self::Bf16,
        }
    }
}

#[cfg(feature = "cuda")]
impl From<PrecisionKind> for bregman_tensor::cuda::Precision {
    fn from(kind: PrecisionKind) -> Self {
        match kind {
            PrecisionKind::F32 => Self::F32,
            PrecisionKind::Tf32 => Self::Tf32,
            PrecisionKind::Bf16 => Self::Bf16,
        }
    }
}
