//! CAM++ (Wang et al., Interspeech 2023), layer for layer and name for name as the `CAMPPlus` of 3D-Speaker, which
//! WeSpeaker has copied. The copy adds 1e-7 to the variance of the pooling, 3D-Speaker nothing; so do we.

use serde::{Deserialize, Serialize};

use crate::architecture::{Described, Recognised, TensorShapes, UnknownNetwork};
use crate::size::within;
use crate::{
    Architecture, BasicBlockLayers, Deviation, Graph, LayerKind, LayerSpec, NormSpec, Operation, Pointwise, SizeError,
    Value,
};

/// The size of a CAM++. The defaults make the published network: 6.85 M parameters with an embedding of 192.
///
/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `head` | 32 | channels of the two-dimensional head |
/// | `channels` | 128 | channels of the first frame layer |
/// | `growth` | 32 | channels that each dense layer adds |
/// | `bottleneck` | 4 | hidden channels of a dense layer, as a multiple of `growth` |
/// | `embedding` | 192 | size of an embedding; 512 is usual, too |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CampPlusConfig {
    /// Channels of the two-dimensional head.
    pub head: usize,
    /// Channels of the first frame layer.
    pub channels: usize,
    /// Channels that each dense layer adds.
    pub growth: usize,
    /// Hidden channels of a dense layer, as a multiple of `growth`.
    pub bottleneck: usize,
    /// Size of an embedding.
    pub embedding: usize,
}

impl Default for CampPlusConfig {
    fn default() -> Self {
        Self { head: 32, channels: 128, growth: 32, bottleneck: 4, embedding: 192 }
    }
}

/// The layers of a CAM++.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CampPlusLayers {
    /// From features to channels that keep their place in frequency.
    pub head: CampPlusHead,
    /// From all rows of the head to frames, every other one.
    pub first: LayerSpec,
    /// Three blocks, each on the one before.
    pub blocks: [DenseBlockLayers; 3],
    /// From statistics to the embedding.
    pub linear: LayerSpec,
}

/// A small ResNet that halves the frequencies three times and keeps all frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CampPlusHead {
    /// From features.
    pub stem: LayerSpec,
    /// Two groups of two.
    pub blocks: Vec<BasicBlockLayers>,
    /// The third halving.
    pub last: LayerSpec,
}

/// Dense layers, each on the channels of all before it, and a pointwise layer that halves the channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenseBlockLayers {
    /// Of the block.
    pub name: String,
    /// Each adds `growth` channels.
    pub layers: Vec<DenseLayer>,
    /// Reads all channels.
    pub transit: LayerSpec,
}

/// `y = local(h) · sigmoid(excite(relu(squeeze(context(h)))))` with `h = first(x)`; the context is the mean of all
/// frames plus that of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenseLayer {
    /// Of the layer.
    pub name: String,
    /// Pointwise, with norm and ReLU on both sides.
    pub first: LayerSpec,
    /// Dilated.
    pub local: LayerSpec,
    /// From the context of each segment …
    pub squeeze: LayerSpec,
    /// … to a factor per channel.
    pub excite: LayerSpec,
}

impl CampPlusConfig {
    /// Frames of a segment that has a context of its own.
    pub const SEGMENT: usize = 100;
    /// Dense layers of each block, and their dilation.
    const BLOCKS: [(usize, usize); 3] = [(12, 1), (24, 2), (16, 2)];

    /// All layers, for features of so many bins.
    pub fn describe(&self, features: usize) -> CampPlusLayers {
        let mut channels = self.channels;
        let mut number = 0;
        let blocks = Self::BLOCKS.map(|(count, dilation)| {
            number += 1;
            let block = DenseBlockLayers::new(self, number, channels, count, dilation);
            channels = block.transit.outputs;
            block
        });
        let kind = LayerKind::Conv1d { kernel: 5, stride: 2, dilation: 1 };
        let rows = self.head * (features / 8);
        let first = LayerSpec { kind, ..frame_layer("xvector.tdnn.linear", rows, self.channels, 5, 1) };
        let norm = NormSpec { name: "xvector.dense.nonlinear.batchnorm".to_owned(), affine: false };
        CampPlusLayers {
            head: CampPlusHead::new(self.head),
            first: first.after(norm_relu("xvector.tdnn.nonlinear")),
            blocks,
            linear: frame_layer("xvector.dense.linear", 2 * channels, self.embedding, 1, 1)
                .after([Pointwise::Norm(norm)]),
        }
    }
}

