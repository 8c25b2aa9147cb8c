"""The dense peers: ONNX Runtime (f32, int8) and PyTorch (f32, bf16), one utterance at a time, with given weights.

usage: peer.py export FOLDER                     makes f32.onnx, int8.onnx of state.safetensors and input.f32 in FOLDER,
                                                 and PyTorch's embedding.f32
       peer.py time KIND FOLDER THREADS REPEATS  KIND is one of ort, ort-int8, torch, torch-bf16
Both end with a JSON line; `time` prints {"ms": median, "peak_mb": peak resident memory}.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

FRAMES, BINS = 300, 80


def load(folder):
    """The network with its weights. PyTorch is imported here: it must not count towards ONNX Runtime's memory."""
    import torch
    from safetensors.numpy import load_file

    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from networks import NETWORKS

    state = load_file(folder / "state.safetensors")
    model = NETWORKS["resnet34" if "seg_1.weight" in state else "ecapa"]()
    model.load_state_dict({name: torch.from_numpy(values.copy()) for name, values in state.items()})
    return torch, model.eval()


def read_input(folder):
    return np.fromfile(folder / "input.f32", np.float32).reshape(1, FRAMES, BINS)


def export(folder):
    torch, model = load(folder)
    x = torch.from_numpy(read_input(folder))
    with torch.no_grad():
        model(x).numpy().tofile(folder / "embedding.f32")
    path = str(folder / "f32.onnx")
    torch.onnx.export(
        model,
        (x,),
        path,
        input_names=["x"],
        output_names=["embedding"],
        dynamo=True,
        external_data=False,
        verbose=False,
    )
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Noise(CalibrationDataReader):
        def __init__(self):
            rng = np.random.default_rng(0)
            self.inputs = iter([{"x": x.numpy() * np.float32(rng.uniform(0.5, 1.5))} for _ in range(4)])

        def get_next(self):
            return next(self.inputs, None)

    prepared = str(folder / "prepared.onnx")
    quant_pre_process(path, prepared)
    kinds = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8, "per_channel": True}
    quantize_static(
        prepared,
        str(folder / "int8.onnx"),
        Noise(),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=["Conv", "MatMul", "Gemm"],
        **kinds,
    )
    print(
        json.dumps(
            {"onnx_bytes": (folder / "f32.onnx").stat().st_size, "int8_bytes": (folder / "int8.onnx").stat().st_size}
        )
    )


def timed(kind, folder, threads, repeats):
    x = read_input(folder)
    if kind.startswith("ort"):
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        session = ort.InferenceSession(
            str(folder / ("int8.onnx" if "int8" in kind else "f32.onnx")), options, ["CPUExecutionProvider"]
        )
        run = lambda: session.run(None, {"x": x})
    else:
        torch, model = load(folder)
        torch.set_num_threads(threads)
        inputs = torch.from_numpy(x)

        def run():
            with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled="bf16" in kind):
                return model(inputs)

    times = []
    for _ in range(3 + repeats):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    times = sorted(times[3:])
    # not getrusage: its maximum includes the memory of the process that started this one
    peak = next(float(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM:"))
    print(json.dumps({"ms": times[len(times) // 2], "least_ms": times[0], "peak_mb": peak}))


if sys.argv[1] == "export":
    export(Path(sys.argv[2]))
else:
    timed(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
