//! A network's description as ONNX nodes.
//!
//! A value over time is `[batch, channels, time]`, a plane `[batch, channels, rows, time]`, one without time
//! `[batch, channels]`.

use std::collections::HashMap;

use bregman_network::{Deviation, Graph, Operation};

use super::graph::{Attribute::Int, Attribute::Ints, OnnxGraph};
use super::layer::layer;

/// Adds all operations; returns the name of the last one's result.
pub(super) fn network(graph: &mut OnnxGraph, network: &Graph) -> String {
    let extents = network.extents();
    let mut names: Vec<String> = Vec::new();
    let mut splits = HashMap::new();
    for node in network.nodes() {
        let (name, x) = (&*node.name, |input: usize| &*names[node.inputs[input].0]);
        let last_axis = |input: usize| if extents[node.inputs[input].0].height.is_some() { 3 } else { 2 };
        let made = match &node.operation {
            Operation::Input => graph.node(name, "Transpose", &["feats"], &[("perm", Ints(&[0, 2, 1]))]),
            Operation::Plane => graph.unsqueeze(name, x(0), 1),
            Operation::Rows => {
                let channels = extents[names.len()].channels as i64;
                let shape = graph.ints(&[0, channels, -1]);
                graph.node(name, "Reshape", &[x(0), &shape], &[])
            }
            Operation::Layer(spec) => {
                let inputs: Vec<_> = node.inputs.iter().map(|value| (&*names[value.0], extents[value.0])).collect();
                layer(graph, spec, &inputs)
            }
            Operation::Part { index, of } => {
                let split = splits.entry(node.inputs[0].0).or_insert_with(|| graph.split(name, x(0), *of));
                split[*index].clone()
            }
            Operation::Join => {
                let inputs: Vec<_> = (0..node.inputs.len()).map(x).collect();
                graph.concat(name, &inputs)
            }
            Operation::Add => graph.node(name, "Add", &[x(0), x(1)], &[]),
            Operation::Mean => graph.node(name, "ReduceMean", &[x(0)], &[("axes", Ints(&[2])), ("keepdims", Int(0))]),
            Operation::Scale => {
                let factors = graph.unsqueeze(&format!("{name}.factors"), x(1), 2);
                graph.node(name, "Mul", &[x(0), &factors], &[])
            }
            Operation::SegmentContext(length) => segment_context(graph, name, x(0), *length as i64),
            Operation::SegmentScale(length) => segment_scale(graph, name, x(0), x(1), *length as i64),
            Operation::Moments(deviation) => {
                let moments = graph.moments(name, x(0), last_axis(0), *deviation);
                stacked(graph, name, moments)
            }
            Operation::AttentiveMoments(deviation) => {
                let moments = attentive_moments(graph, name, x(0), x(1), *deviation);
                stacked(graph, name, moments)
            }
        };
        names.push(made);
    }
    names.pop().expect("a graph has an input")
}

/// The mean over all frames plus that over each segment.
fn segment_context(graph: &mut OnnxGraph, name: &str, x: &str, length: i64) -> String {
    let named = |part: &str| format!("{name}.{part}");
    let whole = graph.node(&named("mean"), "ReduceMean", &[x], &[("axes", Ints(&[2]))]);
    let pieces = [("kernel_shape", Ints(&[length])), ("strides", Ints(&[length])), ("ceil_mode", Int(1))];
    let segments = graph.node(&named("segments"), "AveragePool", &[x], &pieces);
    graph.node(name, "Add", &[&segments, &whole], &[])
}

/// Each frame times the factor of its segment.
fn segment_scale(graph: &mut OnnxGraph, name: &str, x: &str, factors: &str, length: i64) -> String {
    let named = |part: &str| format!("{name}.{part}");
    let [zero, one, length] = [0, 1, length].map(|value| graph.int(value));
    let frames = graph.node(&named("shape"), "Shape", &[x], &[("start", Int(2)), ("end", Int(3))]);
    let frames = graph.node(&named("frames"), "Squeeze", &[&frames], &[]);
    let frames = graph.node(&named("positions"), "Range", &[&zero, &frames, &one], &[]);
    let segments = graph.node(&named("segments"), "Div", &[&frames, &length], &[]);
    let factors = graph.node(&named("factors"), "Gather", &[factors, &segments], &[("axis", Int(2))]);
    graph.node(name, "Mul", &[x, &factors], &[])
}

/// Mean and deviation as one vector.
fn stacked(graph: &mut OnnxGraph, name: &str, [mean, deviation]: [String; 2]) -> String {
    let mean = graph.flatten(&format!("{name}.means"), &mean);
    let deviation = graph.flatten(&format!("{name}.deviations"), &deviation);
    graph.concat(name, &[&mean, &deviation])
}

/// Mean and deviation under α = softmaxₜ(logits).
fn attentive_moments(graph: &mut OnnxGraph, name: &str, x: &str, logits: &str, deviation: Deviation) -> [String; 2] {
    let named = |part: &str| format!("{name}.{part}");
    let attention = graph.node(&named("attention"), "Softmax", &[logits], &[("axis", Int(2))]);
    let weighted = graph.node(&named("weighted"), "Mul", &[&attention, x], &[]);
    let mean = graph.sum(&named("mean"), &weighted, 2);
    // about the mean, so that no rounding error of large numbers shows beside a small variance
    let centred = graph.node(&named("centred"), "Sub", &[x, &mean], &[]);
    let squares = graph.node(&named("squares"), "Mul", &[&centred, &centred], &[]);
    let weighted = graph.node(&named("weighted_squares"), "Mul", &[&attention, &squares], &[]);
    let variance = graph.sum(&named("variance"), &weighted, 2);
    [mean, graph.floored_root(name, &variance, deviation)]
}
