//! ECAPA-TDNN as ONNX nodes: the forward pass of `crate::ecapa`, `crate::tdnn` and `crate::pool` in evaluation mode.

use bregman_tensor::constants::POOL_EPSILON;

use super::graph::{Attribute::Int, Attribute::Ints, Graph};
use crate::EcapaConfig;

/// feats `[batch, time, features]` → the embedding `[batch, embedding]`.
pub(super) fn ecapa(graph: &mut Graph, config: &EcapaConfig) -> String {
    let x = graph.node("channels_first", "Transpose", &["feats"], &[("perm", Ints(&[0, 2, 1]))]);
    let first = conv_relu_norm(graph, "layer1", &x);
    let second = block(graph, "layer2", &first, 2);
    let third = block(graph, "layer3", &second, 3);
    let fourth = block(graph, "layer4", &third, 4);
    let blocks = graph.concat("blocks", &[&second, &third, &fourth]);
    let frames = graph.conv1d("conv", &blocks, 1);
    let frames = graph.relu("conv.relu", &frames);
    let pooled = attentive_statistics(graph, "pool", &frames, config.global_context);
    let pooled = graph.norm("bn", &pooled);
    graph.linear("linear", &pooled)
}

fn conv_relu_norm(graph: &mut Graph, name: &str, x: &str) -> String {
    let x = graph.conv1d(&format!("{name}.conv"), x, 1);
    let x = graph.relu(&format!("{name}.relu"), &x);
    graph.norm(&format!("{name}.bn"), &x)
}

/// `x + se(f₂(res2(f₀(x))))`
fn block(graph: &mut Graph, name: &str, x: &str, dilation: usize) -> String {
    let part = |i: usize| format!("{name}.se_res2block.{i}");
    let y = conv_relu_norm(graph, &part(0), x);
    let y = res2(graph, &part(1), &y, dilation);
    let y = conv_relu_norm(graph, &part(2), &y);
    let y = squeeze_excite(graph, &part(3), &y);
    graph.node(name, "Add", &[x, &y], &[])
}

fn res2(graph: &mut Graph, name: &str, x: &str, dilation: usize) -> String {
    const SCALE: usize = 8;
    let mut parts = graph.split(&format!("{name}.split"), x, SCALE);
    for i in 0..SCALE - 1 {
        if i > 0 {
            parts[i] = graph.node(&format!("{name}.sums.{i}"), "Add", &[&parts[i], &parts[i - 1]], &[]);
        }
        let y = graph.conv1d(&format!("{name}.convs.{i}"), &parts[i], dilation);
        let y = graph.relu(&format!("{name}.relus.{i}"), &y);
        parts[i] = graph.norm(&format!("{name}.bns.{i}"), &y);
    }
    graph.concat(name, &parts.iter().map(String::as_str).collect::<Vec<_>>())
}

fn squeeze_excite(graph: &mut Graph, name: &str, x: &str) -> String {
    let named = |part: &str| format!("{name}.{part}");
    let mean = graph.node(&named("mean"), "ReduceMean", &[x], &[("axes", Ints(&[2])), ("keepdims", Int(0))]);
    let hidden = graph.linear(&named("linear1"), &mean);
    let hidden = graph.relu(&named("relu"), &hidden);
    let gate = graph.linear(&named("linear2"), &hidden);
    let gate = graph.node(&named("sigmoid"), "Sigmoid", &[&gate], &[]);
    let last = graph.ints(&[2]);
    let gate = graph.node(&named("gate"), "Unsqueeze", &[&gate, &last], &[]);
    graph.node(name, "Mul", &[x, &gate], &[])
}

/// α = softmaxₜ(W₂ tanh(W₁ x + b₁) + b₂); mean and deviation under α. With global context W₁ also sees the utterance's
/// moments, which do not depend on time: their columns of W₁ are multiplied once per utterance, as in training.
fn attentive_statistics(graph: &mut Graph, name: &str, x: &str, global_context: bool) -> String {
    let named = |part: &str| format!("{name}.{part}");
    let hidden = if global_context {
        let [mean, deviation] = graph.moments(&named("context"), x, 2);
        let moments = graph.concat(&named("context"), &[&mean, &deviation]);
        let (weight, bias) = (graph.weight(&named("linear1.weight")), graph.weight(&named("linear1.bias")));
        let (start, channels, end, axis) =
            (graph.ints(&[0]), graph.ints(&[graph.columns(&weight) / 3]), graph.ints(&[i64::MAX]), graph.ints(&[1]));
        let of_frames = graph.node(&named("linear1.of_frames"), "Slice", &[&weight, &start, &channels, &axis], &[]);
        let of_moments = graph.node(&named("linear1.of_moments"), "Slice", &[&weight, &channels, &end, &axis], &[]);
        let frames = graph.node(&named("linear1.frames"), "Conv", &[x, &of_frames, &bias], &[]);
        let share = graph.node(&named("linear1.moments"), "Conv", &[&moments, &of_moments], &[]);
        graph.node(&named("linear1"), "Add", &[&frames, &share], &[])
    } else {
        graph.conv1d(&named("linear1"), x, 1)
    };
    let hidden = graph.node(&named("tanh"), "Tanh", &[&hidden], &[]);
    let logits = graph.conv1d(&named("linear2"), &hidden, 1);
    let attention = graph.node(&named("attention"), "Softmax", &[&logits], &[("axis", Int(2))]);

    let weighted = graph.node(&named("weighted"), "Mul", &[&attention, x], &[]);
    let mean = graph.sum(&named("mean"), &weighted, 2);
    let squares = graph.node(&named("squares"), "Mul", &[&weighted, x], &[]);
    let second = graph.sum(&named("second_moment"), &squares, 2);
    let square = graph.node(&named("squared_mean"), "Mul", &[&mean, &mean], &[]);
    let variance = graph.node(&named("variance"), "Sub", &[&second, &square], &[]);
    let floor = graph.number(POOL_EPSILON);
    let variance = graph.node(&named("raised"), "Max", &[&variance, &floor], &[]);
    let deviation = graph.node(&named("deviation"), "Sqrt", &[&variance], &[]);
    let statistics = graph.concat(&named("statistics"), &[&mean, &deviation]);
    graph.flatten(name, &statistics)
}
