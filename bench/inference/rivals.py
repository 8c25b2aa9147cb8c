"""Runtimes that claim speed from zeros or from int8, each with the ONNX graph that bregman writes of a trained network.

usage: rivals.py prepare FOLDER BATCH FRAMES BINS                       makes the graphs that `time` reads
       rivals.py time KIND FOLDER BATCH FRAMES BINS THREADS REPEATS     a JSON line: median ms, version, embedding
"""

import json
import sys
import time
from pathlib import Path

import numpy as np


def main():
    if sys.argv[1] == "prepare":
        prepare(Path(sys.argv[2]), *map(int, sys.argv[3:6]))
        print(json.dumps({}))
        return
    kind, folder = sys.argv[2], Path(sys.argv[3])
    batch, frames, bins, threads, repeats = map(int, sys.argv[4:])
    features = np.fromfile(folder / "features.f32", np.float32).reshape(batch, frames, bins)
    version, run = RIVALS[kind.split("-")[0]](kind, folder, features, threads)
    times = []
    for _ in range(3 + repeats):
        start = time.perf_counter()
        embeddings = run()
        times.append((time.perf_counter() - start) * 1e3)
    median = sorted(times[3:])[repeats // 2]
    embedding = [float(x) for x in np.asarray(embeddings).reshape(batch, -1)[0]]
    print(json.dumps({"ms": median, "version": version, "embedding": embedding}))


def prepare(folder, batch, frames, bins):
    """The graph with fixed sizes, its shapes computed beforehand, and the same in int8."""
    import onnx
    import onnxruntime as ort
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    model = onnx.load(folder / "network.onnx")
    shape = model.graph.input[0].type.tensor_type.shape
    del shape.dim[:]
    for size in (batch, frames, bins):
        shape.dim.add().dim_value = size
    onnx.save(model, folder / "sized.onnx")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folder / "folded.onnx")
    options.log_severity_level = 3
    ort.InferenceSession(str(folder / "sized.onnx"), options, ["CPUExecutionProvider"])
    model = in_two_dimensions(onnx.load(folder / "folded.onnx"))
    onnx.save(model, folder / "f32.onnx")

    features = np.fromfile(folder / "features.f32", np.float32).reshape(batch, frames, bins)
    name = model.graph.input[0].name

    class Loudness(CalibrationDataReader):
        def __init__(self):
            self.inputs = iter([{name: features * np.float32(factor)} for factor in (0.5, 1.0, 1.5)])

        def get_next(self):
            return next(self.inputs, None)

    quantize_static(
        str(folder / "f32.onnx"),
        str(folder / "int8.onnx"),
        Loudness(),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=["Conv", "Gemm"],
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
    )


def in_two_dimensions(model):
    """Signals [batch, channels, frames] as maps of one row, and convolutions of a single frame as matrix products.

    DeepSparse stops with an assertion otherwise, also at a sum that keeps its axis; the others are as fast this way.
    Networks over maps (ResNet, CAM++) stay as they are.
    """
    import onnx
    from onnx import helper, numpy_helper, shape_inference

    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    if any(node.op_type == "Conv" and len(weights[node.input[1]].dims) == 4 for node in graph.node):
        return model
    sizes = {value.name: value.type.tensor_type.shape for value in shape_inference.infer_shapes(model).graph.value_info}
    signals = {name for name, shape in sizes.items() if len(shape.dim) == 3}
    for name, axes in {"row": [2], "frame": [3], "row_and_frame": [2, 3]}.items():
        graph.initializer.append(numpy_helper.from_array(np.array(axes, np.int64), name))
    nodes = []
    for node in graph.node:
        given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        if node.op_type == "Transpose":
            y = node.output[0]
            nodes += [
                helper.make_node("Transpose", [node.input[0]], [y + "_signal"], **given),
                helper.make_node("Unsqueeze", [y + "_signal", "row"], [y]),
            ]
        elif node.op_type == "Conv":
            nodes += convolution(node, given, weights[node.input[1]], sizes[node.input[0]].dim[2].dim_value)
        elif node.op_type == "Unsqueeze":
            nodes.append(helper.make_node("Unsqueeze", [node.input[0], "row_and_frame"], node.output))
        elif node.op_type in ("ReduceMean", "ReduceSum") and node.input[0] in signals:
            nodes += reduction(node, given.get("keepdims", 1))
        elif node.op_type == "Softmax":
            nodes.append(helper.make_node("Softmax", node.input, node.output, axis=3))
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:]
    standard = [version for version in model.opset_import if version.domain == ""]
    del model.opset_import[:]
    model.opset_import.extend(standard)
    onnx.checker.check_model(model)
    return model


