//! A network as a standard ONNX graph, for any runtime that reads those: the forward pass in evaluation mode, without
//! the classifier.
//!
//! Input `feats` `[B, T, features]` (mean-subtracted filterbanks), output `embs` `[B, embedding]`, as WeSpeaker's
//! exporter names them; batch and frames are free. Operators are those of opset 17. Weights keep their `state_dict`
//! names, so that they can be found in the file.

mod ecapa;
mod graph;
mod proto;
mod resnet;

use bregman_tensor::Backend;

use crate::{Architecture, Model, Result};
use graph::{Dimension, Graph};
use proto::Message;

/// `ModelProto.ir_version` and the version of the operator set: both of 2022, read by every runtime of today.
const IR_VERSION: i64 = 8;
const OPSET: i64 = 17;

impl<B: Backend> Model<B> {
    /// The bytes of an ONNX file. `metadata` is written to its properties, such as the settings of the front end.
    pub fn to_onnx(&self, metadata: &[(&str, &str)]) -> Result<Vec<u8>> {
        let state = self.state()?;
        let mut graph = Graph::new(&state);
        let (name, output) = match self.architecture() {
            Architecture::Ecapa(config) => ("ecapa", ecapa::ecapa(&mut graph, config)),
            Architecture::ResNet(config) => ("resnet", resnet::resnet(&mut graph, config)),
            Architecture::Mlp(sizes) => ("mlp", perceptron(&mut graph, sizes.len() - 1)),
        };
        graph.node("embs", "Identity", &[&output], &[]);
        let frames = if name == "mlp" { Dimension::Fixed(1) } else { Dimension::Named("T") };
        let input = [Dimension::Named("B"), frames, Dimension::Fixed(self.features())];
        let graph =
            graph.finish(name, ("feats", &input), ("embs", &[Dimension::Named("B"), Dimension::Fixed(self.outputs())]));
        let opset = Message::default().text(1, "").int(2, OPSET);
        let model = Message::default()
            .int(1, IR_VERSION)
            .text(2, "bregman")
            .text(3, env!("CARGO_PKG_VERSION"))
            .message(7, &graph)
            .message(8, &opset)
            .each(metadata, |model, (key, value)| model.message(14, &Message::default().text(1, key).text(2, value)));
        Ok(model.finish())
    }
}

fn perceptron(graph: &mut Graph, layers: usize) -> String {
    let x = graph.flatten("inputs", "feats");
    (0..layers).fold(x, |x, i| {
        let y = graph.linear(&format!("layers.{i}"), &x);
        if i + 1 < layers { graph.relu(&format!("relus.{i}"), &y) } else { y }
    })
}
