//! An ONNX graph under construction.
//!
//! Every node has one output of the node's own name; weights keep the names of the `state_dict`. Field numbers are
//! those of `onnx.proto` (<https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>).

use std::collections::BTreeSet;

use bregman_base::protobuf::Message;
use bregman_network::{Deviation, NormSpec};
use bregman_tensor::constants::NORM_EPSILON;

use crate::{Array, Checkpoint, Values};

/// Setting of a node.
pub(super) enum Attribute<'a> {
    Int(i64),
    Ints(&'a [i64]),
    Float(f32),
    Text(&'a str),
}

use Attribute::{Float, Int, Ints, Text};

/// `TensorProto.DataType`.
const FLOAT: i64 = 1;
const INT64: i64 = 7;

/// One dimension of an input or output.
pub(super) enum Dimension {
    Fixed(usize),
    Named(&'static str),
}

/// Nodes and constants so far.
pub(super) struct OnnxGraph<'a> {
    weights: &'a Checkpoint,
    nodes: Vec<Message>,
    constants: Vec<Message>,
    known: BTreeSet<String>,
}

impl<'a> OnnxGraph<'a> {
    /// An empty graph over these weights.
    pub(super) fn new(weights: &'a Checkpoint) -> Self {
        Self { weights, nodes: Vec::new(), constants: Vec::new(), known: BTreeSet::new() }
    }

    /// `GraphProto` from the input to the output.
    pub(super) fn finish(self, name: &str, input: (&str, &[Dimension]), output: (&str, &[Dimension])) -> Message {
        Message::default()
            .each(&self.nodes, |graph, node| graph.message(1, node))
            .text(2, name)
            .each(&self.constants, |graph, constant| graph.message(5, constant))
            .message(11, &value_info(input.0, input.1))
            .message(12, &value_info(output.0, output.1))
    }

    /// Adds a node and returns its output.
    pub(super) fn node(&mut self, name: &str, op: &str, inputs: &[&str], attributes: &[(&str, Attribute)]) -> String {
        self.node_of(name, op, inputs, &[name], attributes);
        name.to_owned()
    }

    /// Cuts axis 1 into equal parts.
    pub(super) fn split(&mut self, name: &str, x: &str, parts: usize) -> Vec<String> {
        let outputs: Vec<String> = (0..parts).map(|i| format!("{name}.{i}")).collect();
        self.node_of(name, "Split", &[x], &outputs.iter().map(String::as_str).collect::<Vec<_>>(), &[("axis", Int(1))]);
        outputs
    }

    fn node_of(&mut self, name: &str, op: &str, inputs: &[&str], outputs: &[&str], attributes: &[(&str, Attribute)]) {
        let node = Message::default()
            .each(inputs, |node, input| node.text(1, input))
            .each(outputs, |node, output| node.text(2, output))
            .text(3, name)
            .text(4, op)
            .each(attributes, |node, (name, value)| node.message(5, &attribute(name, value)));
        self.nodes.push(node);
    }

    /// A tensor of the state, under its name there.
    pub(super) fn weight(&mut self, name: &str) -> String {
        let array = &self.weights.tensors[name];
        self.constant(name, array)
    }

    /// A list of integers.
    pub(super) fn ints(&mut self, values: &[i64]) -> String {
        let name = format!("ints_{}", values.iter().map(ToString::to_string).collect::<Vec<_>>().join("_"));
        self.constant(&name, &Array { shape: vec![values.len()], values: Values::I64(values.to_vec()) })
    }

    /// An integer.
    pub(super) fn int(&mut self, value: i64) -> String {
        self.constant(&format!("int_{value}"), &Array { shape: Vec::new(), values: Values::I64(vec![value]) })
    }

    /// A number.
    pub(super) fn number(&mut self, value: f32) -> String {
        self.constant(&format!("number_{value:e}"), &Array { shape: Vec::new(), values: Values::F32(vec![value]) })
    }

    fn constant(&mut self, name: &str, array: &Array) -> String {
        if self.known.insert(name.to_owned()) {
            let (format, bytes): (_, &[u8]) = match &array.values {
                Values::F32(values) => (FLOAT, bytemuck::cast_slice(values)),
                Values::I64(values) => (INT64, bytemuck::cast_slice(values)),
            };
            let tensor = Message::default().each(&array.shape, |tensor, &size| tensor.int(1, size as i64));
            self.constants.push(tensor.int(2, format).text(8, name).bytes(9, bytes));
        }
        name.to_owned()
    }

    /// Batch norm with the running statistics.
    pub(super) fn norm(&mut self, NormSpec { name, affine }: &NormSpec, x: &str) -> String {
        let [mean, variance] = ["running_mean", "running_var"].map(|part| self.weight(&format!("{name}.{part}")));
        let [scale, shift] = [("weight", 1.0), ("bias", 0.0)].map(|(part, value)| {
            let part = format!("{name}.{part}");
            if *affine {
                return self.weight(&part);
            }
            let shape = self.weights.tensors[&mean].shape.clone(); // ONNX has no norm without scale and shift
            let values = Values::F32(vec![value; shape.iter().product()]);
            self.constant(&part, &Array { shape, values })
        });
        self.node(
            name,
            "BatchNormalization",
            &[x, &scale, &shift, &mean, &variance],
            &[("epsilon", Float(NORM_EPSILON))],
        )
    }

    /// Σ over one axis, which stays with size 1.
    pub(super) fn sum(&mut self, name: &str, x: &str, axis: i64) -> String {
        let axis = self.ints(&[axis]);
        self.node(name, "ReduceSum", &[x, &axis], &[])
    }

    /// Joins along axis 1.
    pub(super) fn concat(&mut self, name: &str, parts: &[&str]) -> String {
        self.node(name, "Concat", parts, &[("axis", Int(1))])
    }

    /// `[batch, everything else]`
    pub(super) fn flatten(&mut self, name: &str, x: &str) -> String {
        self.node(name, "Flatten", &[x], &[])
    }

    /// A dimension of size 1 is put in.
    pub(super) fn unsqueeze(&mut self, name: &str, x: &str, axis: i64) -> String {
        let axis = self.ints(&[axis]);
        self.node(name, "Unsqueeze", &[x, &axis], &[])
    }

    /// Mean and deviation over one axis, which stays with size 1. A single frame has the variance 0.
    pub(super) fn moments(&mut self, name: &str, x: &str, axis: i64, deviation: Deviation) -> [String; 2] {
        let named = |part: &str| format!("{name}.{part}");
        let mean = self.node(&named("mean"), "ReduceMean", &[x], &[("axes", Ints(&[axis]))]);
        let centred = self.node(&named("centred"), "Sub", &[x, &mean], &[]);
        let squares = self.node(&named("squares"), "Mul", &[&centred, &centred], &[]);
        if deviation == Deviation::Floored {
            let variance = self.node(&named("variance"), "ReduceMean", &[&squares], &[("axes", Ints(&[axis]))]);
            return [mean, self.floored_root(name, &variance, deviation)];
        }
        let (one, two) = (self.number(1.0), self.number(2.0));
        let total = self.sum(&named("total"), &squares, axis);
        let count = self.node(&named("count"), "Shape", &[x], &[("start", Int(axis)), ("end", Int(axis + 1))]);
        let count = self.node(&named("frames"), "Cast", &[&count], &[("to", Int(FLOAT))]);
        let count = self.node(&named("at_least_two"), "Max", &[&count, &two], &[]);
        let freedom = self.node(&named("freedom"), "Sub", &[&count, &one], &[]);
        let variance = self.node(&named("variance"), "Div", &[&total, &freedom], &[]);
        let variance = if deviation == Deviation::Raised {
            let epsilon = self.number(deviation.epsilon());
            self.node(&named("raised"), "Add", &[&variance, &epsilon], &[])
        } else {
            variance
        };
        [mean, self.node(&named("deviation"), "Sqrt", &[&variance], &[])]
    }

    /// √max(variance, ε)
    pub(super) fn floored_root(&mut self, name: &str, variance: &str, deviation: Deviation) -> String {
        let floor = self.number(deviation.epsilon());
        let raised = self.node(&format!("{name}.raised"), "Max", &[variance, &floor], &[]);
        self.node(&format!("{name}.deviation"), "Sqrt", &[&raised], &[])
    }
}

/// `AttributeProto`: its value, and which of the fields holds it.
fn attribute(name: &str, value: &Attribute) -> Message {
    let message = Message::default().text(1, name);
    match *value {
        Float(value) => message.float(2, value).int(20, 1),
        Int(value) => message.int(3, value).int(20, 2),
        Text(value) => message.text(4, value).int(20, 3),
        Ints(values) => message.each(values, |message, &value| message.int(8, value)).int(20, 7),
    }
}

/// `ValueInfoProto` of a single-precision tensor.
fn value_info(name: &str, dimensions: &[Dimension]) -> Message {
    let shape = Message::default().each(dimensions, |shape, dimension| {
        let dimension = match *dimension {
            Dimension::Fixed(size) => Message::default().int(1, size as i64),
            Dimension::Named(name) => Message::default().text(2, name),
        };
        shape.message(1, &dimension)
    });
    let tensor = Message::default().int(1, FLOAT).message(2, &shape);
    Message::default().text(1, name).message(2, &Message::default().message(1, &tensor))
}
