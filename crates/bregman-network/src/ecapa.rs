//! ECAPA-TDNN (Desplanques, Thienpondt and Demuynck, Interspeech 2020), layer for layer and name for name as
//! WeSpeaker's `ECAPA_TDNN`.

use serde::{Deserialize, Serialize};

use crate::architecture::{Described, Recognised, TensorShapes, UnknownNetwork};
use crate::size::within;
use crate::{Architecture, Deviation, Graph, LayerSpec, Operation, Pointwise, SizeError, Value};

/// The size of an ECAPA-TDNN. The defaults make ECAPA-TDNN GLOB C1024: 14.66 M parameters.
///
/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `channels` | 1024 | width of the frame layers, a multiple of 8; 512 is usual, too |
/// | `embedding` | 192 | size of an embedding |
/// | `global_context` | true | the attention sees the utterance's statistics ("GLOB") |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EcapaConfig {
    /// Width of the frame layers.
    pub channels: usize,
    /// Size of an embedding.
    pub embedding: usize,
    /// Whether the attention sees the utterance's statistics.
    pub global_context: bool,
}

impl Default for EcapaConfig {
    fn default() -> Self {
        Self { channels: 1024, embedding: 192, global_context: true }
    }
}

/// The layers of an ECAPA-TDNN, WeSpeaker's or [SpeechBrain's](crate::SpeechBrainEcapaConfig).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EcapaLayers {
    /// From features to frames.
    pub first: LayerSpec,
    /// Three blocks, each on the one before.
    pub blocks: [SeRes2Layers; 3],
    /// Reads the outputs of all blocks side by side.
    pub aggregate: LayerSpec,
    /// Of the pooling over time.
    pub attention: AttentionLayers,
    /// From statistics to the embedding.
    pub linear: LayerSpec,
}

/// An SE-Res2Block: `y = x + se(f₂(res2(f₀(x))))`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeRes2Layers {
    /// Of the block.
    pub name: String,
    /// f₀, pointwise.
    pub first: LayerSpec,
    /// All parts of the channels but one, which passes unchanged; of the others y₀ = g₀(x₀), yᵢ = gᵢ(xᵢ + yᵢ₋₁).
    pub res2: Vec<LayerSpec>,
    /// The part that passes: the first, or the last.
    pub passes: usize,
    /// f₂, pointwise.
    pub last: LayerSpec,
    /// Squeeze-excitation: from the mean over time …
    pub squeeze: LayerSpec,
    /// … to a factor per channel.
    pub excite: LayerSpec,
}

/// Attention per channel and frame. With global context, `hidden` has a second input: the utterance's moments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttentionLayers {
    /// From frames, and their moments.
    pub hidden: LayerSpec,
    /// To one logit per channel and frame.
    pub logits: LayerSpec,
    /// Of the moments, and of the statistics under the attention.
    pub deviation: Deviation,
}

impl EcapaConfig {
    /// Parts of a Res2 convolution.
    pub const SCALE: usize = 8;
    /// Channels of the last frame layer, whatever the width of the others.
    pub const FRAME_CHANNELS: usize = 1536;
    /// Hidden units of the attention and of the squeeze-excitations.
    pub const BOTTLENECK: usize = 128;

    /// All layers, for features of so many bins.
    pub fn describe(&self, features: usize) -> EcapaLayers {
        let Self { channels, embedding, global_context } = *self;
        let (frames, hidden) = (Self::FRAME_CHANNELS, Self::BOTTLENECK);
        let seen = if global_context { vec![frames, 2 * frames] } else { vec![frames] };
        EcapaLayers {
            first: frame_layer("layer1", features, channels, 5),
            blocks: [2, 3, 4].map(|number| SeRes2Layers::new(number, channels)),
            aggregate: LayerSpec::conv1d("conv", [channels; 3], frames, 1, 1).after([Pointwise::Relu]),
            attention: AttentionLayers {
                hidden: LayerSpec::conv1d("pool.linear1", seen, hidden, 1, 1).after([Pointwise::Tanh]),
                logits: LayerSpec::conv1d("pool.linear2", [hidden], frames, 1, 1),
                deviation: Deviation::Raised,
            },
            linear: LayerSpec::linear("linear", 2 * frames, embedding).before([Pointwise::norm("bn")]),
        }
    }
}

/// `y = bn(relu(conv(x)))`
fn frame_layer(name: &str, inputs: usize, outputs: usize, kernel: usize) -> LayerSpec {
    LayerSpec::conv1d(format!("{name}.conv"), [inputs], outputs, kernel, 1)
        .after([Pointwise::Relu, Pointwise::norm(format!("{name}.bn"))])
}

