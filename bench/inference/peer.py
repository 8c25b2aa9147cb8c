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


def networks():
    """The two networks with the parameter names of WeSpeaker's state_dict.

    PyTorch is imported here, so that it does not count towards ONNX Runtime's memory."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    class ConvReluNorm(nn.Module):
        def __init__(self, inputs, outputs, kernel):
            super().__init__()
            self.conv = nn.Conv1d(inputs, outputs, kernel, padding=kernel // 2)
            self.bn = nn.BatchNorm1d(outputs)

        def forward(self, x):
            return self.bn(F.relu(self.conv(x)))

    class Res2(nn.Module):
        def __init__(self, channels, dilation):
            super().__init__()
            self.width = channels // 8
            self.convs = nn.ModuleList(
                nn.Conv1d(self.width, self.width, 3, dilation=dilation, padding=dilation) for _ in range(7)
            )
            self.bns = nn.ModuleList(nn.BatchNorm1d(self.width) for _ in range(7))

        def forward(self, x):
            pieces = torch.split(x, self.width, 1)
            outputs = []
            for i, (conv, bn) in enumerate(zip(self.convs, self.bns)):
                outputs.append(bn(F.relu(conv(pieces[i] + outputs[-1] if i else pieces[i]))))
            return torch.cat([*outputs, pieces[-1]], 1)

    class Gate(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.linear1, self.linear2 = nn.Linear(channels, 128), nn.Linear(128, channels)

        def forward(self, x):
            return x * torch.sigmoid(self.linear2(F.relu(self.linear1(x.mean(2))))).unsqueeze(2)

    class SeRes2Block(nn.Module):
        def __init__(self, channels, dilation):
            super().__init__()
            parts = (
                ConvReluNorm(channels, channels, 1),
                Res2(channels, dilation),
                ConvReluNorm(channels, channels, 1),
                Gate(channels),
            )
            self.se_res2block = nn.Sequential(*parts)

        def forward(self, x):
            return x + self.se_res2block(x)

    class Attention(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.linear1, self.linear2 = nn.Conv1d(3 * channels, 128, 1), nn.Conv1d(128, channels, 1)

        def forward(self, x):
            std = torch.sqrt(x.var(2, keepdim=True) + 1e-7)
            context = torch.cat([x, x.mean(2, keepdim=True).expand_as(x), std.expand_as(x)], 1)
            attention = torch.softmax(self.linear2(torch.tanh(self.linear1(context))), 2)
            mean = (attention * x).sum(2)
            std = torch.sqrt(((attention * x * x).sum(2) - mean * mean).clamp(min=1e-7))
            return torch.cat([mean, std], 1)

    class Ecapa(nn.Module):
        def __init__(self, channels=1024):
            super().__init__()
            self.layer1 = ConvReluNorm(BINS, channels, 5)
            self.layer2, self.layer3, self.layer4 = (SeRes2Block(channels, dilation) for dilation in (2, 3, 4))
            self.conv = nn.Conv1d(3 * channels, 1536, 1)
            self.pool = Attention(1536)
            self.bn = nn.BatchNorm1d(2 * 1536)
            self.linear = nn.Linear(2 * 1536, 192)

        def forward(self, x):
            first = self.layer2(self.layer1(x.transpose(1, 2)))
            second = self.layer3(first)
            x = F.relu(self.conv(torch.cat([first, second, self.layer4(second)], 1)))
            return self.linear(self.bn(self.pool(x)))

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.shortcut = nn.Sequential()
            if stride != 1 or inputs != outputs:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
                )

        def forward(self, x):
            return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.shortcut(x))

    class ResNet34(nn.Module):
        def __init__(self, channels=32):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(1, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels)
            inputs = channels
            for stage, count in enumerate((3, 4, 6, 3)):
                outputs = channels << stage
                blocks = [
                    Block(inputs if not i else outputs, outputs, 2 if stage and not i else 1) for i in range(count)
                ]
                setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
                inputs = outputs
            self.seg_1 = nn.Linear(2 * inputs * BINS // 8, 256)

        def forward(self, x):
            x = F.relu(self.bn1(self.conv1(x.transpose(1, 2).unsqueeze(1))))
            x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
            std = torch.sqrt(x.var(3) + 1e-7)
            return self.seg_1(torch.cat([x.mean(3).flatten(1), std.flatten(1)], 1))

    return torch, {"ecapa": Ecapa, "resnet34": ResNet34}


def load(folder):
    from safetensors.numpy import load_file

    torch, kinds = networks()
    state = load_file(folder / "state.safetensors")
    model = kinds["resnet34" if "seg_1.weight" in state else "ecapa"]()
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
