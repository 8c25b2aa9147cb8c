//! ResNet of basic blocks (ResNet34) for speaker embeddings, layer for layer and name for name as WeSpeaker's with
//! temporal statistics pooling.

use serde::{Deserialize, Serialize};

use crate::architecture::{Described, Recognised, TensorShapes, UnknownNetwork};
use crate::size::within;
use crate::{Architecture, Deviation, Graph, LayerSpec, Operation, Pointwise, SizeError, Value};

/// The size of a ResNet. The defaults make ResNet34: 6.63 M parameters.
///
/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `blocks` | [3, 4, 6, 3] | blocks of each stage |
/// | `channels` | 32 | channels of the first stage; each of the following three doubles them |
/// | `embedding` | 256 | size of an embedding |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ResNetConfig {
    /// Blocks of each stage.
    pub blocks: [usize; 4],
    /// Channels of the first stage.
    pub channels: usize,
    /// Size of an embedding.
    pub embedding: usize,
}

impl Default for ResNetConfig {
    fn default() -> Self {
        Self { blocks: [3, 4, 6, 3], channels: 32, embedding: 256 }
    }
}

/// The layers of a ResNet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResNetLayers {
    /// How large the activations of each stage are.
    pub stages: [ResNetStage; 4],
    /// From features to the first stage.
    pub stem: LayerSpec,
    /// Of all stages.
    pub blocks: Vec<BasicBlockLayers>,
    /// From statistics to the embedding.
    pub linear: LayerSpec,
}

/// How large the activations of a stage are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResNetStage {
    /// Channels.
    pub channels: usize,
    /// Rows of each channel.
    pub height: usize,
    /// Frames of the features for one column.
    pub step: usize,
}

/// `y = relu(bn₂(conv₂(relu(bn₁(conv₁(x))))) + shortcut(x))`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasicBlockLayers {
    /// Its stage, from 0.
    pub stage: usize,
    /// From one output position to the next, in frequency and in time.
    pub stride: [usize; 2],
    /// conv₁ and bn₁.
    pub first: LayerSpec,
    /// conv₂ and bn₂.
    pub second: LayerSpec,
    /// A pointwise convolution with its norm where the shape changes; elsewhere x itself is added.
    pub shortcut: Option<LayerSpec>,
}

impl ResNetConfig {
    /// All layers, for features of so many bins.
    pub fn describe(&self, features: usize) -> ResNetLayers {
        let stages = [0, 1, 2, 3].map(|stage| ResNetStage {
            channels: self.channels << stage,
            height: features >> stage,
            step: 1 << stage,
        });
        let norm_relu = [Pointwise::norm("bn1"), Pointwise::Relu];
        let mut blocks = Vec::new();
        for (stage, &count) in self.blocks.iter().enumerate() {
            let outputs = stages[stage].channels;
            for i in 0..count {
                let begins = stage > 0 && i == 0;
                let (inputs, stride) = if begins { (stages[stage - 1].channels, [2; 2]) } else { (outputs, [1; 2]) };
                let name = format!("layer{}.{i}", stage + 1);
                blocks.push(BasicBlockLayers::new(&name, stage, [inputs, outputs], stride));
            }
        }
        let pooled = 2 * stages[3].channels * stages[3].height;
        ResNetLayers {
            stages,
            stem: LayerSpec::conv2d("conv1", 1, self.channels, 3, [1; 2]).after(norm_relu),
            blocks,
            linear: LayerSpec::linear("seg_1", pooled, self.embedding),
        }
    }
}

