//! The ONNX export: what is in the file, read back by an independent decoder, and what ONNX Runtime computes from it,
//! where that is installed (`BREGMAN_PYTHON`, or `python3`, with `onnx` and `onnxruntime`).

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use bregman_nn::{CrossEntropy, Input, Mlp, TrainableModel};
use bregman_tensor::Cpu;
use common::{Features, Floats, architecture, furthest, json, largest, load, tensors};

/// One field of a protobuf message.
enum Field<'a> {
    Int(u64),
    Float(f32),
    Bytes(&'a [u8]),
}

/// A decoded message: its fields by number, each in order.
struct Message<'a>(Vec<(u64, Field<'a>)>);

impl<'a> Message<'a> {
    fn parse(mut bytes: &'a [u8]) -> Self {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let end = bytes.iter().position(|byte| byte & 0x80 == 0).expect("a varint ends");
            let (head, tail) = bytes.split_at(end + 1);
            *bytes = tail;
            head.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f))
        }
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let field = match key & 7 {
                0 => Field::Int(varint(&mut bytes)),
                2 => {
                    let length = varint(&mut bytes) as usize;
                    Field::Bytes(bytes.split_off(..length).expect("a field lies inside of its message"))
                }
                5 => Field::Float(f32::from_le_bytes(bytes.split_off(..4).unwrap().try_into().unwrap())),
                wire => panic!("wire type {wire}"),
            };
            fields.push((key >> 3, field));
        }
        Self(fields)
    }

    fn all(&self, number: u64) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().filter(move |(n, _)| *n == number).map(move |(_, field)| match field {
            Field::Bytes(bytes) => *bytes,
            _ => panic!("field {number} is not bytes"),
        })
    }

    fn messages(&self, number: u64) -> Vec<Message<'a>> {
        self.all(number).map(Message::parse).collect()
    }

    fn texts(&self, number: u64) -> Vec<&'a str> {
        self.all(number).map(|bytes| std::str::from_utf8(bytes).unwrap()).collect()
    }

    fn text(&self, number: u64) -> &'a str {
        self.texts(number)[0]
    }

    fn ints(&self, number: u64) -> Vec<i64> {
        let of = |field: &Field| {
            if let Field::Int(value) = field { *value as i64 } else { panic!("field {number} is not an integer") }
        };
        self.0.iter().filter(|(n, _)| *n == number).map(|(_, field)| of(field)).collect()
    }
}

/// Dimensions of a graph's input or output: a number, or the name of a free one.
fn dimensions(value: &Message) -> Vec<String> {
    let tensor = &value.messages(2)[0].messages(1)[0];
    assert_eq!(tensor.ints(1), [1], "single precision");
    let dimension = |d: &Message| d.ints(1).first().map_or_else(|| d.text(2).to_owned(), ToString::to_string);
    tensor.messages(2)[0].messages(1).iter().map(dimension).collect()
}

#[test]
fn the_file_holds_every_weight_and_its_nodes_stand_in_order() {
    for name in bregman_golden::models() {
        let model = load(Cpu::new(), &json(&format!("{name}_expected")), &tensors(&name));
        let file = model.to_onnx(&[("features", "kaldi")]).unwrap();
        let file = Message::parse(&file);
        assert_eq!((file.ints(1)[0], file.text(2)), (8, "bregman"));
        assert_eq!(file.messages(8)[0].ints(2), [17], "operator set");
        let property = &file.messages(14)[0];
        assert_eq!((property.text(1), property.text(2)), ("features", "kaldi"));

        let graph = &file.messages(7)[0];
        let (inputs, outputs) = (graph.messages(11), graph.messages(12));
        assert_eq!((inputs[0].text(1), outputs[0].text(1)), ("feats", "embs"));
        assert_eq!(dimensions(&inputs[0]), ["B", "T", &model.features().to_string()]);
        assert_eq!(dimensions(&outputs[0]), ["B", &model.outputs().to_string()]);

        // each value is made once, before it is used, and each constant is used
        let constants: BTreeMap<&str, Message> =
            graph.messages(5).into_iter().map(|tensor| (tensor.text(8), tensor)).collect();
        assert_eq!(constants.len(), graph.all(5).count(), "{name}: constants have names of their own");
        let mut known: BTreeSet<&str> = constants.keys().copied().chain(["feats"]).collect();
        let mut unused: BTreeSet<&str> = constants.keys().copied().collect();
        for node in graph.messages(1) {
            for input in node.texts(1) {
                assert!(known.contains(input), "{name}: {} uses {input} before it is made", node.text(3));
                unused.remove(input);
            }
            for output in node.texts(2) {
                assert!(known.insert(output), "{name}: {output} is made twice");
            }
            for attribute in node.messages(5) {
                let field = match attribute.ints(20)[..] {
                    [1] => 2,
                    [2] => 3,
                    [3] => 4,
                    [7] => 8,
                    ref other => panic!("attribute type {other:?}"),
                };
                let mut values =
                    attribute.0.iter().filter(|(number, _)| *number == field).map(|(_, value)| value).peekable();
                assert!(values.peek().is_some(), "{name}: attribute {} has no value", attribute.text(1));
                // the only numbers with a fraction are batch norms' ε
                assert!(values.all(|value| match value {
                    Field::Float(value) => field == 2 && *value == bregman_tensor::constants::NORM_EPSILON,
                    Field::Int(_) => field != 2 && field != 4,
                    Field::Bytes(value) => field == 4 && *value == b"reflect",
                }));
            }
        }
        assert!(known.contains("embs") && unused.is_empty(), "{name}: {unused:?} are in the file for nothing");

        // the state, bit for bit; counters of batches are not part of the forward pass
        let state = model.state().unwrap();
        let weights: Vec<_> = state.tensors.iter().filter(|(name, _)| !name.ends_with("num_batches_tracked")).collect();
        for (tensor, array) in &weights {
            let stored = &constants[tensor.as_str()];
            assert_eq!(stored.ints(1), array.shape.iter().map(|&size| size as i64).collect::<Vec<_>>(), "{tensor}");
            assert_eq!(stored.ints(2), [1], "{tensor}");
            let bytes: Vec<u8> = state.floats(tensor).iter().flat_map(|value| value.to_le_bytes()).collect();
            assert!(stored.all(9).next() == Some(&bytes[..]), "{tensor}");
        }
        assert!(
            constants.len() - weights.len() < 12,
            "{name}: {} constants for {} weights",
            constants.len(),
            weights.len()
        );
    }
}

