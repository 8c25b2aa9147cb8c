//! ECAPA-TDNN, layer for layer and name for name as SpeechBrain's `ECAPA_TDNN`, whose checkpoints are called
//! `embedding_model.ckpt`. It differs from [WeSpeaker's](crate::EcapaConfig) in
//!
//! - its convolutions, which mirror their input at both ends, where those of WeSpeaker read zeros;
//! - Res2: the first part of the channels passes unchanged, not the last;
//! - the aggregation and the attention's hidden layer, which have a ReLU and a norm, the latter before its tanh;
//! - the deviations of both poolings, √max(biased variance, 1e-12);
//! - the number of channels that are pooled, which is a setting.

use serde::{Deserialize, Serialize};

use crate::architecture::{Described, Recognised, TensorShapes, UnknownNetwork};
use crate::size::within;
use crate::{
    Architecture, AttentionLayers, Deviation, EcapaConfig, EcapaLayers, Graph, LayerSpec, Pointwise, SeRes2Layers,
    SizeError,
};

/// The size of SpeechBrain's ECAPA-TDNN. The defaults make the published `spkrec-ecapa-voxceleb`: 20.8 M parameters.
///
/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `channels` | 1024 | width of the frame layers, a multiple of 8; 512 is usual, too |
/// | `pooled` | 3072 | channels of the last frame layer, a multiple of 16 |
/// | `embedding` | 192 | size of an embedding |
/// | `global_context` | true | the attention sees the utterance's statistics |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpeechBrainEcapaConfig {
    /// Width of the frame layers.
    pub channels: usize,
    /// Channels of the last frame layer.
    pub pooled: usize,
    /// Size of an embedding.
    pub embedding: usize,
    /// Whether the attention sees the utterance's statistics.
    pub global_context: bool,
}

impl Default for SpeechBrainEcapaConfig {
    fn default() -> Self {
        Self { channels: 1024, pooled: 3072, embedding: 192, global_context: true }
    }
}

impl SpeechBrainEcapaConfig {
    /// All layers, for features of so many bins.
    pub fn describe(&self, features: usize) -> EcapaLayers {
        let Self { channels, pooled, embedding, global_context } = *self;
        let hidden = EcapaConfig::BOTTLENECK;
        let seen = if global_context { vec![pooled, 2 * pooled] } else { vec![pooled] };
        let tdnn = |name: &str, inputs: Vec<usize>, outputs: usize| tdnn(name, inputs, outputs, 1, 1);
        let squashed = |layer: LayerSpec| {
            let after = [&layer.after[..], &[Pointwise::Tanh]].concat();
            layer.after(after)
        };
        EcapaLayers {
            first: self::tdnn("blocks.0", vec![features], channels, 5, 1),
            blocks: [1, 2, 3].map(|number| block(number, channels)),
            aggregate: tdnn("mfa", vec![channels; 3], pooled),
            attention: AttentionLayers {
                hidden: squashed(tdnn("asp.tdnn", seen, hidden)),
                logits: pointwise("asp.conv", hidden, pooled),
                deviation: Deviation::Floored,
            },
            linear: pointwise("fc", 2 * pooled, embedding).before([Pointwise::norm("asp_bn.norm")]),
        }
    }
}

/// `y = bn(relu(conv(x)))`, SpeechBrain's `TDNNBlock`.
fn tdnn(name: &str, inputs: Vec<usize>, outputs: usize, kernel: usize, dilation: usize) -> LayerSpec {
    LayerSpec::conv1d(format!("{name}.conv.conv"), inputs, outputs, kernel, dilation)
        .reflected()
        .after([Pointwise::Relu, Pointwise::norm(format!("{name}.norm.norm"))])
}

/// A convolution with a single tap, SpeechBrain's wrapper around PyTorch's.
fn pointwise(name: &str, inputs: usize, outputs: usize) -> LayerSpec {
    LayerSpec::conv1d(format!("{name}.conv"), [inputs], outputs, 1, 1)
}

/// SpeechBrain's `SERes2NetBlock`.
fn block(number: usize, channels: usize) -> SeRes2Layers {
    let (name, width, hidden) = (format!("blocks.{number}"), channels / EcapaConfig::SCALE, EcapaConfig::BOTTLENECK);
    let part = |part: &str| format!("{name}.{part}");
    let branch = |i: usize| tdnn(&part(&format!("res2net_block.blocks.{i}")), vec![width], width, 3, number + 1);
    SeRes2Layers {
        first: tdnn(&part("tdnn1"), vec![channels], channels, 1, 1),
        res2: (0..EcapaConfig::SCALE - 1).map(branch).collect(),
        passes: 0,
        last: tdnn(&part("tdnn2"), vec![channels], channels, 1, 1),
        squeeze: pointwise(&part("se_block.conv1"), channels, hidden).after([Pointwise::Relu]),
        excite: pointwise(&part("se_block.conv2"), hidden, channels).after([Pointwise::Sigmoid]),
        name,
    }
}

impl Described for SpeechBrainEcapaConfig {
    fn embedding(&self) -> usize {
        self.embedding
    }

    fn width(&self) -> f64 {
        self.channels as f64 / Self::default().channels as f64
    }

    fn check(&self, features: usize) -> Result<(), SizeError> {
        within("channels", self.channels, 4096, EcapaConfig::SCALE, "a multiple of 8, at most 4096")?;
        within("pooled", self.pooled, 16384, 16, "a multiple of 16, at most 16384")?;
        within("features", features, 1024, 1, "1 to 1024")
    }

    fn layers(&self, features: usize) -> Vec<LayerSpec> {
        self.describe(features).layers()
    }

    fn graph(&self, features: usize) -> Graph {
        self.describe(features).graph()
    }

    fn summary(&self) -> String {
        let context = if self.global_context { ", global context" } else { "" };
        format!("SpeechBrain's ECAPA-TDNN, {} channels, {} pooled{context}", self.channels, self.pooled)
    }

    fn recognise(tensors: &TensorShapes) -> Recognised {
        let ours = tensors.has("blocks.0.conv.conv.weight") && tensors.has("asp_bn.norm.weight");
        ours.then(|| {
            let unknown = |variant: String| Err(UnknownNetwork(variant));
            if let Some(number) = (1..4).find(|number| tensors.has(&format!("blocks.{number}.shortcut.conv.weight"))) {
                return unknown(format!(
                    "an ECAPA_TDNN of SpeechBrain whose block {number} changes the number of channels; only those of \
                     equal width are known"
                ));
            }
            let [channels, features, _] = tensors.shape("blocks.0.conv.conv.weight")?;
            let [pooled, _, _] = tensors.shape("mfa.conv.conv.weight")?;
            let [attention, inputs, _] = tensors.shape("asp.tdnn.conv.conv.weight")?;
            let [squeezed, _, _] = tensors.shape("blocks.1.se_block.conv1.conv.weight")?;
            let [embedding, _, _] = tensors.shape("fc.conv.weight")?;
            let hidden = EcapaConfig::BOTTLENECK;
            for (what, found) in [("attention_channels", attention), ("se_channels", squeezed)] {
                if found != hidden {
                    let known = format!("an ECAPA_TDNN of SpeechBrain with {what} = {found}; only {hidden} is known");
                    return unknown(known);
                }
            }
            if inputs != pooled && inputs != 3 * pooled {
                return unknown(format!(
                    "asp.tdnn has {inputs} inputs for {pooled} channels: attentive statistics take {pooled} or 3 × \
                     {pooled}"
                ));
            }
            let global_context = inputs != pooled;
            Ok(Architecture::new(features, Self { channels, pooled, embedding, global_context }))
        })
    }
}