/// A convolution over time without bias.
fn frame_layer(name: impl Into<String>, inputs: usize, outputs: usize, kernel: usize, dilation: usize) -> LayerSpec {
    LayerSpec { bias: false, ..LayerSpec::conv1d(name, [inputs], outputs, kernel, dilation) }
}

fn norm_relu(name: &str) -> [Pointwise; 2] {
    [Pointwise::norm(format!("{name}.batchnorm")), Pointwise::Relu]
}

impl CampPlusHead {
    fn new(channels: usize) -> Self {
        let block = |(stage, i): (usize, usize)| {
            let stride = if i == 0 { [2, 1] } else { [1, 1] };
            BasicBlockLayers::new(&format!("head.layer{}.{i}", stage + 1), stage, [channels; 2], stride)
        };
        let norm_relu = |norm: &str| [Pointwise::norm(norm), Pointwise::Relu];
        Self {
            stem: LayerSpec::conv2d("head.conv1", 1, channels, 3, [1, 1]).after(norm_relu("head.bn1")),
            blocks: [(0, 0), (0, 1), (1, 0), (1, 1)].map(block).into(),
            last: LayerSpec::conv2d("head.conv2", channels, channels, 3, [2, 1]).after(norm_relu("head.bn2")),
        }
    }

    fn layers(&self) -> impl Iterator<Item = &LayerSpec> {
        [&self.stem].into_iter().chain(self.blocks.iter().flat_map(BasicBlockLayers::layers)).chain([&self.last])
    }
}

impl DenseBlockLayers {
    fn new(config: &CampPlusConfig, number: usize, inputs: usize, count: usize, dilation: usize) -> Self {
        let layer = |i: usize| {
            let name = format!("xvector.block{number}.tdnnd{}", i + 1);
            DenseLayer::new(config, name, inputs + i * config.growth, dilation)
        };
        let channels = inputs + count * config.growth;
        let name = format!("xvector.transit{number}");
        let transit = frame_layer(format!("{name}.linear"), channels, channels / 2, 1, 1)
            .before(norm_relu(&format!("{name}.nonlinear")));
        // the norm in front of the pooling comes right after the last of these layers
        let last = number == CampPlusConfig::BLOCKS.len();
        Self {
            name: format!("xvector.block{number}"),
            layers: (0..count).map(layer).collect(),
            transit: if last { transit.after(norm_relu("xvector.out_nonlinear")) } else { transit },
        }
    }

    fn all_layers(&self) -> impl Iterator<Item = &LayerSpec> {
        self.layers.iter().flat_map(DenseLayer::layers).chain([&self.transit])
    }

    fn add_to(&self, graph: &mut Graph, mut x: Value) -> Value {
        for layer in &self.layers {
            let added = layer.add_to(graph, x);
            x = graph.add(format!("{}.joined", layer.name), Operation::Join, &[x, added]);
        }
        graph.layer(&self.transit, &[x])
    }
}

impl DenseLayer {
    fn new(config: &CampPlusConfig, name: String, inputs: usize, dilation: usize) -> Self {
        let (hidden, outputs) = (config.bottleneck * config.growth, config.growth);
        let part = |part: &str| format!("{name}.{part}");
        let squeezed = hidden / 2;
        Self {
            first: frame_layer(part("linear1"), inputs, hidden, 1, 1)
                .before(norm_relu(&part("nonlinear1")))
                .after(norm_relu(&part("nonlinear2"))),
            local: frame_layer(part("cam_layer.linear_local"), hidden, outputs, 3, dilation),
            squeeze: LayerSpec::conv1d(part("cam_layer.linear1"), [hidden], squeezed, 1, 1).after([Pointwise::Relu]),
            excite: LayerSpec::conv1d(part("cam_layer.linear2"), [squeezed], outputs, 1, 1).after([Pointwise::Sigmoid]),
            name,
        }
    }

