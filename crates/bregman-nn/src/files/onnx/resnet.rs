//! ResNet34 and its like as ONNX nodes: the forward pass of `crate::resnet` in evaluation mode.

use super::graph::{Attribute::Ints, Graph};
use crate::ResNetConfig;

/// feats `[batch, time, features]` → the embedding `[batch, embedding]`.
pub(super) fn resnet(graph: &mut Graph, config: &ResNetConfig) -> String {
    let plane = graph.node("frequency_first", "Transpose", &["feats"], &[("perm", Ints(&[0, 2, 1]))]);
    let channel = graph.ints(&[1]);
    let plane = graph.node("plane", "Unsqueeze", &[&plane, &channel], &[]);
    let x = graph.conv2d("conv1", &plane, 1);
    let x = graph.norm("bn1", &x);
    let mut x = graph.relu("relu1", &x);
    for (stage, &blocks) in config.blocks.iter().enumerate() {
        for i in 0..blocks {
            let stride = if stage > 0 && i == 0 { 2 } else { 1 };
            x = block(graph, &format!("layer{}.{i}", stage + 1), &x, stride);
        }
    }
    let [mean, deviation] = graph.moments("pool", &x, 3);
    let (mean, deviation) = (graph.flatten("pool.means", &mean), graph.flatten("pool.deviations", &deviation));
    let pooled = graph.concat("pool", &[&mean, &deviation]);
    graph.linear("seg_1", &pooled)
}

/// `relu(bn₂(conv₂(relu(bn₁(conv₁(x))))) + shortcut(x))`
fn block(graph: &mut Graph, name: &str, x: &str, stride: usize) -> String {
    let named = |part: &str| format!("{name}.{part}");
    let y = graph.conv2d(&named("conv1"), x, stride);
    let y = graph.norm(&named("bn1"), &y);
    let y = graph.relu(&named("relu1"), &y);
    let y = graph.conv2d(&named("conv2"), &y, 1);
    let y = graph.norm(&named("bn2"), &y);
    let residual = if stride == 1 {
        x.to_owned()
    } else {
        let shortcut = graph.conv2d(&named("shortcut.0"), x, stride);
        graph.norm(&named("shortcut.1"), &shortcut)
    };
    let y = graph.node(&named("sum"), "Add", &[&y, &residual], &[]);
    graph.relu(name, &y)
}