def reduction(node, kept):
    """A mean or a sum over time."""
    from onnx import helper

    def reduce(axes, name, y):
        if node.op_type == "ReduceMean":
            return helper.make_node("ReduceMean", [node.input[0]], [y], axes=axes, keepdims=0)
        return helper.make_node("ReduceSum", [node.input[0], name], [y], keepdims=0)

    y = node.output[0]
    if not kept:
        return [reduce([2, 3], "row_and_frame", y)]
    return [reduce([3], "frame", y + "_reduced"), helper.make_node("Unsqueeze", [y + "_reduced", "frame"], [y])]


def convolution(node, given, weight, frames):
    """A convolution over time as one over a row of so many frames."""
    from onnx import helper, numpy_helper

    array, (x, y) = numpy_helper.to_array(weight), (node.input[0], node.output[0])
    if frames == 1:
        weight.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array[:, :, 0]), weight.name))
        return [
            helper.make_node("Flatten", [x], [y + "_flat"], axis=1),
            helper.make_node("Gemm", [y + "_flat", *node.input[1:]], [y + "_product"], transB=1),
            helper.make_node("Unsqueeze", [y + "_product", "row_and_frame"], [y]),
        ]
    weight.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array[:, :, None]), weight.name))
    pads = given.get("pads", [0, 0])
    sizes = {
        "kernel_shape": [1, array.shape[2]],
        "dilations": [1, given.get("dilations", [1])[0]],
        "strides": [1, given.get("strides", [1])[0]],
        "pads": [0, pads[0], 0, pads[1]],
    }
    return [helper.make_node("Conv", node.input, node.output, **sizes)]


def graph_of(kind, folder):
    return str(folder / ("int8.onnx" if kind.endswith(("-int8", "-sparse")) else "f32.onnx"))


def onnxruntime(kind, folder, features, threads):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(graph_of(kind, folder), options, ["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return ort.__version__, lambda: session.run(None, {name: features})[0]


def openvino(kind, folder, features, threads):
    import openvino as ov

    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    if kind.endswith("-sparse"):
        settings["CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE"] = 0.5
    request = ov.Core().compile_model(graph_of(kind, folder), "CPU", settings).create_infer_request()
    return ov.__version__.split("-")[0], lambda: request.infer([features])[0]


def deepsparse(kind, folder, features, threads):
    from importlib.metadata import version

    from deepsparse import Engine

    engine = Engine(model=graph_of(kind, folder), batch_size=len(features), num_cores=threads)
    return version("deepsparse"), lambda: engine.run([features])[0]


def mnn(kind, folder, features, threads):
    import subprocess
    from importlib.metadata import version

    import MNN

    converted = str(folder / "network.mnn")
    convert = Path(sys.executable).with_name("mnnconvert")
    command = [convert, "-f", "ONNX", "--modelFile", graph_of(kind, folder), "--MNNModel", converted, "--bizCode", "b"]
    subprocess.run(command, check=True, capture_output=True)
    interpreter = MNN.Interpreter(converted)
    session = interpreter.createSession({"numThread": threads, "precision": "high"})
    to, kinds = interpreter.getSessionInput(session), (MNN.Halide_Type_Float, MNN.Tensor_DimensionType_Caffe)
    given = MNN.Tensor(features.shape, kinds[0], features, kinds[1])

    def run():
        to.copyFrom(given)
        interpreter.runSession(session)
        output = interpreter.getSessionOutput(session)
        copy = MNN.Tensor(output.getShape(), kinds[0], np.zeros(output.getShape(), np.float32), kinds[1])
        output.copyToHostTensor(copy)
        return np.array(copy.getData())

    return version("mnn"), run


RIVALS = {"onnxruntime": onnxruntime, "openvino": openvino, "deepsparse": deepsparse, "mnn": mnn}

if __name__ == "__main__":
    main()
