//! A network as a standard ONNX graph, for any runtime that reads those: the forward pass in evaluation mode, without
//! the classifier.
//!
//! Input `feats` `[B, T, features]` (mean-subtracted filterbanks), output `embs` `[B, embedding]`, as WeSpeaker's
//! exporter names them; batch and frames are free. Operators are those of opset 17. Weights keep their `state_dict`
//! names, so that they can be found in the file.

mod graph;
mod layer;
mod network;

use bregman_base::protobuf::Message;
use bregman_tensor::Backend;

use crate::{Error, Result, TrainableModel};
use graph::{Dimension, OnnxGraph};

/// `ModelProto.ir_version` and the version of the operator set: both of 2022, read by every runtime of today.
const IR_VERSION: i64 = 8;
const OPSET: i64 = 17;

impl<B: Backend> TrainableModel<B> {
    /// The bytes of an ONNX file. `metadata` is written to its properties, such as the settings of the front end.
    ///
    /// # Errors
    /// A network that does not [say what it computes](crate::Network::graph).
    pub fn to_onnx(&self, metadata: &[(&str, &str)]) -> Result<Vec<u8>> {
        let undescribed = || Error::Unknown { problem: "it has no graph that could be exported".to_owned() };
        let described = self.network().graph().ok_or_else(undescribed)?;
        let state = self.state()?;
        let mut graph = OnnxGraph::new(&state);
        let output = network::network(&mut graph, &described);
        graph.node("embs", "Identity", &[&output], &[]);
        let frames = self.network().frames();
        let frames =
            if frames.start() == frames.end() { Dimension::Fixed(*frames.end()) } else { Dimension::Named("T") };
        let input = [Dimension::Named("B"), frames, Dimension::Fixed(self.features())];
        let output = [Dimension::Named("B"), Dimension::Fixed(self.outputs())];
        let graph = graph.finish("network", ("feats", &input), ("embs", &output));
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