    fn layers(&self) -> [&LayerSpec; 4] {
        [&self.first, &self.local, &self.squeeze, &self.excite]
    }

    fn add_to(&self, graph: &mut Graph, x: Value) -> Value {
        let named = |part: &str| format!("{}.{part}", self.name);
        let hidden = graph.layer(&self.first, &[x]);
        let local = graph.layer(&self.local, &[hidden]);
        let segment = CampPlusConfig::SEGMENT;
        let context = graph.add(named("context"), Operation::SegmentContext(segment), &[hidden]);
        let squeezed = graph.layer(&self.squeeze, &[context]);
        let gate = graph.layer(&self.excite, &[squeezed]);
        graph.add(named("masked"), Operation::SegmentScale(segment), &[local, gate])
    }
}

impl Described for CampPlusConfig {
    fn embedding(&self) -> usize {
        self.embedding
    }

    fn width(&self) -> f64 {
        self.growth as f64 / Self::default().growth as f64
    }

    fn check(&self, features: usize) -> Result<(), SizeError> {
        within("head", self.head, 512, 1, "1 to 512")?;
        within("channels", self.channels, 4096, 1, "1 to 4096")?;
        within("growth", self.growth, 512, 1, "1 to 512")?;
        within("bottleneck", self.bottleneck, 16, 2, "a multiple of 2, at most 16")?;
        within("features", features, 1024, 8, "a multiple of 8 (three strides of two), at most 1024")
    }

    fn layers(&self, features: usize) -> Vec<LayerSpec> {
        let CampPlusLayers { head, first, blocks, linear } = self.describe(features);
        let mut layers: Vec<LayerSpec> = head.layers().cloned().chain([first]).collect();
        blocks.iter().for_each(|block| layers.extend(block.all_layers().cloned()));
        layers.push(linear);
        layers
    }

    fn graph(&self, features: usize) -> Graph {
        let CampPlusLayers { head, first, blocks, linear } = self.describe(features);
        let mut graph = Graph::new(features);
        let plane = graph.add("plane", Operation::Plane, &[graph.input()]);
        let stem = graph.layer(&head.stem, &[plane]);
        let maps = head.blocks.iter().fold(stem, |x, block| block.add_to(&mut graph, x));
        let maps = graph.layer(&head.last, &[maps]);
        let rows = graph.add("head", Operation::Rows, &[maps]);
        let frames = graph.layer(&first, &[rows]);
        let frames = blocks.iter().fold(frames, |x, block| block.add_to(&mut graph, x));
        let statistics = graph.add("xvector.stats", Operation::Moments(Deviation::Plain), &[frames]);
        graph.layer(&linear, &[statistics]);
        graph
    }

    fn summary(&self) -> String {
        let Self { head, channels, growth, .. } = self;
        format!("CAM++, {channels} channels, growing by {growth}, head of {head}")
    }

    fn recognise(tensors: &TensorShapes) -> Recognised {
        let ours = tensors.has("xvector.tdnn.linear.weight") && tensors.has("head.conv1.weight");
        ours.then(|| {
            let [head, _, _, _] = tensors.shape("head.conv1.weight")?;
            let [channels, rows, _] = tensors.shape("xvector.tdnn.linear.weight")?;
            let [growth, hidden, _] = tensors.shape("xvector.block1.tdnnd1.cam_layer.linear_local.weight")?;
            let [embedding, _, _] = tensors.shape("xvector.dense.linear.weight")?;
            for (block, (expected, _)) in (1..).zip(Self::BLOCKS) {
                let layer = |i: usize| format!("xvector.block{block}.tdnnd{i}.linear1.weight");
                let count = (1..).take_while(|&i| tensors.has(&layer(i))).count();
                if count != expected {
                    let problem = format!("a CAM++ with {count} layers in block {block}; only {expected} are known");
                    return Err(UnknownNetwork(problem));
                }
            }
            let config = Self { head, channels, growth, bottleneck: hidden / growth.max(1), embedding };
            Ok(Architecture::new(rows / head.max(1) * 8, config))
        })
    }
}