impl SeRes2Layers {
    /// Block `layer2`, `layer3` or `layer4`; the number is the dilation, too.
    fn new(number: usize, channels: usize) -> Self {
        let (name, width) = (format!("layer{number}"), channels / EcapaConfig::SCALE);
        let part = |i: usize| format!("{name}.se_res2block.{i}");
        let branch = |i: usize| {
            LayerSpec::conv1d(format!("{}.convs.{i}", part(1)), [width], width, 3, number)
                .after([Pointwise::Relu, Pointwise::norm(format!("{}.bns.{i}", part(1)))])
        };
        let linear =
            |number: usize, inputs, outputs| LayerSpec::linear(format!("{}.linear{number}", part(3)), inputs, outputs);
        Self {
            first: frame_layer(&part(0), channels, channels, 1),
            res2: (0..EcapaConfig::SCALE - 1).map(branch).collect(),
            passes: EcapaConfig::SCALE - 1,
            last: frame_layer(&part(2), channels, channels, 1),
            squeeze: linear(1, channels, EcapaConfig::BOTTLENECK).after([Pointwise::Relu]),
            excite: linear(2, EcapaConfig::BOTTLENECK, channels).after([Pointwise::Sigmoid]),
            name,
        }
    }

    /// The part that the first convolution of Res2 reads.
    pub fn first_part(&self) -> usize {
        usize::from(self.passes == 0)
    }

    /// What happens to a part; none where it passes.
    fn layer_of(&self, part: usize) -> Option<&LayerSpec> {
        part.checked_sub(self.first_part()).and_then(|at| self.res2.get(at))
    }

    fn layers(&self) -> impl Iterator<Item = &LayerSpec> {
        [&self.first].into_iter().chain(&self.res2).chain([&self.last, &self.squeeze, &self.excite])
    }

    fn add_to(&self, graph: &mut Graph, x: Value) -> Value {
        let named = |part: &str| format!("{}.{part}", self.name);
        let wide = graph.layer(&self.first, &[x]);
        let mut before = None;
        let parts: Vec<Value> = (0..=self.res2.len())
            .map(|index| {
                let operation = Operation::Part { index, of: self.res2.len() + 1 };
                let part = graph.add(named(&format!("parts.{index}")), operation, &[wide]);
                let Some(layer) = self.layer_of(index) else { return part };
                let input = match before {
                    Some(before) => graph.add(named(&format!("sums.{index}")), Operation::Add, &[part, before]),
                    None => part,
                };
                *before.insert(graph.layer(layer, &[input]))
            })
            .collect();
        let joined = graph.add(named("joined"), Operation::Join, &parts);
        let last = graph.layer(&self.last, &[joined]);
        let mean = graph.add(named("mean"), Operation::Mean, &[last]);
        let squeezed = graph.layer(&self.squeeze, &[mean]);
        let gate = graph.layer(&self.excite, &[squeezed]);
        let gated = graph.add(named("gated"), Operation::Scale, &[last, gate]);
        graph.add(self.name.clone(), Operation::Add, &[x, gated])
    }
}

impl EcapaLayers {
    /// All layers in the order of the `state_dict`.
    pub(crate) fn layers(self) -> Vec<LayerSpec> {
        let Self { first, blocks, aggregate, attention, linear } = self;
        let mut layers = vec![first];
        blocks.iter().for_each(|block| layers.extend(block.layers().cloned()));
        layers.extend([aggregate, attention.hidden, attention.logits, linear]);
        layers
    }

    /// The same layers in the order of execution.
    pub(crate) fn graph(self) -> Graph {
        let Self { first, blocks, aggregate, attention: AttentionLayers { hidden, logits, deviation }, linear } = self;
        let mut graph = Graph::new(first.inputs[0]);
        let mut x = graph.layer(&first, &[graph.input()]);
        let outputs = blocks.map(|block| {
            x = block.add_to(&mut graph, x);
            x
        });
        let frames = graph.layer(&aggregate, &outputs);
        let mut seen = vec![frames];
        if hidden.inputs.len() > 1 {
            seen.push(graph.add("pool.context", Operation::Moments(deviation), &[frames]));
        }
        let hidden = graph.layer(&hidden, &seen);
        let logits = graph.layer(&logits, &[hidden]);
        let statistics = graph.add("pool", Operation::AttentiveMoments(deviation), &[frames, logits]);
        graph.layer(&linear, &[statistics]);
        graph
    }
}

impl Described for EcapaConfig {
    fn embedding(&self) -> usize {
        self.embedding
    }

    fn width(&self) -> f64 {
        self.channels as f64 / Self::default().channels as f64
    }

    fn check(&self, features: usize) -> Result<(), SizeError> {
        within("channels", self.channels, 4096, Self::SCALE, "a multiple of 8, at most 4096")?;
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
        format!("ECAPA-TDNN, {} channels{context}", self.channels)
    }

    fn recognise(tensors: &TensorShapes) -> Recognised {
        let ours = tensors.has("layer1.conv.weight") && tensors.has("linear.weight");
        ours.then(|| {
            let [channels, features, _] = tensors.shape("layer1.conv.weight")?;
            let [embedding, statistics] = tensors.shape("linear.weight")?;
            let [_, inputs, _] = tensors.shape("pool.linear1.weight")?;
            let frames = statistics / 2;
            if inputs != frames && inputs != 3 * frames {
                return Err(UnknownNetwork(format!(
                    "pool.linear1 has {inputs} inputs for {frames} channels: \
                     attentive statistics take {frames} or 3 × {frames}"
                )));
            }
            Ok(Architecture::new(features, Self { channels, embedding, global_context: inputs != frames }))
        })
    }
}