/// A Python with ONNX Runtime and with the checker of ONNX, as `tools/onnx/python` makes it.
fn python() -> Option<PathBuf> {
    let python = PathBuf::from(std::env::var_os("BREGMAN_PYTHON").unwrap_or_else(|| "python3".into()));
    let works = Command::new(&python)
        .args(["-c", "import numpy, onnx, onnxruntime"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !works {
        bregman_skip::skip("onnxruntime", "no Python with onnx and onnxruntime (`tools/onnx/python` makes one)");
    }
    works.then_some(python)
}

/// Checks the graph and runs it.
const SCRIPT: &str = "
import sys, numpy, onnx, onnxruntime
model, feats, embs, *shape = sys.argv[1:]
onnx.checker.check_model(model, full_check=True)
x = numpy.fromfile(feats, dtype='<f4').reshape([int(n) for n in shape])
onnxruntime.InferenceSession(model, providers=['CPUExecutionProvider']).run(['embs'], {'feats': x})[0].tofile(embs)
";

/// What ONNX Runtime makes of a model and an input.
fn run(python: &PathBuf, model: &TrainableModel<Cpu>, input: Input) -> Vec<f32> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("model.onnx"), model.to_onnx(&[]).unwrap()).unwrap();
    std::fs::write(path("feats"), input.values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
        .unwrap();
    let mut command = Command::new(python);
    command.args(["-c", SCRIPT]).args([path("model.onnx"), path("feats"), path("embs")]);
    let output =
        command.args([input.batch, input.frames, model.features()].map(|size| size.to_string())).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bytes = std::fs::read(path("embs")).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

#[test]
fn onnx_runtime_computes_our_embeddings() {
    let Some(python) = python() else { return };
    for name in bregman_golden::models() {
        let case = json(&format!("{name}_expected"));
        let (mut model, x) = (load(Cpu::new(), &case, &tensors(&name)), Features::of(&case));
        // a batch, a piece of it, and the shortest one: a single frame, which has no variance, where that is taken
        let shortest = architecture(&case).fewest_frames();
        for piece in [x.piece(x.batch, 0, x.frames), x.piece(1, 3, 31), x.piece(2, 5, shortest)] {
            let ours = model.embed(piece.input()).unwrap();
            let error = furthest(&run(&python, &model, piece.input()), &ours) / largest(&ours);
            assert!(error <= 5e-5, "{name}, {} frames: relative error {error:e}", piece.frames);
        }
    }
    let mut perceptron = TrainableModel::with_network(Cpu::new(), 1, |builder| {
        let network = Mlp::new(builder, &[6, 5, 4])?;
        Ok((Box::new(network), Some(Box::new(CrossEntropy::new(builder, 4)?))))
    })
    .unwrap();
    let values: Vec<f32> = (0..18).map(|i| (i as f32).sin()).collect();
    let input = Input { values: &values, batch: 3, frames: 1 };
    let ours = perceptron.embed(input).unwrap();
    assert!(furthest(&run(&python, &perceptron, input), &ours) <= 1e-6);
}
