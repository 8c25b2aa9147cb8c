"""PyTorch's side: the three products of a layer in f32 and bf16, medians in milliseconds as one JSON line.

Pointwise layers are plain matrix products over the whole batch, PyTorch's fastest layout; the others are convolutions.
bf16 operands are converted beforehand, which is in PyTorch's favour: our times include the conversion.
usage: peer.py THREADS REPEATS OUTxINxHIGHxWIDExDILATIONxHEIGHTxWIDTH…
"""

import json
import statistics
import sys
import time

import torch
from torch.nn import functional, grad

ITEMS = 8


def median_ms(call, repeats):
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def products(out, channels, high, wide, dilation, height, width, dtype):
    if high * wide == 1:
        w = torch.randn(out, channels).to(dtype)
        x = torch.randn(channels, ITEMS * height * width).to(dtype)
        dy = torch.randn(out, ITEMS * height * width).to(dtype)
        return {"y": lambda: w @ x, "dx": lambda: w.T @ dy, "dw": lambda: dy @ x.T}
    w = torch.randn(out, channels, high, wide).to(dtype)
    x = torch.randn(ITEMS, channels, height, width).to(dtype)
    dy = torch.randn(ITEMS, out, height, width).to(dtype)
    how = {"padding": (dilation * (high // 2), dilation * (wide // 2)), "dilation": dilation}
    return {
        "y": lambda: functional.conv2d(x, w, **how),
        "dx": lambda: grad.conv2d_input(x.shape, w, dy, **how),
        "dw": lambda: grad.conv2d_weight(x, w.shape, dy, **how),
    }


threads, repeats = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(threads)
result = {}
with torch.no_grad():
    for shape in sys.argv[3:]:
        for name, dtype in [("f32", torch.float32), ("bf16", torch.bfloat16)]:
            for product, call in products(*map(int, shape.split("x")), dtype).items():
                result[f"{shape}-{name}-{product}"] = median_ms(call, repeats)
print(json.dumps(result))