impl BasicBlockLayers {
    pub(crate) fn new(name: &str, stage: usize, [inputs, outputs]: [usize; 2], stride: [usize; 2]) -> Self {
        let conv = |part: &str, inputs: usize, kernel: usize, stride: [usize; 2]| {
            LayerSpec::conv2d(format!("{name}.{part}"), inputs, outputs, kernel, stride)
        };
        let norm = |part: &str| Pointwise::norm(format!("{name}.{part}"));
        let reshapes = stride != [1, 1] || inputs != outputs;
        Self {
            stage,
            stride,
            first: conv("conv1", inputs, 3, stride).after([norm("bn1"), Pointwise::Relu]),
            second: conv("conv2", outputs, 3, [1; 2]).after([norm("bn2"), Pointwise::Residual, Pointwise::Relu]),
            shortcut: reshapes.then(|| conv("shortcut.0", inputs, 1, stride).after([norm("shortcut.1")])),
        }
    }

    pub(crate) fn layers(&self) -> impl Iterator<Item = &LayerSpec> {
        [&self.first, &self.second].into_iter().chain(&self.shortcut)
    }

    pub(crate) fn add_to(&self, graph: &mut Graph, x: Value) -> Value {
        let middle = graph.layer(&self.first, &[x]);
        let residual = self.shortcut.as_ref().map_or(x, |shortcut| graph.layer(shortcut, &[x]));
        graph.layer(&self.second, &[middle, residual])
    }
}

impl Described for ResNetConfig {
    fn embedding(&self) -> usize {
        self.embedding
    }

    fn width(&self) -> f64 {
        self.channels as f64 / Self::default().channels as f64
    }

    fn check(&self, features: usize) -> Result<(), SizeError> {
        self.blocks.iter().try_for_each(|&count| within("blocks", count, 64, 1, "1 to 64 in every stage"))?;
        within("channels", self.channels, 512, 1, "1 to 512")?;
        within("features", features, 1024, 8, "a multiple of 8 (three strides of two), at most 1024")
    }

    fn layers(&self, features: usize) -> Vec<LayerSpec> {
        let ResNetLayers { stem, blocks, linear, .. } = self.describe(features);
        let mut layers = vec![stem];
        blocks.iter().for_each(|block| layers.extend(block.layers().cloned()));
        layers.push(linear);
        layers
    }

    fn graph(&self, features: usize) -> Graph {
        let ResNetLayers { stem, blocks, linear, .. } = self.describe(features);
        let mut graph = Graph::new(features);
        let plane = graph.add("plane", Operation::Plane, &[graph.input()]);
        let stem = graph.layer(&stem, &[plane]);
        let last = blocks.iter().fold(stem, |x, block| block.add_to(&mut graph, x));
        let statistics = graph.add("pool", Operation::Moments(Deviation::Raised), &[last]);
        graph.layer(&linear, &[statistics]);
        graph
    }

    fn summary(&self) -> String {
        format!("ResNet, blocks {:?}, {} channels", self.blocks, self.channels)
    }

    fn recognise(tensors: &TensorShapes) -> Recognised {
        let ours = tensors.has("layer1.0.conv1.weight") && tensors.has("seg_1.weight");
        ours.then(|| {
            for (tensor, variant) in [
                (
                    "layer1.0.conv3.weight",
                    "a ResNet of bottleneck blocks (ResNet50 and deeper); only basic blocks (ResNet18, ResNet34) are \
                     known",
                ),
                ("seg_2.weight", "a ResNet with two embedding layers (two_emb_layer: true); only one is known"),
            ] {
                if tensors.has(tensor) {
                    return Err(UnknownNetwork(variant.to_owned()));
                }
            }
            let [channels, _, _, _] = tensors.shape("conv1.weight")?;
            let [embedding, statistics] = tensors.shape("seg_1.weight")?;
            let block = |stage: usize, i: usize| tensors.has(&format!("layer{stage}.{i}.conv1.weight"));
            let blocks = [1, 2, 3, 4].map(|stage| (0..).take_while(|&i| block(stage, i)).count());
            // two statistics of 8 × channels, over an eighth of the frequencies
            let features = statistics / (2 * channels.max(1));
            Ok(Architecture::new(features, Self { blocks, channels, embedding }))
        })
    }
}
