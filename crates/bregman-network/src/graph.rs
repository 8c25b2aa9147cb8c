//! What reads what: a network as a list of operations, each on the results of earlier ones.

use crate::{LayerKind, LayerSpec};

/// The result of a [`Node`], by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value(pub usize);

/// What a node does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The features, one channel per bin.
    Input,
    /// One channel whose rows are the channels of the input.
    Plane,
    /// Every row of every channel as a channel of its own.
    Rows,
    /// A layer with weights. Its inputs are read side by side; a residual comes last.
    Layer(LayerSpec),
    /// One of several equal groups of channels.
    Part {
        /// Which.
        index: usize,
        /// Of how many.
        of: usize,
    },
    /// Channels of all inputs, one input after the other.
    Join,
    /// The sum of two inputs.
    Add,
    /// The mean over time.
    Mean,
    /// The first input, each channel times its value in the second.
    Scale,
    /// The mean over time plus the mean over each segment of so many positions; the last segment may be shorter.
    SegmentContext(usize),
    /// The first input, each channel times the value in the second of its segment of so many positions.
    SegmentScale(usize),
    /// Mean and standard deviation over time of each channel and row, first all means, then all deviations.
    Moments(Deviation),
    /// As [`Operation::Moments`] of the first input, weighted by the softmax over time of the second.
    AttentiveMoments(Deviation),
}

/// How statistics over time make a standard deviation of a variance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deviation {
    /// √(unbiased variance)
    Plain,
    /// √(unbiased variance + ε), with weights √max(variance, ε): WeSpeaker's, ε = 1e-7.
    Raised,
    /// √max(biased variance, ε), with weights, too: SpeechBrain's, ε = 1e-12.
    Floored,
}

impl Deviation {
    /// ε
    pub const fn epsilon(self) -> f32 {
        match self {
            Self::Plain => 0.0,
            Self::Raised => 1e-7,
            Self::Floored => 1e-12,
        }
    }
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Unique. A layer's node has the layer's name.
    pub name: String,
    /// What it does.
    pub operation: Operation,
    /// What it reads.
    pub inputs: Vec<Value>,
}

/// How large a value is, per utterance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Channels.
    pub channels: usize,
    /// Rows of each channel; none where it is not a plane.
    pub height: Option<usize>,
    /// One position for so many frames of the features; none where there is a single position per utterance.
    pub step: Option<usize>,
}

impl Extent {
    /// Positions of each channel for an utterance of `frames` frames.
    pub fn positions(&self, frames: usize) -> usize {
        self.height.unwrap_or(1) * self.step.map_or(1, |step| frames.div_ceil(step))
    }

    fn vector(channels: usize) -> Self {
        Self { channels, height: None, step: None }
    }
}

/// The operations of a network, each after those it reads; the last one makes the embedding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    features: usize,
    nodes: Vec<Node>,
}

impl Graph {
    /// The features alone.
    pub fn new(features: usize) -> Self {
        let input = Node { name: "features".to_owned(), operation: Operation::Input, inputs: Vec::new() };
        Self { features, nodes: vec![input] }
    }

    /// What the network reads.
    pub fn input(&self) -> Value {
        Value(0)
    }

    /// Adds an operation.
    pub fn add(&mut self, name: impl Into<String>, operation: Operation, inputs: &[Value]) -> Value {
        self.nodes.push(Node { name: name.into(), operation, inputs: inputs.to_vec() });
        Value(self.nodes.len() - 1)
    }

    /// Adds a layer.
    pub fn layer(&mut self, layer: &LayerSpec, inputs: &[Value]) -> Value {
        self.add(layer.name.clone(), Operation::Layer(layer.clone()), inputs)
    }

    /// All operations.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// How large the result of each node is.
    pub fn extents(&self) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        for node in &self.nodes {
            let of = |input: usize| extents[node.inputs[input].0];
            let extent = match &node.operation {
                Operation::Input => Extent { channels: self.features, height: None, step: Some(1) },
                Operation::Plane => Extent { channels: 1, height: Some(of(0).channels), step: of(0).step },
                Operation::Rows => {
                    Extent { channels: of(0).channels * of(0).height.unwrap_or(1), height: None, step: of(0).step }
                }
                Operation::Layer(layer) => applied(layer, of(0)),
                Operation::Part { of: parts, .. } => Extent { channels: of(0).channels / parts, ..of(0) },
                Operation::Join => {
                    Extent { channels: (0..node.inputs.len()).map(|input| of(input).channels).sum(), ..of(0) }
                }
                Operation::Add | Operation::Scale | Operation::SegmentScale(_) => of(0),
                Operation::Mean => Extent::vector(of(0).channels),
                Operation::SegmentContext(segment) => Extent { step: of(0).step.map(|step| step * segment), ..of(0) },
                Operation::Moments(_) | Operation::AttentiveMoments(_) => {
                    Extent::vector(2 * of(0).channels * of(0).height.unwrap_or(1))
                }
            };
            extents.push(extent);
        }
        extents
    }
}

fn applied(layer: &LayerSpec, input: Extent) -> Extent {
    let channels = layer.outputs;
    match layer.kind {
        LayerKind::Linear => Extent::vector(channels),
        LayerKind::Conv1d { stride, .. } => {
            Extent { channels, height: None, step: input.step.map(|step| step * stride) }
        }
        LayerKind::Conv2d { stride: [down, along], .. } => Extent {
            channels,
            height: input.height.map(|height| height.div_ceil(down)),
            step: input.step.map(|step| step * along),
        },
    }
}
